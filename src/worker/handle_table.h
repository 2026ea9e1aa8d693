// What the client's handles mean here: (kind, generation, index) -> the driver's handle.
//
// Every value comes from the wire, so every look-up checks kind, bounds and generation; a wrong handle is an
// answer (CUDA_ERROR_INVALID_HANDLE), never a fault.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "wire/handle.h"

namespace gpupool::worker {

class HandleTable {
 public:
  /// Fills `out` with the driver's handle. The driver's special streams (null, legacy, per thread) mean
  /// themselves. A kernel is accepted where a function is wanted, as the driver does.
  template <class T>
    requires(std::is_pointer_v<T>)
  [[nodiscard]] bool find(wire::Kind kind, std::uint64_t value, T& out) const {
    if (kind == wire::Kind::stream && value <= 2) {
      out = reinterpret_cast<T>(value);
      return true;
    }
    const Slot* slot = look(value);
    if (slot == nullptr) return false;
    const auto found = wire::Handle::from(value).kind;
    if (found != kind && !(kind == wire::Kind::function && found == wire::Kind::kernel)) return false;
    out = reinterpret_cast<T>(slot->driver_handle);
    return true;
  }

  /// Whether the client may mint `value` now: right kind, index in bounds, slot unused.
  [[nodiscard]] bool vacant(wire::Kind kind, std::uint64_t value) const {
    const auto handle = wire::Handle::from(value);
    if (handle.kind != kind || handle.index >= wire::max_handles) return false;
    const auto& slots = tables_[static_cast<std::size_t>(kind)];
    return handle.index >= slots.size() || !slots[handle.index].used;
  }

  /// Precondition: vacant(kind, value). `note` is the caller's own pointer, see note().
  template <class T>
  void bind(wire::Kind kind, std::uint64_t value, T driver_handle, void* note = nullptr) {
    const auto handle = wire::Handle::from(value);
    auto& slots = tables_[static_cast<std::size_t>(kind)];
    if (handle.index >= slots.size()) slots.resize(handle.index + 1);
    slots[handle.index] = {true, handle.generation, reinterpret_cast<void*>(driver_handle), note};
  }

  /// What was bound with the handle; null for an unknown one.
  [[nodiscard]] void* note(std::uint64_t value) const {
    const Slot* slot = look(value);
    return slot == nullptr ? nullptr : slot->note;
  }

  void drop(wire::Kind kind, std::uint64_t value) {
    if (look(value) == nullptr || wire::Handle::from(value).kind != kind) return;
    tables_[static_cast<std::size_t>(kind)][wire::Handle::from(value).index] = {};
  }

  /// Calls `use(value, driver_handle)` for every handle of a kind.
  template <class F>
  void each(wire::Kind kind, F use) const {
    const auto& slots = tables_[static_cast<std::size_t>(kind)];
    for (std::uint32_t n = 0; n < slots.size(); ++n) {
      if (slots[n].used) use(wire::Handle{kind, slots[n].generation, n}.value(), slots[n].driver_handle);
    }
  }

  void clear() {
    for (auto& slots : tables_) slots.clear();
  }

 private:
  struct Slot {
    bool used = false;
    std::uint16_t generation = 0;
    void* driver_handle = nullptr;
    void* note = nullptr;
  };

  [[nodiscard]] const Slot* look(std::uint64_t value) const {
    const auto handle = wire::Handle::from(value);
    const auto& slots = tables_[static_cast<std::size_t>(handle.kind)];
    if (handle.index >= slots.size()) return nullptr;
    const Slot& slot = slots[handle.index];
    return slot.used && slot.generation == handle.generation ? &slot : nullptr;
  }

  std::array<std::vector<Slot>, static_cast<std::size_t>(wire::Kind::count)> tables_;
};

}  // namespace gpupool::worker
