// From a message number to the code that executes it.
#pragma once

#include <cuda.h>

#include "generated/messages.h"
#include "wire/bytes.h"

namespace gpupool::worker {

class Call;

/// One row per message. `run` decodes the body, executes, and appends the packed reply fields.
/// A body that does not decode makes `run` return `malformed`: the connection is then closed.
struct Dispatch {
  const char* name;
  CUresult (*run)(Call&, wire::Reader& body, wire::Writer& reply);
  bool needs_lease;
  bool is_ask;
  bool has_payload;
  bool waits;
};

inline constexpr auto malformed = static_cast<CUresult>(1023);  // no error, and the enumeration can hold it

extern const Dispatch dispatch_table[message_count];

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
