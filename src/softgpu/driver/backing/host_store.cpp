#include "softgpu/driver/backing/host_store.h"

#include <sys/mman.h>

#include <cstring>
#include <utility>

#include "softgpu/driver/base/error.h"

namespace softgpu::driver {
namespace {

constexpr int reserved_mapping = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

void* at(std::uint64_t address) {
  return reinterpret_cast<void*>(address);
}

// The pages behind `from` get to `to`; `from` stays a mapping, so that nobody else is given its addresses.
bool move_pages(void* from, void* to, std::size_t size) {
  return mremap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) == to;
}

bool close_place(void* place, std::size_t size) {
  return mmap(place, size, PROT_NONE, reserved_mapping | MAP_FIXED, -1, 0) == place;
}

}  // namespace

HostStore::HostStore(std::size_t size) : size_(size) {
  if (size_ == 0) return;
  void* const place = mmap(nullptr, size_, PROT_NONE, reserved_mapping, -1, 0);
  if (place == MAP_FAILED) fail(CUDA_ERROR_OUT_OF_MEMORY);
  place_ = static_cast<char*>(place);
}

HostStore::HostStore(HostStore&& other) noexcept {
  *this = std::move(other);
}

HostStore& HostStore::operator=(HostStore&& other) noexcept {
  std::swap(place_, other.place_);
  std::swap(size_, other.size_);
  std::swap(used_, other.used_);
  std::swap(pieces_, other.pieces_);
  return *this;
}

HostStore::~HostStore() {
  if (place_) munmap(place_, size_);
}

void HostStore::take(std::uint64_t address, std::size_t size) {
  require(size <= size_ - used_, CUDA_ERROR_OUT_OF_MEMORY);
  char* const to = place_ + used_;
  if (!move_pages(at(address), to, size)) {
    require(mprotect(to, size, PROT_READ | PROT_WRITE) == 0, CUDA_ERROR_OUT_OF_MEMORY);
    std::memcpy(to, at(address), size);
  }
  pieces_.emplace(address, Piece{size, used_});
  used_ += size;
  require(close_place(at(address), size), CUDA_ERROR_OPERATING_SYSTEM);
}

void HostStore::give_back() {
  while (!pieces_.empty()) {
    const auto piece = pieces_.begin();
    const auto [size, offset] = piece->second;
    if (!move_pages(place_ + offset, at(piece->first), size)) {
      require(mprotect(at(piece->first), size, PROT_READ | PROT_WRITE) == 0, CUDA_ERROR_OPERATING_SYSTEM);
      std::memcpy(at(piece->first), place_ + offset, size);
    }
    pieces_.erase(piece);
  }
}

}  // namespace softgpu::driver
