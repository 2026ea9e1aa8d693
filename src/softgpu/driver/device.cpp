#include "softgpu/driver/device.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "softgpu/driver/error.h"
#include "softgpu/driver/memory_pool.h"

namespace softgpu::driver {
namespace {

// Address space is cheap: room for fragmentation, so that the budget is what limits a program.
constexpr std::size_t kSpanFactor = 4;

}  // namespace

DeviceLimits DeviceLimits::of(const Settings& settings) {
  DeviceLimits limits{};
  // At least 8: cooperative grids and persistent kernels are sized by it, and blocks cost little here.
  limits.multiprocessors = std::max(8, static_cast<int>(settings.threads));
  limits.threads_per_block = 1024;
  limits.registers_per_block = 65536;
  limits.registers_per_multiprocessor = 65536;
  limits.shared_per_block = 48 << 10;
  limits.reserved_shared_per_block = settings.capability_major >= 8 ? 1024 : 0;
  const int capability = settings.capability();
  const auto set = [&](int threads, int blocks, int shared_kib, int optin_kib) {
    limits.threads_per_multiprocessor = threads;
    limits.blocks_per_multiprocessor = blocks;
    limits.shared_per_multiprocessor = shared_kib << 10;
    limits.shared_per_block_optin = optin_kib << 10;
  };
  if (capability >= 120) {
    set(1536, 24, 100, 99);
  } else if (capability >= 90) {
    set(2048, 32, 228, 227);
  } else if (capability == 80) {
    set(2048, 32, 164, 163);
  } else if (capability == 89) {
    set(1536, 24, 100, 99);
  } else if (capability >= 80) {
    set(1536, 16, 100, 99);
  } else if (capability == 75) {
    set(1024, 16, 64, 64);
  } else {
    set(2048, 32, 96, 96);
  }
  return limits;
}

Device::Device(int ordinal, const Settings& settings)
    : ordinal_(ordinal),
      settings_(settings),
      limits_(DeviceLimits::of(settings)),
      card_(ordinal),
      arena_(settings.memory_bytes * kSpanFactor),
      default_pool_(std::make_shared<MemoryPool>(*this, true)) {
  current_pool = default_pool_;
}

Device::~Device() = default;

CUuuid Device::uuid_of_card(int card) {
  // RFC 4122 version 8 (custom): a fixed name of the product, and the card's number. Stable across processes
  // and hosts.
  unsigned char bytes[16] = {0x67, 0x70, 0x75, 0x70, 0x6f, 0x6f, 0x80, 0x6c, 0x80};
  std::memcpy(bytes + 9, kIdentity.uuid_name, sizeof kIdentity.uuid_name);
  bytes[15] = static_cast<unsigned char>(card);
  CUuuid uuid{};
  std::memcpy(uuid.bytes, bytes, sizeof bytes);
  return uuid;
}

std::string Device::pci_bus_id() const {
  char text[16];
  std::snprintf(text, sizeof text, "0000:%02X:00.0", static_cast<unsigned>(pci_bus()) & 0xffU);
  return text;
}

void Device::reserve(std::size_t size) {
  std::size_t used = used_.load();
  do {
    if (size > total_memory() || used > total_memory() - size) fail(CUDA_ERROR_OUT_OF_MEMORY);
  } while (!used_.compare_exchange_weak(used, used + size));
}

void Device::unreserve(std::size_t size) {
  used_.fetch_sub(size);
}

std::uint64_t Device::allocate(std::size_t size, std::size_t alignment) {
  require(size > 0);
  reserve(size);
  const std::uint64_t address = arena_.allocate(size, alignment);
  if (!address) {
    unreserve(size);
    fail(CUDA_ERROR_OUT_OF_MEMORY);
  }
  return address;
}

void Device::free(std::uint64_t address, std::size_t size) {
  if (arena_.free(address)) unreserve(size);
}

}  // namespace softgpu::driver
