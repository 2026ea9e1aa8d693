#include "softgpu/libraries/memory.h"

#include <algorithm>
#include <cstdio>

namespace softgpu::libraries {

void Memory::check(std::uint64_t address, std::uint64_t count, std::size_t bytes, const char* what) const {
  if (count == 0) return;
  std::uint64_t size = 0;
  if (__builtin_mul_overflow(count, bytes, &size) || !covers_(address, size)) {
    char text[160];
    std::snprintf(text, sizeof text, "%s: %llu bytes at 0x%llx are not all device memory", what,
                  static_cast<unsigned long long>(size), static_cast<unsigned long long>(address));
    throw Failure(softgpu::Fault::illegal_address, text);
  }
  // Numbers of 16 bytes are complex ones, whose parts have 8.
  const std::size_t unit = std::min<std::size_t>(bytes, 8);
  if (address % unit != 0 && (bytes & (bytes - 1)) == 0) {
    char text[120];
    std::snprintf(text, sizeof text, "%s: the address 0x%llx is no multiple of %zu", what,
                  static_cast<unsigned long long>(address), unit);
    throw Failure(softgpu::Fault::misaligned_address, text);
  }
}

void Memory::check_rows(std::uint64_t address, std::int64_t rows, std::int64_t columns, std::int64_t leading,
                        std::size_t bytes, const char* what) const {
  if (rows <= 0 || columns <= 0) return;
  std::int64_t count = 0;
  if (leading < 0 || __builtin_mul_overflow(columns - 1, leading, &count) ||
      __builtin_add_overflow(count, rows, &count)) {
    throw Failure(softgpu::Fault::illegal_address, std::string(what) + ": more than all memory");
  }
  check(address, static_cast<std::uint64_t>(count), bytes, what);
}

}  // namespace softgpu::libraries
