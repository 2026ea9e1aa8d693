// What the software GPU does with an operation of a math library: a program may launch one with any bytes. It
// computes inside the device's memory, or ends with a fault.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "fuzz/operation_bytes.h"
#include "libraries/operations/all.h"
#include "softgpu/libraries/execute.h"

using namespace gpupool;
using namespace softgpu::libraries;

namespace {

/// Parts beyond do the same elsewhere.
constexpr std::uint64_t most_parts = 64;

/// Everything that the device has.
std::byte* device() {
  static std::vector<std::byte> bytes(fuzz::operation_memory);
  return bytes.data();
}

template <class O>
void execute_one(std::uint8_t part, std::span<const std::uint8_t> input) {
  std::vector<std::byte> bytes(sizeof(O));
  std::memcpy(bytes.data(), input.data(), std::min(bytes.size(), input.size()));
  const auto begin = reinterpret_cast<std::uintptr_t>(device());
  for (std::size_t at = 0; at + sizeof(std::uint64_t) <= bytes.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    if ((word & fuzz::mark_bits) != fuzz::address_mark) continue;
    word = begin + word % fuzz::operation_memory;
    std::memcpy(bytes.data() + at, &word, sizeof word);
  }
  const Memory memory([begin](std::uint64_t at, std::size_t count) {
    return at >= begin && count <= fuzz::operation_memory && at - begin <= fuzz::operation_memory - count;
  });
  const auto end = execute({O::name, bytes, 0, 1, part % most_parts}, memory);
  if ((end.fault == softgpu::Fault::none) != end.detail.empty()) std::abort();
}

template <class... O>
void execute_any(operations::All<O...>, std::uint8_t number, std::uint8_t part,
                 std::span<const std::uint8_t> input) {
  using Execute = void (*)(std::uint8_t, std::span<const std::uint8_t>);
  constexpr Execute all[] = {&execute_one<O>...};
  all[number % sizeof...(O)](part, input);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  execute_any(operations::all_operations, data[0], data[1], {data + 2, size - 2});
  return 0;
}
