// Which instructions of a kernel its lanes have come to by a branch. Tier 1 leaves out what none has reached:
// kernels of libraries have code for each layout and type, of which a program uses a small part.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace softgpu {

class ReachedMarks {
 public:
  explicit ReachedMarks(size_t instructions) : marks_(instructions) {}
  // Called by all threads that execute the kernel; most find the mark there and leave the cache line alone.
  void add(uint32_t instruction) {
    std::atomic<bool>& mark = marks_[instruction];
    if (!mark.load(std::memory_order_relaxed)) mark.store(true, std::memory_order_relaxed);
  }
  [[nodiscard]] std::vector<bool> seen() const {
    std::vector<bool> made(marks_.size());
    for (size_t i = 0; i < marks_.size(); ++i) made[i] = marks_[i].load(std::memory_order_relaxed);
    return made;
  }

 private:
  std::vector<std::atomic<bool>> marks_;
};

}  // namespace softgpu
