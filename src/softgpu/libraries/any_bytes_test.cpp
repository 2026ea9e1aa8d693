// Whatever bytes a program launches an operation with, it computes inside its memory or ends with a fault.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "libraries/operations/all.h"
#include "softgpu/libraries/execute.h"

using namespace softgpu::libraries;

namespace {

/// Device memory: one buffer; what lies before and behind it is not the device's.
class Device {
 public:
  Device() : bytes_(size) {}
  [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(bytes_.data()); }
  /// Of one launch: what it has prepared is not for another.
  [[nodiscard]] Memory memory() const {
    return Memory([this](std::uint64_t at, std::size_t count) {
      return at >= address() && count <= size && at - address() <= size - count;
    });
  }
  static constexpr std::size_t size = 1 << 16;

 private:
  std::vector<std::byte> bytes_;
};

/// Bytes among which small numbers, addresses in the device's memory and nonsense stand at places of each
/// size.
std::vector<std::byte> made(std::mt19937& random, std::size_t size, const Device& device) {
  std::vector<std::byte> bytes(size);
  for (std::size_t at = 0; at < size; at += 8) {
    std::uint64_t word = 0;
    switch (random() % 6) {
      case 0:
        word = random() % 40;
        break;
      case 1:
        word = device.address() + random() % (Device::size / 8) * 8;
        break;
      case 2:
        word = static_cast<std::uint64_t>(random()) << 32 | random();
        break;
      case 3:  // several small fields
        for (int n = 0; n < 8; ++n) word = word << 8 | random() % 16;
        break;
      case 4:
        word = static_cast<std::uint64_t>(-static_cast<std::int64_t>(random() % 8));
        break;
      default:
        break;
    }
    std::memcpy(bytes.data() + at, &word, std::min<std::size_t>(8, size - at));
  }
  return bytes;
}

template <class O>
void try_any_bytes() {
  CAPTURE(std::string(O::name));
  std::mt19937 random(17);
  Device device;
  int computed = 0;
  for (int n = 0; n < 4000; ++n) {
    const auto bytes = made(random, sizeof(O), device);
    const auto end = execute({O::name, bytes, 0, 1, random() % 3}, device.memory());
    computed += end.fault == softgpu::Fault::none ? 1 : 0;
    CHECK((end.fault == softgpu::Fault::none) == end.detail.empty());
  }
  MESSAGE(std::string(O::name) << ": " << computed << " of 4000 were computed");
}

template <class... O>
void try_all(gpupool::operations::All<O...>) {
  (try_any_bytes<O>(), ...);
}

}  // namespace

TEST_CASE("numbers lie at multiples of their size, complex ones of 16 bytes at those of their parts") {
  const Memory memory([](std::uint64_t, std::size_t) { return true; });
  for (const std::size_t bytes : {2, 4, 8, 16}) {
    const std::size_t unit = bytes == 16 ? 8 : bytes;
    CHECK_NOTHROW(memory.check(4096 + unit, 1, bytes, "A"));
    CHECK_THROWS_AS(memory.check(4096 + unit / 2, 1, bytes, "A"), Failure);
    CHECK_NOTHROW(memory.check(4096 + unit / 2, 0, bytes, "A"));  // nothing is read there
  }
}

TEST_CASE("an operation of any bytes stays inside the device's memory") {
  try_all(gpupool::operations::all_operations);
}

TEST_CASE("a product with some words of any value stays inside the device's memory") {
  std::mt19937 random(23);
  Device device;
  gpupool::operations::Gemm product;
  product.m = product.n = product.k = 8;
  product.batch = 2;
  for (auto* const matrix : {&product.a, &product.b, &product.c, &product.d}) {
    matrix->address = device.address() + 1024;
    matrix->leading = 8;
    matrix->stride = 64;
  }
  int computed = 0;
  for (int n = 0; n < 20'000; ++n) {
    std::vector<std::byte> bytes(sizeof product);
    std::memcpy(bytes.data(), &product, sizeof product);
    const auto other = made(random, sizeof product, device);
    for (unsigned change = random() % 4; change > 0; --change) {
      const std::size_t at = random() % (sizeof product / 8) * 8;
      std::memcpy(bytes.data() + at, other.data() + at, 8);
    }
    const auto end = execute({gpupool::operations::Gemm::name, bytes, 0, 1, random() % 2}, device.memory());
    computed += end.fault == softgpu::Fault::none ? 1 : 0;
  }
  CHECK(computed > 5000);
}

