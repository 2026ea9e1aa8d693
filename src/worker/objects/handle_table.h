// What the client's handles mean here: (kind, generation, index) -> the driver's handle.
//
// Every value comes from the wire, so every look-up checks kind, bounds and generation; a wrong handle is an
// answer (CUDA_ERROR_INVALID_HANDLE), never a fault.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "wire/handle.h"

namespace gpupool::worker {

class HandleTable {
 public:
  /// What the per-thread stream is: a stream of the client's thread, not of the one that executes its calls.
  std::function<void*()> per_thread_stream;

  /// Fills `out` with the driver's handle. The driver's special streams (null, legacy, per thread) mean
  /// themselves. A kernel is accepted where a function is wanted, as the driver does.
  template <class T>
    requires(std::is_pointer_v<T> || std::is_same_v<T, unsigned long long>)
  [[nodiscard]] bool find(wire::Kind kind, std::uint64_t value, T& out) const {
    if (kind == wire::Kind::stream && value <= 2) {
      out =
          value == 2 && per_thread_stream ? from_bits<T>(to_bits(per_thread_stream())) : from_bits<T>(value);
      return true;
    }
    const Slot* slot = look(value);
    if (slot == nullptr) return false;
    const auto found = wire::Handle::from(value).kind;
    if (found != kind && !(kind == wire::Kind::function && found == wire::Kind::kernel) &&
        !(kind == wire::Kind::graph_node && found == wire::Kind::found_node))
      return false;
    out = from_bits<T>(slot->driver_handle);
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
    ++counts_[static_cast<std::size_t>(kind)];
    slots[handle.index] = {true, handle.generation, to_bits(driver_handle), owner_, note};
    names_[static_cast<std::size_t>(kind)][to_bits(driver_handle)] = value;
  }

  /// The client's handle for one of the driver's; 0 for one that has none.
  template <class T>
  [[nodiscard]] std::uint64_t name_of(wire::Kind kind, T driver_handle) const {
    if (kind == wire::Kind::stream && to_bits(driver_handle) <= 2) return to_bits(driver_handle);
    const auto& names = names_[static_cast<std::size_t>(kind)];
    const auto found = names.find(to_bits(driver_handle));
    return found == names.end() ? 0 : found->second;
  }
  /// The same; a handle without a name gets `offered`. Precondition: vacant(kind, offered).
  template <class T>
  std::uint64_t name_or_bind(wire::Kind kind, std::uint64_t offered, T driver_handle) {
    if (to_bits(driver_handle) == 0) return 0;
    if (const std::uint64_t known = name_of(kind, driver_handle); known != 0) return known;
    bind(kind, offered, driver_handle);
    return offered;
  }

  /// Handles whose value the driver chooses and kernels use: the client may name those that it was given.
  void adopt(wire::Kind kind, std::uint64_t value) {
    values_[static_cast<std::size_t>(kind)][value] = owner_;
  }
  [[nodiscard]] bool owns(wire::Kind kind, std::uint64_t value) const {
    return values_[static_cast<std::size_t>(kind)].contains(value);
  }
  void disown(wire::Kind kind, std::uint64_t value) { values_[static_cast<std::size_t>(kind)].erase(value); }
  template <class F>
  void each_value(wire::Kind kind, F use) const {
    for (const auto& [value, owner] : values_[static_cast<std::size_t>(kind)]) use(value);
  }

  /// Handles that are bound or adopted from now on go with this context.
  void owned_by(const void* context) { owner_ = context; }
  /// Forgets the handles of a kind that go with a context. Their objects are the driver's to end.
  void forget_owned_by(wire::Kind kind, const void* context) {
    std::erase_if(values_[static_cast<std::size_t>(kind)],
                  [&](const auto& entry) { return entry.second == context; });
    const auto& slots = tables_[static_cast<std::size_t>(kind)];
    for (std::uint32_t n = 0; n < slots.size(); ++n) {
      if (slots[n].used && slots[n].owner == context) {
        drop(kind, wire::Handle{kind, slots[n].generation, n}.value());
      }
    }
  }

