// What a program is told when a kernel goes wrong, beyond the error's number.
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "driver_fixture.h"

namespace {

using Clock = std::chrono::steady_clock;

// Lines of the error log since the object was made.
class NewLines {
 public:
  NewLines() { REQUIRE_CUDA(cuLogsCurrent(&from_, 0)); }
  std::string text() {
    std::string lines(25600, '\0');
    std::size_t size = lines.size();
    CUlogIterator from = from_;
    REQUIRE_CUDA(cuLogsDumpToMemory(&from, lines.data(), &size, 0));
    lines.resize(size);
    return lines;
  }

 private:
  CUlogIterator from_ = 0;
};

// Writes a word at `address` by a kernel; the log's line about it. The context is spoilt afterwards.
std::string line_of_poke(CUdeviceptr address) {
  LoadedKernel kernel(poke_ptx, "poke");
  NewLines lines;
  unsigned value = 1;
  REQUIRE_CUDA(launch(kernel.function, 1, 1, nullptr, {&address, &value}));
  CHECK_RESULT(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  return lines.text();
}

void has(const std::string& text, const char* part) {
  INFO(text);
  INFO(part);
  CHECK(text.find(part) != std::string::npos);
}

void collect(void* data, CUlogLevel, char* message, std::size_t length) {
  static_cast<std::string*>(data)->append(message, length);
}

}  // namespace

TEST_CASE("a large array's end is known to the alignment: one word behind it faults and is described") {
  CurrentContext context;
  CUdeviceptr array = 0;
  constexpr std::size_t size = (std::size_t{3} << 20) + 1024;
  REQUIRE_CUDA(cuMemAlloc_v2(&array, size));
  REQUIRE_CUDA(cuMemsetD8_v2(array, 1, size));
  const std::string line = line_of_poke(array + size);
  has(line, "an illegal memory access was encountered: illegal address, write of 4 bytes at 0x");
  has(line, "kernel poke, block (0, 0, 0), thread (0, 0, 0), PTX line 9");
  has(line, "this is 0 bytes behind the end of the 3146752 bytes at 0x");
  has(line, "from cuMemAlloc");
}

TEST_CASE("an address in freed memory is told as such") {
  CurrentContext context;
  CUdeviceptr array = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&array, std::size_t{4} << 20));
  REQUIRE_CUDA(cuMemFree_v2(array));
  has(line_of_poke(array + 16), "it is byte 16 of memory that was freed: the 4194304 bytes at 0x");
}

TEST_CASE("an address in front of an array, a null pointer, and one that is near to nothing") {
  {
    CurrentContext context;
    CUdeviceptr array = 0;
    REQUIRE_CUDA(cuMemAllocHost_v2(reinterpret_cast<void**>(&array), 8192));
    const std::string line = line_of_poke(array - 8);
    has(line, "kernel poke");
  }
  {
    CurrentContext context;
    has(line_of_poke(0), "the address is a null pointer");
  }
  {
    CurrentContext context;
    has(line_of_poke(std::uint64_t{1} << 46), "no allocation is near");
  }
}

TEST_CASE("callbacks of the log hear of a fault, and the next context computes on") {
  std::string heard;
  CUlogsCallbackHandle handle = nullptr;
  REQUIRE_CUDA(cuLogsRegisterCallback(collect, &heard, &handle));
  {
    CurrentContext context;
    line_of_poke(0);
  }
  CHECK_CUDA(cuLogsUnregisterCallback(handle));
  CHECK_RESULT(cuLogsUnregisterCallback(handle), CUDA_ERROR_INVALID_VALUE);
  has(heard, "null pointer");
  CurrentContext context;
  CUdeviceptr word = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&word, 4));
  LoadedKernel kernel(poke_ptx, "poke");
  unsigned value = 77, result = 0;
  REQUIRE_CUDA(launch(kernel.function, 1, 1, nullptr, {&word, &value}));
  REQUIRE_CUDA(cuMemcpyDtoH_v2(&result, word, 4));
  CHECK_EQ(result, 77);
}

TEST_CASE("the end of a context does not wait for a kernel that never ends") {
  NewLines lines;
  const auto begin = Clock::now();
  {
    CurrentContext context;
    CUdeviceptr flag = 0;
    REQUIRE_CUDA(cuMemAlloc_v2(&flag, 4));
    REQUIRE_CUDA(cuMemsetD32_v2(flag, 0, 1));
    LoadedKernel kernel(wait_ptx, "wait_for");
    REQUIRE_CUDA(launch(kernel.function, 1, 32, nullptr, {&flag}));
  }
  CHECK(Clock::now() - begin < std::chrono::minutes(1));
  has(lines.text(), "kernel wait_for was still running when its context ended");
}

TEST_CASE("the end of a context does not wait for a value that nobody writes, and does nothing behind it") {
  std::atomic<bool> went_on{false};
  {
    CurrentContext context;
    const CUstream stream = make_stream();
    CUdeviceptr word = 0;
    REQUIRE_CUDA(cuMemAlloc_v2(&word, 4));
    REQUIRE_CUDA(cuMemsetD32_v2(word, 0, 1));
    REQUIRE_CUDA(cuStreamWaitValue32_v2(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ));
    REQUIRE_CUDA(cuLaunchHostFunc(
        stream, [](void* flag) { *static_cast<std::atomic<bool>*>(flag) = true; }, &went_on));
  }
  CHECK(!went_on);
}

TEST_CASE("the end of a context does not wait for an event of another one that is not recorded yet") {
  CurrentContext recording;
  std::atomic<bool> may_end{false};
  const CUstream stream = make_stream();
  CUevent event = nullptr;
  REQUIRE_CUDA(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  REQUIRE_CUDA(cuLaunchHostFunc(
      stream,
      [](void* flag) {
        const auto& end = *static_cast<std::atomic<bool>*>(flag);
        while (!end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      },
      &may_end));
  REQUIRE_CUDA(cuEventRecord(event, stream));
  {
    CurrentContext waiting;
    REQUIRE_CUDA(cuStreamWaitEvent(make_stream(), event, 0));
  }
  CHECK_RESULT(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  may_end = true;
  CHECK_CUDA(cuEventSynchronize(event));
}

TEST_CASE("a copy of memory that is not there is a fault of the context, and not the end of the process") {
  for (const bool shaped : {false, true}) {
    CurrentContext context;
    CUdeviceptr array = 0;
    REQUIRE_CUDA(cuMemAlloc_v2(&array, 4096));
    NewLines lines;
    constexpr CUdeviceptr nowhere = 0x10;
    if (shaped) {
      CUDA_MEMCPY2D copy{};
      copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
      copy.srcDevice = nowhere;
      copy.dstDevice = array;
      copy.srcPitch = copy.dstPitch = 64;
      copy.WidthInBytes = 64;
      copy.Height = 2;
      CHECK_RESULT(cuMemcpy2D_v2(&copy), CUDA_ERROR_ILLEGAL_ADDRESS);
    } else {
      CHECK_RESULT(cuMemcpy(array, nowhere, 64), CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    CHECK_RESULT(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    const std::string said = lines.text(), before = "found no memory at ";
    has(said, before.c_str());
    // Any byte of the first row: a copy may begin at its end.
    const auto place = std::stoull(said.substr(said.find(before) + before.size()), nullptr, 16);
    CHECK(place >= nowhere);
    CHECK(place < nowhere + 64);
  }
  CurrentContext another;
  CUdeviceptr array = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&array, 4096));
  REQUIRE_CUDA(cuMemsetD8_v2(array, 1, 4096));
}