TEST_CASE("only a square matrix has numbers where it is mirrored") {
  using gpupool::operations::Structure;
  Device device;
  gpupool::operations::Product product;
  product.m = product.n = 1;
  product.k = 128;
  product.batch = 1;
  for (auto* const matrix : {&product.a, &product.b, &product.c}) {
    matrix->address = device.address();
    matrix->type = gpupool::operations::Element::f64;
    matrix->row = 1;
    matrix->column = 1;
    matrix->below = matrix->above = gpupool::operations::all_diagonals;
  }
  product.sum = product.alpha.type = product.beta.type = gpupool::operations::Element::f64;
  product.alpha.value.words[0] = std::bit_cast<std::uint64_t>(1.0);  // with zero, no factor is read
  const auto fault = [&] {
    std::vector<std::byte> bytes(sizeof product);
    std::memcpy(bytes.data(), &product, sizeof product);
    return execute({gpupool::operations::Product::name, bytes, 0, 1, 0}, device.memory()).fault;
  };
  CHECK(fault() == softgpu::Fault::none);
  // One number is stored, and the others would be read a gigabyte further on.
  product.a.above = 0;
  product.a.row = 1 << 27;
  product.a.structure = Structure::symmetric;
  CHECK(fault() != softgpu::Fault::none);
}

TEST_CASE("a product's beta lies in the host or on the device") {
  gpupool::operations::Gemm product;
  product.m = product.n = product.k = product.batch = 1;
  product.alpha_per_row = true;
  CHECK(product.sound());
  product.scalars_on_device = true;
  CHECK(!product.sound());
}

TEST_CASE("the factor of each element is one of those that lie in memory") {
  using gpupool::operations::ScaleLayout;
  using gpupool::operations::Scaling;
  for (const Scaling how : {Scaling::tensor, Scaling::vec16, Scaling::vec32, Scaling::outer, Scaling::vec128,
                            Scaling::block128}) {
    for (const std::int64_t outers : {1, 16, 128, 144}) {
      for (const std::int64_t terms : {1, 128, 544, 640}) {
        const ScaleLayout layout{how, outers, terms};
        const auto count = static_cast<std::int64_t>(layout.count());
        std::int64_t least = count, most = -1;
        for (std::int64_t outer = 0; outer < outers; ++outer) {
          for (std::int64_t term = 0; term < terms; ++term) {
            least = std::min(least, layout.at(outer, term));
            most = std::max(most, layout.at(outer, term));
          }
        }
        CHECK(least == 0);
        CHECK(most < count);
      }
    }
  }
}

TEST_CASE("no operand is so large that its factors cannot be counted") {
  using gpupool::operations::max_size;
  using gpupool::operations::ScaleLayout;
  using gpupool::operations::Scaling;
  CHECK(ScaleLayout{Scaling::vec128, max_size, max_size}.count() == std::uint64_t{1} << 62);
  CHECK(ScaleLayout{Scaling::vec32, max_size, max_size}.count() == std::uint64_t{1} << 62);
}

TEST_CASE("an operation of another version of the libraries is refused") {
  const std::vector<std::byte> bytes(sizeof(gpupool::operations::Gemm) - 8);
  Device device;
  const auto end = execute({gpupool::operations::Gemm::name, bytes, 0, 1, 0}, device.memory());
  CHECK(end.fault == softgpu::Fault::illegal_instruction);
}

TEST_CASE("a kernel that is called otherwise is no operation") {
  Device device;
  CHECK(execute({"cublas_nothing", {}, 0, 1, 0}, device.memory()).fault ==
        softgpu::Fault::illegal_instruction);
}
