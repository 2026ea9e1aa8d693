// Which worker a message goes to where a session has several, and what it is called there.
//
// A message goes to the worker of the objects, devices or addresses that it names; where it names none, to
// that of the context it is sent in. What it names must be on one node. The table of the protocol says what a
// message names (src/protocol/routes.py).
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "client/session/runtime.h"
#include "generated/message_ids.h"
#include "generated/message_routing.h"
#include "wire/handle.h"

namespace gpupool::client {

/// The handle of a device's primary context, which never changes.
inline std::uint64_t primary_context(int device) {
  return wire::Handle{wire::Kind::context, 0, static_cast<std::uint32_t>(device)}.value();
}
/// Indices below this one are those of primary contexts.
inline constexpr std::uint32_t primary_contexts = 64;
/// The device of a context; -1 for none (objects_of_all_kinds.cpp).
int device_of_context(std::uint64_t context);

struct Route {
  Route(WorkerLink& to, std::uint64_t sent_in, bool is_stray = false)
      : worker(to), context(sent_in), strays(is_stray) {}

  WorkerLink& worker;
  std::uint64_t context;  ///< that the message is sent in, by the process's handle; 0: any
  bool strays;            ///< it goes to memory of another node than the context's

  /// As the worker knows it.
  [[nodiscard]] std::uint64_t wire_context() const {
    return worker.first_device == 0 ? context : wire_context_elsewhere();
  }

 private:
  [[nodiscard]] std::uint64_t wire_context_elsewhere() const;
};

// The worker of something that the process names; the first one where that is not known. They take locks that
// are not held while a message is sent.
WorkerLink& worker_of_device(int device);
WorkerLink& worker_of_context(std::uint64_t context);
/// Of a stream; the special ones are the current context's.
WorkerLink& worker_of_stream(std::uint64_t stream);
/// Nothing for an address that is no device memory.
std::optional<unsigned> worker_of_address(std::uint64_t address);
/// Of an object; nothing where it is on all, or not known.
std::optional<unsigned> worker_of_object(wire::Kind kind, std::uint64_t value);
inline WorkerLink& worker_of_stream(CUstream stream) {
  return worker_of_stream(reinterpret_cast<std::uint64_t>(stream));
}
/// A context on a worker: the current one if it is there, else the primary one of its first device.
std::uint64_t context_on(const WorkerLink& worker);
/// The device that an address of an arena belongs to; -1 for none (device_memory.cpp).
int device_of_address(std::uint64_t address);

/// The context that an object belongs to; 0 when it belongs to none, or is not known
/// (objects_of_all_kinds.cpp).
std::uint64_t context_of(wire::Kind kind, std::uint64_t value);
/// The worker that has a global variable of a module there: `likeliest`, if it has; nothing for an address
/// that is none (copy.cpp).
std::optional<unsigned> worker_of_global(std::uint64_t address, unsigned likeliest);

/// What a message names.
class Owners {
 public:
  void handle(wire::Kind kind, std::uint64_t value);
  void device(int ordinal);
  void address(std::uint64_t value);

  CUresult decide(MessageId message, bool goes_to_memory, std::uint64_t context, std::optional<Route>& out);

 private:
  void add(const WorkerLink& worker, std::uint64_t context);
  void add_context(std::uint64_t context);

  int worker_ = -1;
  std::uint64_t context_ = 0;
  bool mixed_ = false;
  int memory_ = -1;  ///< worker of the addresses
  std::uint64_t memory_context_ = 0;
};

/// Contexts and devices as the process numbers them become those of a worker.
class ForWorker {
 public:
  explicit ForWorker(const WorkerLink& worker) : first_(worker.first_device) {}
  void context(std::uint64_t& handle) const;
  void device(std::int32_t& ordinal) const { ordinal -= first_; }

 private:
  int first_;
};
/// And back; false for a device that the worker does not have.
bool from_worker(const WorkerLink& worker, std::int32_t& device);

/// Says that something is not done across nodes.
CUresult refuse_mixed(const char* function, const char* reason);

template <class M>
CUresult find_route(const M& message, std::uint64_t context, std::optional<Route>& out) {
  if constexpr (Routing<M>::one_worker_only) {
    return refuse_mixed(message_name(static_cast<std::uint16_t>(M::id)),
                        "a session with devices on several nodes does not offer it");
  } else {
    Owners owners;
    Routing<M>::name_owners(message, owners);
    return owners.decide(M::id, Routing<M>::goes_to_memory, context, out);
  }
}

/// Physical memory that the program made or opened: which device it is on. Kept here because the books of
/// virtual memory are locked while they say something to the worker.
void remember_physical(std::uint64_t memory, int device);
void forget_physical(std::uint64_t memory);

}  // namespace gpupool::client
