#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "driver_fixture.h"

namespace {

// Whether the CPU could read there; asked of the kernel, so that a "no" is not a crash.
bool can_be_touched(CUdeviceptr address) {
  char byte = 0;
  const iovec into{&byte, 1}, from{reinterpret_cast<void*>(address), 1};
  return process_vm_readv(getpid(), &into, 1, &from, 1, 0) == 1;
}

std::string name_of(const CUuuid& uuid) {
  return {uuid.bytes, sizeof uuid.bytes};
}

CUuuid uuid_of(CUdevice device) {
  CUuuid uuid{};
  REQUIRE_CUDA(cuDeviceGetUuid_v2(&uuid, device));
  return uuid;
}

struct Mapped {
  static constexpr std::size_t size = std::size_t{4} << 20;
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;

  explicit Mapped(CUmemAllocationHandleType shared, CUdevice device = 0) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    properties.requestedHandleTypes = shared;
    REQUIRE_CUDA(cuMemCreate(&handle, size, &properties, 0));
    REQUIRE_CUDA(cuMemAddressReserve(&address, size, 0, 0, 0));
    // The halves change places: what is restored must know which part of the memory was where.
    REQUIRE_CUDA(cuMemMap(address, size / 2, size / 2, handle, 0));
    REQUIRE_CUDA(cuMemMap(address + size / 2, size / 2, 0, handle, 0));
    CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {device}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    REQUIRE_CUDA(cuMemSetAccess(address, size, &access, 1));
  }
  ~Mapped() {
    CHECK_CUDA(cuMemUnmap(address, size));
    CHECK_CUDA(cuMemAddressFree(address, size));
    CHECK_CUDA(cuMemRelease(handle));
  }
};

}  // namespace

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

TEST_CASE(
    "no address of the device can be touched while the process is checkpointed, and all bytes come back") {
  CurrentContext context;
  const int self = getpid();
  const Mapped common(CU_MEM_HANDLE_TYPE_NONE), shared(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  CUdeviceptr plain = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&plain, Mapped::size));
  CUmodule module = nullptr;
  REQUIRE_CUDA(cuModuleLoadData(&module, saxpy_ptx));
  CUdeviceptr global = 0;
  REQUIRE_CUDA(cuModuleGetGlobal_v2(&global, nullptr, module, "launches"));
  const CUDA_ARRAY_DESCRIPTOR shape{4096, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1};
  CUarray array = nullptr;
  REQUIRE_CUDA(cuArrayCreate_v2(&array, &shape));
  std::vector<unsigned char> picture(64);
  for (std::size_t i = 0; i < picture.size(); ++i) picture[i] = static_cast<unsigned char>(3 * i);
  REQUIRE_CUDA(cuMemcpyHtoA_v2(array, 64 * 7, picture.data(), picture.size()));

  std::vector<unsigned char> bytes(Mapped::size);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * 7 + i / 251);
  const CUdeviceptr all[] = {plain, common.address, shared.address};
  for (const CUdeviceptr address : all) REQUIRE_CUDA(cuMemcpyHtoD_v2(address, bytes.data(), bytes.size()));
  std::size_t free_before = 0, free_after = 0, total = 0;
  REQUIRE_CUDA(cuMemGetInfo_v2(&free_before, &total));
  CHECK_LT(free_before, total);

  for (int round = 0; round < 2; ++round) {
    REQUIRE_CUDA(cuCheckpointProcessLock(self, nullptr));
    for (const CUdeviceptr address : all) CHECK(can_be_touched(address));
    REQUIRE_CUDA(cuCheckpointProcessCheckpoint(self, nullptr));
    for (const CUdeviceptr address : all) {
      CHECK_FALSE(can_be_touched(address));
      CHECK_FALSE(can_be_touched(address + Mapped::size - 1));
    }
    CHECK_FALSE(can_be_touched(global));
    REQUIRE_CUDA(cuCheckpointProcessRestore(self, nullptr));
    REQUIRE_CUDA(cuCheckpointProcessUnlock(self, nullptr));
  }

  for (const CUdeviceptr address : all) {
    std::vector<unsigned char> back(bytes.size());
    REQUIRE_CUDA(cuMemcpyDtoH_v2(back.data(), address, back.size()));
    CHECK(back == bytes);
  }
  std::uint32_t launches = 0;
  REQUIRE_CUDA(cuMemcpyDtoH_v2(&launches, global, sizeof launches));
  CHECK_EQ(launches, 7);
  std::vector<unsigned char> seen(64);
  REQUIRE_CUDA(cuMemcpyAtoH_v2(seen.data(), array, 64 * 7, seen.size()));
  CHECK(seen == picture);
  REQUIRE_CUDA(cuMemGetInfo_v2(&free_after, &total));
  CHECK_EQ(free_after, free_before);
  CHECK_CUDA(cuArrayDestroy(array));
  CHECK_CUDA(cuModuleUnload(module));
  CHECK_CUDA(cuMemFree_v2(plain));
}

