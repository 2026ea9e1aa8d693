// A stride of 0 lets a tensor be as large as its sizes say, whatever memory there is. Such an operation ends
// with a fault before it takes memory, or time, by its sizes.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "libraries/operations/all.h"
#include "softgpu/libraries/execute.h"
#include "testing/memory_bound.h"

using namespace softgpu::libraries;
using namespace gpupool::operations;

namespace {

constexpr std::int64_t large = std::int64_t{1} << 15, huge = std::int64_t{1} << 20;

class Arena {
 public:
  [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(bytes_.data()); }
  [[nodiscard]] Memory memory() const {
    return Memory([this](std::uint64_t at, std::size_t count) {
      return at >= address() && count <= bytes_.size() && at - address() <= bytes_.size() - count;
    });
  }
  /// All elements lie in one place.
  [[nodiscard]] Tensor repeated(std::initializer_list<std::int64_t> sizes) const {
    Tensor made;
    made.address = address();
    made.dims = static_cast<std::uint8_t>(sizes.size());
    std::copy(sizes.begin(), sizes.end(), made.sizes);
    return made;
  }
  [[nodiscard]] Tensor single() const { return repeated({1, 1, 1, 1, 1}); }

  template <class O>
  void ends(const O& op, softgpu::Fault fault, const std::string& why) const {
    CAPTURE(O::name);
    CAPTURE(why);
    std::array<std::byte, sizeof(O)> bytes;
    std::memcpy(bytes.data(), &op, sizeof op);
    const testing::MemoryBound bound(std::size_t{64} << 20);
    const auto end = execute({O::name, bytes, 0, 1, 0}, memory());
    CHECK(end.fault == fault);
    CHECK_MESSAGE(end.detail.find(why) != std::string::npos, end.detail);
  }
  template <class O>
  void holds_too_much(const O& op) const {
    ends(op, softgpu::Fault::launch_out_of_resources, "more numbers than one part may hold");
  }
  template <class O>
  void has_too_many(const O& op) const {
    ends(op, softgpu::Fault::illegal_instruction, "more elements than memory");
  }
  template <class O>
  void writes_in_one_place(const O& op) const {
    ends(op, softgpu::Fault::illegal_instruction, "elements that are written lie in one place");
  }

 private:
  std::vector<std::byte> bytes_ = std::vector<std::byte>(1 << 12);
};

}  // namespace

TEST_CASE("a tensor whose elements lie in one place is read where a part can hold what it reads") {
  const Arena arena;
  Pooling pooling;
  pooling.x = arena.repeated({1, 1, 1, large, large});
  pooling.y = arena.single();
  arena.holds_too_much(pooling);
  pooling.backward = true;
  pooling.x = pooling.dx = arena.single();
  pooling.y = pooling.dy = arena.repeated({1, 1, 1, large, large});
  arena.holds_too_much(pooling);

  ResponseNormalization normalization;
  normalization.x = arena.repeated({1, large, 1, 1, large});
  normalization.y = normalization.x;
  arena.holds_too_much(normalization);

  Convolution of_taps;
  of_taps.input = of_taps.output = arena.single();
  of_taps.filter = arena.repeated({1, 1, 1, large, large});
  arena.holds_too_much(of_taps);
  Convolution of_channels;
  of_channels.input = arena.repeated({1, large * large, 1, 1, 1});
  of_channels.filter = of_channels.input;
  of_channels.output = arena.single();
  arena.holds_too_much(of_channels);
}

TEST_CASE("a tensor has no more elements in one place than can be read in a while") {
  const Arena arena;
  Reduction reduction;
  reduction.source = arena.repeated({huge, huge});
  reduction.target = arena.repeated({1, 1});
  arena.has_too_many(reduction);

  Convolution convolution;
  convolution.input = convolution.output = arena.single();
  convolution.filter = arena.repeated({1, 1, 1, huge, huge});
  arena.has_too_many(convolution);

  Softmax softmax;
  softmax.x = softmax.y = arena.repeated({1, huge, huge});
  arena.has_too_many(softmax);
}

TEST_CASE("memory holds all elements of a tensor that is written") {
  const Arena arena;
  const Tensor many = arena.repeated({1, large, 1, 1, large});
  Softmax softmax;
  softmax.x = softmax.y = softmax.dy = many;
  arena.writes_in_one_place(softmax);
  softmax.backward = true;
  arena.writes_in_one_place(softmax);

  Pooling pooling;
  pooling.x = arena.single();
  pooling.y = arena.repeated({1, 1, 1, 1, large});
  arena.writes_in_one_place(pooling);

  Pointwise pointwise;
  pointwise.target = many;
  arena.writes_in_one_place(pointwise);

  Reduction reduction;
  reduction.source = reduction.target = many;
  arena.writes_in_one_place(reduction);

  Dropout dropout;
  dropout.what = Dropping::forward;
  dropout.from = dropout.into = many;
  arena.writes_in_one_place(dropout);

  BatchNormalization normalization;
  normalization.x = normalization.y = normalization.parameters = many;
  arena.writes_in_one_place(normalization);

  Convolution convolution;
  convolution.input = convolution.filter = arena.single();
  convolution.output = arena.repeated({1, 1, 1, 1, large});
  arena.writes_in_one_place(convolution);

  // Elements that overlap are in one place, too.
  Pointwise overlapping;
  overlapping.target = arena.repeated({16, 16});
  overlapping.target.strides[0] = overlapping.target.strides[1] = 1;
  arena.writes_in_one_place(overlapping);
}
