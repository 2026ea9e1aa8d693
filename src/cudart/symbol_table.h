// A map from host addresses to what was registered for them. Launches read it without a lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace gpupool::cudart {

/// Writers hold a lock of their own; readers never wait. Grows by publishing a larger table; the smaller ones
/// are kept, since a reader may be in one, and together they are no larger than the last.
template <class Value>
class SymbolTable {
 public:
  Value* find(const void* key) const {
    const Table* const table = current_.load(std::memory_order_acquire);
    if (table == nullptr || key == nullptr) return nullptr;
    for (std::size_t n = table->start(key);; n = (n + 1) & table->mask) {
      const void* const found = table->slots[n].key.load(std::memory_order_acquire);
      if (found == key) return table->slots[n].value.load(std::memory_order_acquire);
      if (found == nullptr) return nullptr;
    }
  }

  /// A null value takes the entry away.
  void put(const void* key, Value* value) {
    Table* table = current_.load(std::memory_order_relaxed);
    if (table == nullptr || table->used * 2 > table->mask) table = grow();
    table->put(key, value);
  }

 private:
  struct Slot {
    std::atomic<const void*> key{nullptr};
    std::atomic<Value*> value{nullptr};
  };

  struct Table {
    explicit Table(std::size_t size) : slots(new Slot[size]), mask(size - 1) {}
    std::size_t start(const void* key) const {
      const auto bits = reinterpret_cast<std::uintptr_t>(key) * 0x9e3779b97f4a7c15u;
      return static_cast<std::size_t>(bits >> 32) & mask;
    }
    void put(const void* key, Value* value) {
      std::size_t n = start(key);
      while (slots[n].key.load(std::memory_order_relaxed) != nullptr &&
             slots[n].key.load(std::memory_order_relaxed) != key)
        n = (n + 1) & mask;
      slots[n].value.store(value, std::memory_order_release);
      if (slots[n].key.load(std::memory_order_relaxed) == nullptr) {
        ++used;
        slots[n].key.store(key, std::memory_order_release);
      }
    }
    std::unique_ptr<Slot[]> slots;
    std::size_t mask, used = 0;
  };

  Table* grow() {
    const Table* const old = current_.load(std::memory_order_relaxed);
    tables_.push_back(std::make_unique<Table>(old == nullptr ? 1024 : 2 * (old->mask + 1)));
    Table* const made = tables_.back().get();
    for (std::size_t n = 0; old != nullptr && n <= old->mask; ++n) {
      Value* const value = old->slots[n].value.load(std::memory_order_relaxed);
      if (value != nullptr) made->put(old->slots[n].key.load(std::memory_order_relaxed), value);
    }
    current_.store(made, std::memory_order_release);
    return made;
  }

  std::atomic<Table*> current_{nullptr};
  std::vector<std::unique_ptr<Table>> tables_;
};

}  // namespace gpupool::cudart
