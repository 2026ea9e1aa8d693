// What the worker tells unasked: bodies of the messages `completed` and `copied`.
#pragma once

#include <cstdint>

#include "wire/bytes.h"

namespace gpupool::wire {

/// A stream or event that was watched has no work left, or an error.
struct Completed {
  std::uint64_t watch = 0;    ///< as the client named it
  std::uint64_t through = 0;  ///< number of a frame: what came up to it is complete
  std::int32_t result = 0;    ///< CUresult
  std::int32_t deferred_error = 0;
  std::uint32_t deferred_message = 0;

  void encode(Writer& out) const {
    out.put(watch);
    out.put(through);
    out.put(result);
    out.put(deferred_error);
    out.put(deferred_message);
  }
  [[nodiscard]] static bool decode(Reader& in, Completed& out) {
    out.watch = in.get<std::uint64_t>();
    out.through = in.get<std::uint64_t>();
    out.result = in.get<std::int32_t>();
    out.deferred_error = in.get<std::int32_t>();
    out.deferred_message = in.get<std::uint32_t>();
    return in.finished();
  }
};

/// A piece of an asynchronous copy; its bytes are the payload, and there are none when it failed.
struct Copied {
  std::uint64_t ticket = 0;
  std::int32_t result = 0;  ///< CUresult

  void encode(Writer& out) const {
    out.put(ticket);
    out.put(result);
  }
  [[nodiscard]] static bool decode(Reader& in, Copied& out) {
    out.ticket = in.get<std::uint64_t>();
    out.result = in.get<std::int32_t>();
    return in.finished();
  }
};

}  // namespace gpupool::wire
