#include "softgpu/driver/device/device.h"

#include "softgpu/driver/base/error.h"
#include "softgpu/driver/device/memory_pool.h"
#include "softgpu/driver/device/published_usage.h"

namespace softgpu::driver {
namespace {

// Address space is cheap: room for fragmentation, so that the budget is what limits a program.
constexpr std::size_t span_factor = 4;

}  // namespace

Device::Device(int ordinal, int card, const Settings& settings)
    : ordinal_(ordinal),
      settings_(settings),
      limits_(DeviceLimits::of(settings)),
      card_(card),
      arena_(settings.memory_bytes * span_factor),
      default_pool_(std::make_shared<MemoryPool>(*this, true)) {
  current_pool = default_pool_;
}

Device::~Device() = default;

void Device::reserve(std::size_t size) {
  std::size_t used = used_.load();
  do {
    if (size > total_memory() || used > total_memory() - size) fail(CUDA_ERROR_OUT_OF_MEMORY);
  } while (!used_.compare_exchange_weak(used, used + size));
  publish();
}

void Device::unreserve(std::size_t size) {
  used_.fetch_sub(size);
  publish();
}

void Device::park_account() {
  parked_ = used_.exchange(0);
  publish();
}

void Device::unpark_account() {
  used_ += std::exchange(parked_, 0);
  publish();
}

void Device::publish() const {
  std::size_t told = 0;
  do {
    told = used_memory();
    PublishedUsage::get().memory(card(), told);
  } while (told != used_memory());  // another thread may have told an older figure last
}

std::uint64_t Device::allocate(std::size_t size, std::size_t alignment) {
  require(size > 0);
  reserve(size);
  try {
    if (const std::uint64_t address = arena_.allocate(size, alignment)) return address;
  } catch (...) {
    unreserve(size);
    throw;
  }
  unreserve(size);
  fail(CUDA_ERROR_OUT_OF_MEMORY);
}

void Device::free(std::uint64_t address, std::size_t size) {
  if (arena_.free(address)) unreserve(size);
}

}  // namespace softgpu::driver
