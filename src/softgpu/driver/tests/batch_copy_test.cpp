// Batches of copies, through the C API.
#include <numeric>

#include "softgpu/driver/tests/driver_fixture.h"

namespace {

constexpr CUmemcpySrcAccessOrder in_order = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;

CUdeviceptr address_of(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

CUmemcpy3DOperand pointer(CUdeviceptr address, std::size_t row = 0, std::size_t layer = 0) {
  CUmemcpy3DOperand operand{};
  operand.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  operand.op.ptr.ptr = address;
  operand.op.ptr.rowLength = row;
  operand.op.ptr.layerHeight = layer;
  return operand;
}

CUmemcpy3DOperand part_of(CUarray array, CUoffset3D offset = {}) {
  CUmemcpy3DOperand operand{};
  operand.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
  operand.op.array.array = array;
  operand.op.array.offset = offset;
  return operand;
}

struct OwnStream {
  CUstream stream = nullptr;
  OwnStream() { REQUIRE_CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)); }
  ~OwnStream() { cuStreamDestroy_v2(stream); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
};

}  // namespace

TEST_CASE("a batch copies each of its ranges, and nothing when one is wrong") {
  const CurrentContext context;
  const OwnStream own;
  CUdeviceptr memory = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&memory, 8));
  const int source[2] = {3, 4};
  int back[2] = {};
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = in_order;
  std::size_t sizes[2] = {4, 4}, start = 0, failed = 7;
  CUdeviceptr to[2] = {memory + 4, memory}, from[2] = {address_of(&source[0]), address_of(&source[1])};
  REQUIRE_CUDA(cuMemcpyBatchAsync_v2(to, from, sizes, 2, &attributes, &start, 1, own.stream));
  REQUIRE_CUDA(cuStreamSynchronize(own.stream));
  REQUIRE_CUDA(cuMemcpyDtoH_v2(back, memory, 8));
  CHECK(back[0] == 4);
  CHECK(back[1] == 3);

  REQUIRE_CUDA(cuMemsetD8_v2(memory, 0, 8));
  sizes[1] = 0;
  CHECK_RESULT(cuMemcpyBatchAsync(to, from, sizes, 2, &attributes, &start, 1, &failed, own.stream),
               CUDA_ERROR_INVALID_VALUE);
  CHECK(failed == 1);
  sizes[1] = 4;
  CHECK_RESULT(cuMemcpyBatchAsync(to, from, sizes, 2, &attributes, &start, 1, &failed, nullptr),
               CUDA_ERROR_INVALID_VALUE);
  CHECK(failed == SIZE_MAX);
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
  CHECK_RESULT(cuMemcpyBatchAsync_v2(to, from, sizes, 2, &attributes, &start, 1, own.stream),
               CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuMemcpyWithAttributesAsync(memory, from[0], 4, &attributes, own.stream),
               CUDA_ERROR_INVALID_VALUE);
  REQUIRE_CUDA(cuStreamSynchronize(own.stream));
  REQUIRE_CUDA(cuMemcpyDtoH_v2(back, memory, 8));
  CHECK(back[0] == 0);
  // In the per-thread form the null stream is one like any other.
  attributes.srcAccessOrder = in_order;
  CHECK_CUDA(cuMemcpyBatchAsync_v2_ptsz(to, from, sizes, 2, &attributes, &start, 1, nullptr));
  REQUIRE_CUDA(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  REQUIRE_CUDA(cuMemcpyDtoH_v2(back, memory, 8));
  CHECK(back[0] == 4);
}

TEST_CASE("a three-dimensional batch counts elements of arrays, and bytes between pointers") {
  const CurrentContext context;
  const OwnStream own;
  const CUDA_ARRAY3D_DESCRIPTOR shape{4, 3, 2, CU_AD_FORMAT_UNSIGNED_INT16, 2, 0};  // 4 bytes an element
  CUarray array = nullptr;
  REQUIRE_CUDA(cuArray3DCreate_v2(&array, &shape));
  std::vector<int> source(5 * 4 * 2), part(2 * 2 * 1, -1);  // rows of 5, layers of 4
  std::iota(source.begin(), source.end(), 0);
  CUdeviceptr memory = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&memory, 64));
  REQUIRE_CUDA(cuMemsetD8_v2(memory, 0, 64));

  CUDA_MEMCPY3D_BATCH_OP in{pointer(address_of(source.data()), 5, 4), part_of(array), {4, 3, 2}, in_order, 0};
  REQUIRE_CUDA(cuMemcpy3DBatchAsync_v2(1, &in, 0, own.stream));
  CUDA_MEMCPY3D_BATCH_OP out{part_of(array, {2, 1, 1}), pointer(memory), {2, 2, 1}, in_order, 0};
  REQUIRE_CUDA(cuMemcpy3DWithAttributesAsync(&out, 0, own.stream));
  CUDA_MEMCPY3D_BATCH_OP back{pointer(memory), pointer(address_of(part.data())), {16, 1, 1}, in_order, 0};
  REQUIRE_CUDA(cuMemcpy3DBatchAsync_v2(1, &back, 0, own.stream));
  REQUIRE_CUDA(cuStreamSynchronize(own.stream));
  CHECK(part == std::vector<int>{27, 28, 32, 33});

  CUDA_MEMCPY3D_BATCH_OP both[2] = {out, in};
  both[1].src.op.ptr.rowLength = 3;  // shorter than the copy
  std::size_t failed = 0;
  CHECK_RESULT(cuMemcpy3DBatchAsync(2, both, &failed, 0, own.stream), CUDA_ERROR_INVALID_VALUE);
  CHECK(failed == 1);
  both[1] = in;
  both[1].extent.depth = 0;
  CHECK_RESULT(cuMemcpy3DBatchAsync_v2(2, both, 0, own.stream), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuMemcpy3DBatchAsync_v2(1, &in, 1, own.stream), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuMemcpy3DBatchAsync_v2(1, &in, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  CHECK_CUDA(cuArrayDestroy(array));
}
