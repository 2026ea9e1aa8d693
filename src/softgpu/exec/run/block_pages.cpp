#include "softgpu/exec/run/block_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

namespace softgpu {
namespace {

constexpr size_t page_bytes = 4096;
constexpr size_t largest_spare = 256 << 10;
constexpr size_t most_spares = 4;  // shared and local memory of two blocks

struct Pages {
  std::byte* data;
  size_t mapped;
};

struct Spares {
  ~Spares() {
    for (const Pages& pages : kept) munmap(pages.data, pages.mapped);
  }
  std::vector<Pages> kept;
};

Spares& spares() {
  static thread_local Spares own;
  return own;
}

}  // namespace

BlockPages::BlockPages(size_t wanted, size_t alignment) {
  if (wanted == 0) return;
  const size_t spare = alignment > page_bytes ? alignment : 0, bytes = wanted + spare;
  const auto skip = [&] {
    if (spare != 0) skipped_ = (alignment - reinterpret_cast<uintptr_t>(data_) % alignment) % alignment;
  };
  auto& kept = spares().kept;
  const auto fits = std::ranges::find_if(kept, [bytes](const Pages& pages) { return pages.mapped >= bytes; });
  if (fits != kept.end()) {
    data_ = fits->data;
    mapped_ = fits->mapped;
    kept.erase(fits);
    std::memset(data_, 0, bytes);
    skip();
    return;
  }
  const size_t rounded = (bytes + page_bytes - 1) / page_bytes * page_bytes;
  void* const pages =
      mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(pages);
  mapped_ = rounded;
  skip();
}

BlockPages::~BlockPages() {
  if (data_ == nullptr) return;
  auto& kept = spares().kept;
  if (mapped_ <= largest_spare) {
    if (kept.size() == most_spares) {  // the oldest makes room
      munmap(kept.front().data, kept.front().mapped);
      kept.erase(kept.begin());
    }
    kept.push_back({data_, mapped_});
  } else {
    munmap(data_, mapped_);
  }
}

}  // namespace softgpu
