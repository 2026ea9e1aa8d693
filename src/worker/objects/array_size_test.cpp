#include "worker/objects/array_size.h"

#include <doctest/doctest.h>

using gpupool::worker::array_bytes;

namespace {

CUDA_ARRAY3D_DESCRIPTOR floats(std::size_t width, std::size_t height, std::size_t depth, unsigned flags = 0) {
  return {width, height, depth, CU_AD_FORMAT_FLOAT, 1, flags};
}
constexpr std::uint64_t granule = 64 << 10;

}  // namespace

TEST_CASE("an array counts its elements, with rows padded, in granules of 64 KiB") {
  CHECK(array_bytes(floats(1024, 1024, 0), 1) == 4u << 20);
  CHECK(array_bytes(floats(1, 0, 0), 1) == granule);
  CHECK(array_bytes(floats(1, 4096, 0), 1) == 2 * granule);  // rows of 32 bytes, not of 4
  CHECK(array_bytes({1024, 64, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0}, 1) == 4 * granule);
}

TEST_CASE("mipmap levels shrink in every direction, layers do not") {
  CHECK(array_bytes(floats(1024, 1024, 0), 2) == (4u << 20) + (1u << 20));
  CHECK(array_bytes(floats(256, 256, 2), 2) == (512u << 10) + granule);
  CHECK(array_bytes(floats(256, 256, 2, CUDA_ARRAY3D_LAYERED), 2) == (512u << 10) + 2 * granule);
}

TEST_CASE("what cannot exist counts as nothing and is refused by it") {
  CHECK(array_bytes(floats(0, 4, 0), 1) == 0);
  CHECK(array_bytes(floats(~std::size_t{0}, 4, 0), 1) == 0);
  CHECK(array_bytes(floats(1u << 20, 1u << 20, 1u << 20), 1) == 0);
  CHECK(array_bytes({4, 4, 0, CU_AD_FORMAT_FLOAT, 5, 0}, 1) == 0);
  CHECK(array_bytes(floats(4, 4, 0), 33) == 0);
}