TEST_CASE("a process is restored onto another device: identity changes, ordinals and memory do not") {
  CurrentContext context;
  int count = 0;
  REQUIRE_CUDA(cuDeviceGetCount(&count));
  REQUIRE_GE(count, 2);
  const int self = getpid();
  const Mapped memory(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  REQUIRE_CUDA(cuMemsetD8_v2(memory.address, 0x5a, Mapped::size));
  const CUuuid first = uuid_of(0), second = uuid_of(1);
  CUuuid stranger = first;
  stranger.bytes[0] = 'x';

  const auto restore = [&](std::vector<CUcheckpointGpuPair> pairs) {
    CUcheckpointRestoreArgs args{};
    args.gpuPairs = pairs.data();
    args.gpuPairsCount = static_cast<unsigned>(pairs.size());
    return cuCheckpointProcessRestore(self, &args);
  };
  REQUIRE_CUDA(cuCheckpointProcessLock(self, nullptr));
  REQUIRE_CUDA(cuCheckpointProcessCheckpoint(self, nullptr));
  // A restore that cannot be done changes nothing.
  CHECK_RESULT(restore({{second, first}}), CUDA_ERROR_INVALID_VALUE);  // device 0 is not named
  CHECK_RESULT(restore({{first, stranger}}), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(restore({{first, second}, {second, second}}), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(restore({{first, second}, {first, first}}), CUDA_ERROR_INVALID_VALUE);
  REQUIRE_CUDA(restore({{first, second}, {second, first}}));
  REQUIRE_CUDA(cuCheckpointProcessUnlock(self, nullptr));

  CHECK(name_of(uuid_of(0)) == name_of(second));
  CHECK(name_of(uuid_of(1)) == name_of(first));
  char bus[16] = {};
  REQUIRE_CUDA(cuDeviceGetPCIBusId(bus, sizeof bus, 0));
  CHECK(std::string(bus) == "0000:02:00.0");
  CUdevice device = -1;
  REQUIRE_CUDA(cuDeviceGetByPCIBusId(&device, bus));
  CHECK_EQ(device, 0);
  REQUIRE_CUDA(cuCtxGetDevice(&device));
  CHECK_EQ(device, 0);
  unsigned char byte = 0;
  REQUIRE_CUDA(cuMemcpyDtoH_v2(&byte, memory.address + Mapped::size - 1, 1));
  CHECK_EQ(byte, 0x5a);

  // Back, so that other tests find what they expect; a device that holds nothing need not be named.
  REQUIRE_CUDA(cuCheckpointProcessLock(self, nullptr));
  REQUIRE_CUDA(cuCheckpointProcessCheckpoint(self, nullptr));
  REQUIRE_CUDA(restore({{second, first}}));
  REQUIRE_CUDA(cuCheckpointProcessUnlock(self, nullptr));
  CHECK(name_of(uuid_of(0)) == name_of(first));
  CHECK(name_of(uuid_of(1)) == name_of(second));
}

TEST_CASE("a lock with a time limit gives up on work that does not end, and the process runs on") {
  CurrentContext context;
  CUmodule module = nullptr;
  REQUIRE_CUDA(cuModuleLoadData(&module, wait_ptx));
  CUfunction wait = nullptr;
  REQUIRE_CUDA(cuModuleGetFunction(&wait, module, "wait_for"));
  void* flag = nullptr;
  REQUIRE_CUDA(cuMemHostAlloc(&flag, 4096, 0));
  std::memset(flag, 0, 4096);
  void* arguments[] = {&flag};
  REQUIRE_CUDA(cuLaunchKernel(wait, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  CUcheckpointLockArgs patience{};
  patience.timeoutMs = 30;
  CHECK_RESULT(cuCheckpointProcessLock(getpid(), &patience), CUDA_ERROR_NOT_READY);
  CUprocessState state;
  CHECK_CUDA(cuCheckpointProcessGetState(getpid(), &state));
  CHECK_EQ(state, CU_PROCESS_STATE_RUNNING);
  *static_cast<volatile int*>(flag) = 1;
  CHECK_CUDA(cuCtxSynchronize());
  patience.timeoutMs = 5000;
  CHECK_CUDA(cuCheckpointProcessLock(getpid(), &patience));
  CHECK_CUDA(cuCheckpointProcessUnlock(getpid(), nullptr));
  CHECK_CUDA(cuMemFreeHost(flag));
}
