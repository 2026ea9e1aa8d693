// How the exports send their messages. Used by the generated stubs and by the hand-written families.
#pragma once

#include <cuda.h>

#include <ctime>
#include <new>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "client/call/call_hooks.h"
#include "client/call/current_context.h"
#include "client/call/routing.h"
#include "client/link/worker_result.h"
#include "client/session/earlier_error.h"
#include "client/session/runtime.h"
#include "client/session/session_hooks.h"
#include "generated/message_routing.h"
#include "generated/messages.h"
#include "wire/handle.h"

namespace gpupool::client {

/// For calls that mean the same in every context.
inline constexpr std::uint64_t any_context = 0;

CUresult bad_handle(wire::Kind kind);

inline std::span<const std::byte> text(const char* string) {
  return std::as_bytes(std::span(string, std::char_traits<char>::length(string)));
}
inline CUstream per_thread(CUstream stream) {
  return stream == nullptr ? CU_STREAM_PER_THREAD : stream;
}

inline std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

/// A context that a message is sent in: the current one, or CUDA_ERROR_INVALID_CONTEXT.
CUresult in_current_context(std::uint64_t& context);

struct PayloadOut {
  const iovec* parts = nullptr;
  int count = 0;
  std::uint64_t bytes = 0;
};

/// The kernel cannot read pages that are closed to the host: `storage` gets parts that it can.
inline void make_readable(PayloadOut& payload, std::vector<iovec>& storage) {
  if (payload.count == 0 || !host_memory_is_closed()) return;
  storage.assign(payload.parts, payload.parts + payload.count);
  open_host_memory(storage);
  payload.parts = storage.data();
}

/// All fields but the payload's size, which the connection writes.
template <class M>
void encode_body(const M& message, wire::Writer& writer) {
  if constexpr (M::bulk_request) {
    message.encode_head(writer);
  } else {
    message.encode(writer);
  }
}

/// Writes a body while the connection is locked. Texts and arrays of the program may lie in pages that are
/// closed to the host, and opening one takes the connection: where there are such pages, they are read
/// before.
template <class M>
class Body {
 public:
  explicit Body(const M& message) : message_(message) {
    if (host_memory_is_closed()) {
      wire::Writer early(read_);
      encode_body(message, early);
    }
  }
  void write(wire::Writer& writer) const {
    if (read_.size() != 0) {
      writer.append(read_.bytes());
    } else {
      encode_body(message_, writer);
    }
  }

