#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "driver_fixture.h"

TEST_CASE("device memory survives a checkpoint at its address, and calls wait meanwhile") {
  CurrentContext context;
  const int self = getpid();
  constexpr std::size_t size = std::size_t{5} << 20;
  CUdeviceptr large = 0, small = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&large, size));
  REQUIRE_CUDA(cuMemAlloc_v2(&small, 100));
  REQUIRE_CUDA(cuMemsetD8_v2(large, 0, size));
  REQUIRE_CUDA(cuMemsetD8_v2(large + size / 2, 42, 5000));
  REQUIRE_CUDA(cuMemsetD8_v2(small, 17, 100));

  CUprocessState state;
  CHECK_RESULT(cuCheckpointProcessCheckpoint(self, nullptr), CUDA_ERROR_ILLEGAL_STATE);
  REQUIRE_CUDA(cuCheckpointProcessLock(self, nullptr));
  REQUIRE_CUDA(cuCheckpointProcessCheckpoint(self, nullptr));
  CHECK_CUDA(cuCheckpointProcessGetState(self, &state));
  CHECK_EQ(state, CU_PROCESS_STATE_CHECKPOINTED);
  CHECK_RESULT(cuCheckpointProcessUnlock(self, nullptr), CUDA_ERROR_ILLEGAL_STATE);

  std::atomic<bool> answered{false};
  std::thread caller([&] {
    int count = 0;
    CHECK_CUDA(cuDeviceGetCount(&count));
    answered = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK_FALSE(answered);

  REQUIRE_CUDA(cuCheckpointProcessRestore(self, nullptr));
  CHECK_FALSE(answered);
  REQUIRE_CUDA(cuCheckpointProcessUnlock(self, nullptr));
  caller.join();
  CHECK(answered);

  std::vector<unsigned char> bytes(size);
  REQUIRE_CUDA(cuMemcpyDtoH_v2(bytes.data(), large, size));
  for (std::size_t i = 0; i < size; ++i) {
    REQUIRE_EQ(bytes[i], i >= size / 2 && i < size / 2 + 5000 ? 42 : 0);
  }
  REQUIRE_CUDA(cuMemcpyDtoH_v2(bytes.data(), small, 100));
  for (std::size_t i = 0; i < 100; ++i) REQUIRE_EQ(bytes[i], 17);
  CHECK_RESULT(cuCheckpointProcessLock(1, nullptr), CUDA_ERROR_NOT_SUPPORTED);
}
