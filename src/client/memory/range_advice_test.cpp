#include "client/memory/range_advice.h"

#include <doctest/doctest.h>

using namespace gpupool::client;

TEST_CASE("advice on a part is known of that part, and of the whole only where all parts agree") {
  RangeAdvice advice;
  advice.change(4096, 8192, [](Advice& part) { part.read_mostly = true; });
  CHECK(advice.combined(4096, 8192).read_mostly);
  CHECK(advice.combined(5000, 5001).read_mostly);
  CHECK_FALSE(advice.combined(0, 8192).read_mostly);
  CHECK_FALSE(advice.combined(8192, 9000).read_mostly);
  advice.change(0, 4096, [](Advice& part) { part.read_mostly = true; });
  CHECK(advice.combined(0, 8192).read_mostly);
}

TEST_CASE("places and accessing devices are combined the same way") {
  RangeAdvice advice;
  advice.change(0, 100, [](Advice& part) { part.accessed_by = {0, 1}; });
  advice.change(50, 200, [](Advice& part) {
    part.accessed_by.insert(1);
    part.preferred = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  });
  CHECK(advice.combined(0, 200).accessed_by == std::set<int>{1});
  CHECK(advice.combined(0, 200).preferred == Place{});
  CHECK(advice.combined(60, 200).preferred == Place{CU_MEM_LOCATION_TYPE_DEVICE, 1});
}