 private:
  const M& message_;
  wire::Buffer read_;
};

/// Keeps what this process knows about streams and events true: `message` was sent as frame `place`.
template <class M>
void note_sent(const M& message, std::uint64_t context, std::uint64_t place) {
  if constexpr (M::given_to_stream) note_work(message.stream_given(), context, place);
  if constexpr (M::hands_out_event) note_handed_out(message.event_given());
}

/// Until all that a context's device was given is complete. For what went to another node than its context's:
/// nothing that the program waits for would tell.
CUresult wait_for_strays(const Route& route);

/// Calls `send(check)` when no function of the program keeps the message from being sent, until it was sent.
/// `check()` belongs where the message is given its place.
template <class M, class Send>
auto behind_host_functions(const WorkerLink& worker, Send send) {
  if constexpr (M::holds_up) {
    for (HoldsUp held(worker);;) {
      held.wait();
      try {
        return send([&] { held.check(); });
      } catch (const HoldsUp::TooEarly&) {
      }
    }
  } else {
    return send([] {});
  }
}

template <class M, class Encode>
CUresult place_post(const Route& route, const M& message, PayloadOut payload, std::uint64_t* place,
                    const Encode& encode) {
  Runtime& r = runtime();
  WorkerLink& worker = route.worker;
  std::vector<iovec> storage;
  HandedOver handed_over;
  if constexpr (M::bulk_request && !M::own_accord) make_readable(payload, storage);
  if constexpr (M::gives_work) {
    if (host_memory_is_shared()) {
      if (const CUresult gone = hand_host_memory_over(worker, handed_over); gone != CUDA_SUCCESS) return gone;
    }
  }
  const Outgoing out{static_cast<std::uint16_t>(M::id),
                     worker.epoch.load(std::memory_order_acquire),
                     route.wire_context(),
                     payload.parts,
                     payload.count,
                     payload.bytes};
  const std::uint64_t sent = worker.connection.load(std::memory_order_acquire)->post(out, encode);
  if (sent == 0) return r.lost();
  if (place != nullptr) *place = sent;
  note_sent(message, route.context, sent);
  if constexpr (M::gives_work) r.gave_work();
  return CUDA_SUCCESS;
}

template <class M>
CUresult post_to(const Route& route, const M& message, PayloadOut payload, std::uint64_t* place,
                 int functions) {
  WorkerLink& worker = route.worker;
  if constexpr (M::gives_work && !M::holds_up) limit_work_behind_host_functions(worker);
  runtime().counters.post(static_cast<std::uint16_t>(M::id));
  return behind_host_functions<M>(worker, [&](const auto& check) {
    const Body<M> body(message);  // not before: a function of the program may write what it reads
    return place_post(route, message, payload, place, [&](wire::Writer& writer) {
      check();
      body.write(writer);
      if (functions != 0) expect_host_functions(worker, functions);
    });
  });
}

/// Sends a message that has no reply. `place`: filled with the number of its frame, unless it was not sent.
/// `functions`: so many of the program's it has the stream call.
template <class M>
CUresult post(const M& message, std::uint64_t context, PayloadOut payload = {},
              std::uint64_t* place = nullptr, int functions = 0) try {
  static_assert(!M::is_ask);
  if (in_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  Runtime& r = runtime();
  const CUresult entered = M::needs_lease ? r.enter() : r.enter_without_lease();
  if (entered != CUDA_SUCCESS) return entered;
  if (!r.several()) [[likely]]
    return post_to(Route{r.worker(), context}, message, payload, place, functions);
  std::optional<Route> route;
  if (const CUresult bad = find_route(message, context, route); bad != CUDA_SUCCESS) return bad;
  M mine = message;
  Routing<M>::put_for(mine, ForWorker(route->worker));
  const CUresult result = post_to(*route, mine, payload, place, functions);
  return result == CUDA_SUCCESS && route->strays ? wait_for_strays(*route) : result;
} catch (const std::bad_alloc&) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

template <class M, class Encode>
CUresult place_ask(const Route& route, const M& message, typename M::Reply& reply,
                   std::vector<std::byte>& bytes, PayloadOut payload, PayloadSink* sink, CUresult* own,
                   std::uint64_t* place, const Encode& encode) {
  Runtime& r = runtime();
  WorkerLink& worker = route.worker;
  const auto id = static_cast<std::uint16_t>(M::id);
  std::vector<iovec> storage;
  if constexpr (M::bulk_request) make_readable(payload, storage);
  if constexpr (M::reads_memory) {
    if (host_memory_is_shared()) {
      if (const CUresult gone = flush_host_memory(worker); gone != CUDA_SUCCESS) return gone;
    }
  }
  for (int attempt = 0;; ++attempt) {
    const CUresult entered = M::needs_lease ? r.enter() : r.enter_without_lease();
    if (entered != CUDA_SUCCESS) return attempt == 0 ? entered : earlier_or(entered, worker);
    const std::uint32_t epoch = worker.epoch.load(std::memory_order_acquire);
    const Outgoing out{id, epoch, route.wire_context(), payload.parts, payload.count, payload.bytes};
    Reply answer;
    const std::uint64_t start = monotonic_ns();
    Connection* const connection = worker.connection.load(std::memory_order_acquire);
    const bool sent = connection->ask(out, encode, answer, sink);
    r.counters.ask(id, monotonic_ns() - start);
    if (!sent || worker.connection.load(std::memory_order_acquire) != connection) return r.lost();
    if (answer.header.status != wire::Status::ok) {
      // The file may name the next lease already, or its holder waits for one: enter() knows. That one may be
      // over as well before the call arrives; enter() takes no lease twice.
      r.refused(worker, epoch);
      if (M::needs_lease || attempt == 0) continue;
      return earlier_or(CUDA_ERROR_DEVICE_UNAVAILABLE, worker);
    }
    if (place != nullptr) *place = answer.sequence;
    note_sent(message, route.context, answer.sequence);
    bytes = std::move(answer.fields);
    const auto result = worker_result(answer.header.result);
    if (own != nullptr) *own = result;
    if constexpr (M::waits && !M::own_accord) {
      if (result == CUDA_SUCCESS) note_wait(worker, answer.sequence);
      if (result == CUDA_SUCCESS && host_memory_is_shared()) take_host_memory(worker);
    }
    wire::Reader in(bytes);
    if (!bytes.empty() || result == CUDA_SUCCESS) {
      if (!M::Reply::decode(in, reply)) return r.lost(worker);
    }
    // It is no call of the program: the error of an earlier post is for the program's own next call.
    if constexpr (M::own_accord) return result;
    return earlier_or(result, worker);
  }
}

template <class M>
CUresult ask_at(const Route& route, const M& message, typename M::Reply& reply, std::vector<std::byte>& bytes,
                PayloadOut payload, PayloadSink* sink, CUresult* own, std::uint64_t* place) {
  return behind_host_functions<M>(route.worker, [&](const auto& check) {
    const Body<M> body(message);
    return place_ask(route, message, reply, bytes, payload, sink, own, place, [&](wire::Writer& writer) {
      check();
      body.write(writer);
    });
  });
}

/// Sends a message and waits for the reply. An error of an earlier post comes back here, as CUDA allows: then
/// the call itself may have succeeded all the same, which `own` tells, unchanged when the worker did not
/// execute it. `bytes` holds what spans in `reply` refer to.
template <class M>
CUresult ask(const M& message, typename M::Reply& reply, std::uint64_t context, std::vector<std::byte>& bytes,
             PayloadOut payload = {}, PayloadSink* sink = nullptr, CUresult* own = nullptr,
             std::uint64_t* place = nullptr) try {
  static_assert(M::is_ask);
  if (in_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  Runtime& r = runtime();
  // Before any lock is taken: it may take a while (attach_again.h).
  const CUresult entered = M::needs_lease ? r.enter() : r.enter_without_lease();
  if (entered != CUDA_SUCCESS) return entered;
  if (!r.several()) [[likely]] {
    return ask_at(Route{r.worker(), context}, message, reply, bytes, payload, sink, own, place);
  }
  std::optional<Route> route;
  if (const CUresult bad = find_route(message, context, route); bad != CUDA_SUCCESS) return bad;
  M mine = message;
  Routing<M>::put_for(mine, ForWorker(route->worker));
  return ask_at(*route, mine, reply, bytes, payload, sink, own, place);
} catch (const std::bad_alloc&) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

/// Ends an object that the worker knows: its index may be used again only behind the message that ends it.
template <class Table, class M>
CUresult destroy(Table& table, std::uint64_t handle, const M& message, std::uint64_t context) {
  if (!table.retire(handle)) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = post(message, context);
  if (result == CUDA_SUCCESS) table.recycle(handle);
  return result;
}

template <class M>
CUresult post(const M& message) {
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  return post(message, context);
}

template <class M>
CUresult ask(const M& message, typename M::Reply& reply, CUresult* own = nullptr) {
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  std::vector<std::byte> bytes;
  return ask(message, reply, context, bytes, {}, nullptr, own);
}

}  // namespace gpupool::client
