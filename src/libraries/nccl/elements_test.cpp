// Averages of integers, whose number of ranks need not be a number of their type.
#include "libraries/nccl/elements.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <vector>

using namespace gpupool::nccl;

namespace {

template <class T>
T average(Type type, const std::vector<T>& of_ranks) {
  std::vector<const std::byte*> arrays;
  for (const T& one : of_ranks) arrays.push_back(reinterpret_cast<const std::byte*>(&one));
  T result{};
  reduce(type, Reduction::avg, arrays, 1, reinterpret_cast<std::byte*>(&result));
  return result;
}

/// `value` of the first rank, 0 of the others.
template <class T>
T average_of_one(Type type, T value, std::size_t ranks) {
  std::vector<T> of_ranks(ranks);
  of_ranks[0] = value;
  return average(type, of_ranks);
}

}  // namespace

TEST_CASE("an average of 8-bit integers is that of any number of ranks") {
  // As a number of 8 bits, 256 is 0, and 300 is 44, and 200 is −56.
  for (const std::size_t ranks : {256, 300, 512}) {
    CHECK(average_of_one<std::uint8_t>(Type::u8, 255, ranks) == 0);
    CHECK(average_of_one<std::int8_t>(Type::i8, 127, ranks) == 0);
    CHECK(average_of_one<std::int8_t>(Type::i8, -128, ranks) == 0);
  }
  CHECK(average_of_one<std::int8_t>(Type::i8, 127, 200) == 0);
  CHECK(average_of_one<std::uint8_t>(Type::u8, 255, 200) == 1);
}

TEST_CASE("an average of integers is cut off, towards zero") {
  CHECK(average<std::int8_t>(Type::i8, {-3, -4}) == -3);
  CHECK(average<std::uint8_t>(Type::u8, {3, 4}) == 3);
  CHECK(average<std::int32_t>(Type::i32, {-7, 0, 0}) == -2);
  CHECK(average<std::uint32_t>(Type::u32, {4'000'000'000U, 0}) == 2'000'000'000U);
  CHECK(average<std::int64_t>(Type::i64, {INT64_MIN, 0}) == INT64_MIN / 2);
  CHECK(average<std::uint64_t>(Type::u64, {UINT64_MAX, 0}) == UINT64_MAX / 2);
  CHECK(average<float>(Type::f32, {1, 2}) == 1.5F);
}
