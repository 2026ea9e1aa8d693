// Memory for the shared and local memory of a block: whole pages, zeroed.
#pragma once

#include <cstddef>
#include <utility>

namespace softgpu {

// Small ones stay with the thread that gives them back, for its next block: a launch is over in microseconds,
// and unmapping interrupts every other core that runs this process.
class BlockPages {
 public:
  BlockPages() = default;
  // `alignment`: a power of two. Throws std::bad_alloc.
  explicit BlockPages(size_t bytes, size_t alignment = 1);
  ~BlockPages();
  BlockPages(BlockPages&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        mapped_(std::exchange(other.mapped_, 0)),
        skipped_(std::exchange(other.skipped_, 0)) {}
  BlockPages& operator=(BlockPages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(mapped_, other.mapped_);
    std::swap(skipped_, other.skipped_);
    return *this;
  }

  [[nodiscard]] std::byte* data() const { return data_ + skipped_; }  // null for no bytes

 private:
  std::byte* data_ = nullptr;
  size_t mapped_ = 0;
  size_t skipped_ = 0;  // in front, for alignments beyond a page's
};

}  // namespace softgpu
