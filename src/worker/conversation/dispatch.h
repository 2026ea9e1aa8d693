// From a message number to the code that executes it.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "generated/messages.h"
#include "wire/bytes.h"
#include "wire/frame.h"

namespace gpupool::worker {

class Call;

/// What may be done with a call whose answer was lost, or that is refused while it waits.
enum class Again : std::uint8_t {
  never,  ///< its answer is kept until the client has it
  waits,  ///< it only waits: it may be refused while it does, and made once more
  reads   ///< it reads device memory, whose bytes are too many to be kept: it is executed again
};

/// One row per message. `run` decodes the body, executes, and appends the packed reply fields.
/// A body that does not decode makes `run` return `malformed`: the connection is then closed.
struct Dispatch {
  const char* name;
  CUresult (*run)(Call&, wire::Reader& body, wire::Writer& reply);
  bool needs_lease;
  bool is_ask;
  bool has_payload;
  bool waits;
  Again again;
  bool refused_by_push;  ///< a post that is not kept for the next lease: its client waits for a push
};

inline constexpr auto malformed = static_cast<CUresult>(1023);  // no error, and the enumeration can hold it

extern const Dispatch dispatch_table[message_count];

/// Of a control message too.
[[nodiscard]] inline Again again(std::uint16_t message) {
  const std::size_t row = message - std::size_t{wire::first_call};
  return row < message_count ? dispatch_table[row].again : Again::never;
}

template <class M, CUresult (*execute)(Call&, const M&, typename M::Reply&)>
CUresult handle(Call& call, wire::Reader& body, wire::Writer& reply) {
  M message;
  if (!M::decode(body, message)) return malformed;
  typename M::Reply answer;
  const CUresult result = execute(call, message, answer);
  if constexpr (M::is_ask) answer.encode(reply);
  return result;
}

}  // namespace gpupool::worker
