// Objects of which the client knows no more than that they exist: arrays, texture references, green contexts,
// ...
//
// What the generated stubs need to mint, check and end their handles.
#pragma once

#include <cuda.h>

#include <cstring>
#include <span>

#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/process/session_belongings.h"
#include "wire/elements.h"

namespace gpupool::client {

struct PlainObject {
  std::uint64_t context = 0;
};

/// One per kind and process, never destroyed.
template <wire::Kind kind>
HandleTable<PlainObject, kind>& plain_table() {
  static auto& table =
      kept_for_session<HandleTable<PlainObject, kind>>([](auto& kept) { kept.forget_all(); });
  return table;
}

/// Whether a handle of one of the plain kinds is alive.
bool known_plain(wire::Kind kind, std::uint64_t value);

/// A handle for an object that a message is about to make; given back unless it is kept.
template <wire::Kind kind>
class Minted {
 public:
  Minted() {
    PlainObject* object = nullptr;
    value_ = plain_table<kind>().mint(object);
    if (object != nullptr) object->context = current_context();
  }
  ~Minted() {
    if (value_ != 0 && !kept_) plain_table<kind>().drop(value_);
  }
  Minted(const Minted&) = delete;
  Minted& operator=(const Minted&) = delete;

  /// 0 when there are too many handles of the kind.
  [[nodiscard]] std::uint64_t value() const { return value_; }
  std::uint64_t keep() {
    kept_ = true;
    return value_;
  }
  /// The worker's answer to an offered handle: this one, or an older one for the same object.
  std::uint64_t keep_if(std::uint64_t answered) {
    kept_ = answered == value_;
    return answered;
  }

 private:
  std::uint64_t value_ = 0;
  bool kept_ = false;
};

/// Ends an object of a plain kind, with a post or an ask that has no answer but its result.
template <wire::Kind kind, class M>
CUresult end_object(std::uint64_t handle, const M& message) {
  auto& table = plain_table<kind>();
  const PlainObject* const object = table.find(handle);
  if (object == nullptr) return bad_handle(kind);
  const std::uint64_t context = object->context;
  if constexpr (M::is_ask) {
    if (!table.retire(handle)) return bad_handle(kind);
    typename M::Reply reply;
    std::vector<std::byte> bytes;
    CUresult own = CUDA_ERROR_DEVICE_UNAVAILABLE;
    const CUresult result = ask(message, reply, context, bytes, {}, nullptr, &own);
    if (own != CUDA_ERROR_DEVICE_UNAVAILABLE) table.recycle(handle);
    return result;
  } else {
    return destroy(table, handle, message, context);
  }
}

/// Ends an object whose handle is the driver's own value.
template <class M>
CUresult end_value(const M& message) {
  if constexpr (M::is_ask) {
    typename M::Reply reply;
    return ask(message, reply);
  } else {
    return post(message);
  }
}

/// Ends the arrays that were made in a context.
void end_arrays_of(std::uint64_t context);

/// Whether an array parameter can be sent: there, or without elements, and not too long.
template <class T>
bool fits(const T* elements, std::size_t count) {
  return (elements != nullptr || count == 0) && wire::array_fits<T>(count);
}
template <class T>
std::span<const std::byte> elements(const T* first, std::size_t count) {
  return first == nullptr ? std::span<const std::byte>() : std::as_bytes(std::span(first, count));
}
template <class T>
bool holds(const T*, std::size_t count, std::span<const std::byte> answered) {
  return answered.size() == count * sizeof(T);
}
/// Precondition: holds(to, count, answered).
template <class T>
void store_elements(T* to, std::size_t count, std::span<const std::byte> answered) {
  if (count != 0) std::memcpy(to, answered.data(), answered.size());
}
template <class H>
bool all_known(wire::Kind kind, const H* handles, std::size_t count) {
  for (std::size_t n = 0; n < count; ++n) {
    if (!known(kind, handles[n])) return false;
  }
  return true;
}

}  // namespace gpupool::client
