// What the worker answers to HELLO and STATS, after the ReplyHeader, and what it tells of shares.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "wire/bytes.h"

namespace gpupool::wire {

inline constexpr std::uint32_t max_devices = 64;

/// One device of the session, in the order of the client's ordinals.
struct ArenaDescription {
  std::uint64_t base = 0;  ///< first address of the range that the worker reserved
  std::uint64_t size = 0;
  std::uint64_t granularity = 0;  ///< of mapping memory
  std::uint64_t limit = 0;        ///< memory share in bytes
};

struct HelloReply {
  std::uint32_t fingerprint = 0;  ///< of the protocol table: must equal the client's
  std::vector<ArenaDescription> devices;
  std::string profile;         ///< text of the session's devices, device numbers = the client's ordinals
  std::uint64_t received = 0;  ///< number of the last frame executed
  std::uint64_t pushed = 0;    ///< number of the last push made: those not taken in follow this reply

  void encode(Writer& out) const {
    out.put(fingerprint);
    out.put(static_cast<std::uint32_t>(devices.size()));
    for (const auto& device : devices) out.put(device);
    out.put_text(profile);
    out.put(received);
    out.put(pushed);
  }
  [[nodiscard]] static bool decode(Reader& in, HelloReply& out) {
    out.fingerprint = in.get<std::uint32_t>();
    const auto count = in.get<std::uint32_t>();
    if (count > max_devices) return false;
    for (std::uint32_t n = 0; n < count; ++n) out.devices.push_back(in.get<ArenaDescription>());
    out.profile = in.get_text();
    out.received = in.get<std::uint64_t>();
    out.pushed = in.get<std::uint64_t>();
    return in.finished();
  }
};

/// The memory share of a device has another size. With a number it is a wish: the client makes do with it if
/// it can, gives back what it holds for later allocations, and answers with Control::limit_answered either
/// way.
struct ShareLimit {
  std::uint32_t device = 0;
  std::uint64_t bytes = 0;
  std::uint32_t number = 0;  ///< 0: it is so already

  void encode(Writer& out) const {
    out.put(device);
    out.put(bytes);
    out.put(number);
  }
  [[nodiscard]] static bool decode(Reader& in, ShareLimit& out) {
    out.device = in.get<std::uint32_t>();
    out.bytes = in.get<std::uint64_t>();
    out.number = in.get<std::uint32_t>();
    return in.finished();
  }
};

/// The worker's side of the counters.
struct StatsReply {
  std::uint64_t device_ns = 0;
  std::uint64_t kernels = 0;
  std::vector<std::uint64_t> memory_used;
  std::vector<std::uint64_t> memory_peak;

  void encode(Writer& out) const {
    out.put(device_ns);
    out.put(kernels);
    out.put(static_cast<std::uint32_t>(memory_used.size()));
    for (std::size_t n = 0; n < memory_used.size(); ++n) {
      out.put(memory_used[n]);
      out.put(memory_peak[n]);
    }
  }
  [[nodiscard]] static bool decode(Reader& in, StatsReply& out) {
    out.device_ns = in.get<std::uint64_t>();
    out.kernels = in.get<std::uint64_t>();
    const auto count = in.get<std::uint32_t>();
    if (count > max_devices) return false;
    for (std::uint32_t n = 0; n < count; ++n) {
      out.memory_used.push_back(in.get<std::uint64_t>());
      out.memory_peak.push_back(in.get<std::uint64_t>());
    }
    return in.finished();
  }
};

}  // namespace gpupool::wire