  /// Whether the handle means something now. The driver's special streams always do.
  [[nodiscard]] bool alive(std::uint64_t value) const {
    return value <= 2 || look(value) != nullptr || owns(wire::Handle::from(value).kind, value);
  }
  /// How many handles of a kind there are.
  [[nodiscard]] std::size_t count(wire::Kind kind) const {
    return counts_[static_cast<std::size_t>(kind)] + values_[static_cast<std::size_t>(kind)].size();
  }

  /// What was bound with the handle; null for an unknown one.
  [[nodiscard]] void* note(std::uint64_t value) const {
    const Slot* slot = look(value);
    return slot == nullptr ? nullptr : slot->note;
  }

  void drop(wire::Kind kind, std::uint64_t value) {
    if (look(value) == nullptr || wire::Handle::from(value).kind != kind) return;
    Slot& slot = tables_[static_cast<std::size_t>(kind)][wire::Handle::from(value).index];
    auto& names = names_[static_cast<std::size_t>(kind)];
    if (const auto found = names.find(slot.driver_handle); found != names.end() && found->second == value) {
      names.erase(found);
    }
    slot = {};
    --counts_[static_cast<std::size_t>(kind)];
  }

  /// Calls `use(value, driver_handle)` for every handle of a kind.
  template <class F>
  void each(wire::Kind kind, F use) const {
    const auto& slots = tables_[static_cast<std::size_t>(kind)];
    for (std::uint32_t n = 0; n < slots.size(); ++n) {
      if (slots[n].used) {
        use(wire::Handle{kind, slots[n].generation, n}.value(),
            reinterpret_cast<void*>(slots[n].driver_handle));
      }
    }
  }

  /// The same of those that go with a context.
  template <class F>
  void each_owned_by(wire::Kind kind, const void* context, F use) const {
    each(kind, [&](std::uint64_t value, void* driver_handle) {
      if (tables_[static_cast<std::size_t>(kind)][wire::Handle::from(value).index].owner == context)
        use(value, driver_handle);
    });
  }

  void clear() {
    for (auto& slots : tables_) slots.clear();
    for (auto& names : names_) names.clear();
    for (auto& values : values_) values.clear();
    counts_ = {};
  }

 private:
  template <class T>
  static std::uint64_t to_bits(T handle) {
    if constexpr (std::is_pointer_v<T>) {
      return reinterpret_cast<std::uint64_t>(handle);
    } else {
      return handle;
    }
  }
  template <class T>
  static T from_bits(std::uint64_t value) {
    if constexpr (std::is_pointer_v<T>) {
      return reinterpret_cast<T>(value);
    } else {
      return value;
    }
  }

  struct Slot {
    bool used = false;
    std::uint16_t generation = 0;
    std::uint64_t driver_handle = 0;
    const void* owner = nullptr;
    void* note = nullptr;
  };

  [[nodiscard]] const Slot* look(std::uint64_t value) const {
    const auto handle = wire::Handle::from(value);
    const auto& slots = tables_[static_cast<std::size_t>(handle.kind)];
    if (handle.index >= slots.size()) return nullptr;
    const Slot& slot = slots[handle.index];
    return slot.used && slot.generation == handle.generation ? &slot : nullptr;
  }

  static constexpr auto kinds = static_cast<std::size_t>(wire::Kind::count);
  std::array<std::vector<Slot>, kinds> tables_;
  std::array<std::size_t, kinds> counts_{};                                    ///< used slots of tables_
  std::array<std::unordered_map<std::uint64_t, std::uint64_t>, kinds> names_;  ///< driver's handle -> ours
  std::array<std::unordered_map<std::uint64_t, const void*>, kinds> values_;   ///< value -> its context
  const void* owner_ = nullptr;
};

}  // namespace gpupool::worker
