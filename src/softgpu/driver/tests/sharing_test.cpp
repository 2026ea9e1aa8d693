// Memory and events that several processes use: this one, and a child that runs one test case of this
// program.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "driver_fixture.h"

extern char** environ;

namespace {

constexpr std::size_t chunk_size = std::size_t{2} << 20;
constexpr unsigned shared_event_flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;

CUmemAllocationProp shareable() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

CUresult map(CUmemGenericAllocationHandle handle, CUdeviceptr& address) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUresult result = cuMemAddressReserve(&address, chunk_size, 0, 0, 0);
  if (result == CUDA_SUCCESS) result = cuMemMap(address, chunk_size, 0, handle, 0);
  return result == CUDA_SUCCESS ? cuMemSetAccess(address, chunk_size, &access, 1) : result;
}

CUresult import(int descriptor, CUmemGenericAllocationHandle& handle) {
  return cuMemImportFromShareableHandle(&handle,
                                        reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

std::string hexadecimal(const CUipcEventHandle& handle) {
  std::string text;
  for (const char byte : handle.reserved) {
    text += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4U];
    text += "0123456789abcdef"[static_cast<unsigned char>(byte) & 15U];
  }
  return text;
}

// Starts this program again for one test case, with what it needs in its environment.
pid_t start_child(const char* test, const std::vector<std::string>& more) {
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
  for (const std::string& entry : more) environment.push_back(const_cast<char*>(entry.c_str()));
  environment.push_back(nullptr);
  const std::string chosen = std::string("--test-case=") + test;
  const char* arguments[] = {"child", chosen.c_str(), "--no-skip", nullptr};
  pid_t child = 0;
  REQUIRE_EQ(posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, const_cast<char**>(arguments),
                         environment.data()),
             0);
  return child;
}

int end_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("exported memory is the same memory where it is imported, and outlives its maker's handle") {
  CurrentContext context;
  const auto properties = shareable();
  CUmemGenericAllocationHandle made = 0, imported = 0;
  REQUIRE_CUDA(cuMemCreate(&made, chunk_size, &properties, 0));
  int descriptor = -1;
  REQUIRE_CUDA(cuMemExportToShareableHandle(&descriptor, made, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  REQUIRE_CUDA(import(descriptor, imported));
  close(descriptor);
  CUdeviceptr here = 0, there = 0;
  REQUIRE_CUDA(map(made, here));
  REQUIRE_CUDA(map(imported, there));
  REQUIRE_CUDA(cuMemsetD8_v2(here, 42, chunk_size));
  REQUIRE_CUDA(cuMemUnmap(here, chunk_size));
  REQUIRE_CUDA(cuMemRelease(made));
  unsigned char seen = 0;
  REQUIRE_CUDA(cuMemcpyDtoH_v2(&seen, there + chunk_size - 1, 1));
  CHECK_EQ(seen, 42);
  CUmemAllocationProp known{};
  CHECK_CUDA(cuMemGetAllocationPropertiesFromHandle(&known, imported));
  CHECK_EQ(known.location.id, 0);
  CHECK_CUDA(cuMemUnmap(there, chunk_size));
  CHECK_CUDA(cuMemRelease(imported));
  CHECK_CUDA(cuMemAddressFree(here, chunk_size));
  CHECK_CUDA(cuMemAddressFree(there, chunk_size));
}

TEST_CASE("memory that was not made for it is not exported, and foreign descriptors are no memory") {
  CurrentContext context;
  auto properties = shareable();
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  CUmemGenericAllocationHandle made = 0, imported = 0;
  REQUIRE_CUDA(cuMemCreate(&made, chunk_size, &properties, 0));
  int descriptor = -1;
  CHECK_RESULT(cuMemExportToShareableHandle(&descriptor, made, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
               CUDA_ERROR_NOT_SUPPORTED);
  CHECK_CUDA(cuMemRelease(made));
  const int file = open("/dev/null", O_RDWR | O_CLOEXEC);
  CHECK_RESULT(import(file, imported), CUDA_ERROR_INVALID_HANDLE);
  CHECK_RESULT(import(-1, imported), CUDA_ERROR_INVALID_HANDLE);
  close(file);
}

TEST_CASE("an event for several processes is made without timing, and is not opened where it was made") {
  CurrentContext context;
  CUevent event = nullptr, opened = nullptr;
  CHECK_RESULT(cuEventCreate(&event, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
  REQUIRE_CUDA(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CUipcEventHandle handle{};
  CHECK_RESULT(cuIpcGetEventHandle(&handle, event), CUDA_ERROR_INVALID_HANDLE);
  CHECK_CUDA(cuEventDestroy_v2(event));
  REQUIRE_CUDA(cuEventCreate(&event, shared_event_flags));
  CHECK_CUDA(cuEventQuery(event));  // never recorded
  REQUIRE_CUDA(cuIpcGetEventHandle(&handle, event));
  CHECK_RESULT(cuIpcOpenEventHandle(&opened, handle), CUDA_ERROR_INVALID_CONTEXT);
  for (std::size_t n = 0; n < sizeof(handle.reserved); ++n) {
    CUipcEventHandle changed = handle;
    changed.reserved[n] = static_cast<char>(changed.reserved[n] ^ 0x55);
    CHECK_NE(static_cast<int>(cuIpcOpenEventHandle(&opened, changed)), static_cast<int>(CUDA_SUCCESS));
  }
  REQUIRE_CUDA(cuEventRecord(event, nullptr));
  CHECK_CUDA(cuEventSynchronize(event));
  CHECK_CUDA(cuEventDestroy_v2(event));
}

TEST_CASE("child: waits for the parent's event and looks at its memory" * doctest::skip()) {
  const char* const text = getenv("SHARING_TEST_EVENT");
  REQUIRE_NE(text, nullptr);
  CUipcEventHandle handle{};
  for (std::size_t n = 0; n < sizeof(handle.reserved); ++n)
    handle.reserved[n] = static_cast<char>(std::stoi(std::string(text).substr(2 * n, 2), nullptr, 16));
  CurrentContext context;
  CUevent event = nullptr;
  REQUIRE_CUDA(cuIpcOpenEventHandle(&event, handle));
  CUmemGenericAllocationHandle memory = 0;
  REQUIRE_CUDA(import(std::stoi(getenv("SHARING_TEST_MEMORY")), memory));
  CUdeviceptr address = 0;
  REQUIRE_CUDA(map(memory, address));
  CHECK_RESULT(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  CUstream stream = nullptr;
  REQUIRE_CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  REQUIRE_CUDA(cuMemsetD8Async(address + 1, 1, 1, stream));  // "I am waiting"
  REQUIRE_CUDA(cuStreamWaitEvent(stream, event, 0));
  unsigned char seen = 0;
  REQUIRE_CUDA(cuMemcpyDtoHAsync_v2(&seen, address, 1, stream));
  REQUIRE_CUDA(cuStreamSynchronize(stream));
  CHECK_EQ(seen, std::stoi(getenv("SHARING_TEST_EXPECTED")));
  CHECK_CUDA(cuEventQuery(event));
}

TEST_CASE("work in another process waits for an event, also for one whose recorder died") {
  for (const bool killed : {false, true}) {
    CurrentContext context;
    const auto properties = shareable();
    CUmemGenericAllocationHandle memory = 0;
    CUdeviceptr address = 0;
    CUevent event = nullptr;
    CUstream stream = nullptr;
    CUipcEventHandle handle{};
    int descriptor = -1;
    REQUIRE_CUDA(cuMemCreate(&memory, chunk_size, &properties, 0));
    REQUIRE_CUDA(map(memory, address));
    REQUIRE_CUDA(cuEventCreate(&event, shared_event_flags));
    REQUIRE_CUDA(cuIpcGetEventHandle(&handle, event));
    REQUIRE_CUDA(
        cuMemExportToShareableHandle(&descriptor, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    REQUIRE_EQ(fcntl(descriptor, F_SETFD, 0), 0);
    REQUIRE_CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    volatile auto* const bytes = reinterpret_cast<volatile unsigned char*>(address);
    if (!killed) {
      // The child must see 9, which comes only once it waits.
      REQUIRE_CUDA(cuLaunchHostFunc(
          stream,
          [](void* place) {
            auto* const at = static_cast<volatile unsigned char*>(place);
            while (at[1] == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            at[0] = 9;
          },
          reinterpret_cast<void*>(address)));
      REQUIRE_CUDA(cuEventRecord(event, stream));
    } else {
      // Another child records the event behind work that never ends, and is killed.
      const pid_t recorder = start_child("child: records the parent's event and never gets there",
                                         {"SHARING_TEST_EVENT=" + hexadecimal(handle)});
      while (cuEventQuery(event) == CUDA_SUCCESS) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::thread([recorder, bytes] {
        while (bytes[1] == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        kill(recorder, SIGKILL);
        int status = 0;
        waitpid(recorder, &status, 0);
      }).detach();
    }
    const pid_t waiter = start_child(
        "child: waits for the parent's event and looks at its memory",
        {"SHARING_TEST_EVENT=" + hexadecimal(handle), "SHARING_TEST_MEMORY=" + std::to_string(descriptor),
         std::string("SHARING_TEST_EXPECTED=") + (killed ? "0" : "9")});
    CHECK_EQ(end_of(waiter), 0);
    CHECK_CUDA(cuEventSynchronize(event));
    close(descriptor);
    CHECK_CUDA(cuStreamSynchronize(stream));
    CHECK_CUDA(cuMemUnmap(address, chunk_size));
    CHECK_CUDA(cuMemRelease(memory));
    CHECK_CUDA(cuMemAddressFree(address, chunk_size));
    CHECK_CUDA(cuEventDestroy_v2(event));
  }
}

TEST_CASE("child: records the parent's event and never gets there" * doctest::skip()) {
  const std::string text = getenv("SHARING_TEST_EVENT");
  CUipcEventHandle handle{};
  for (std::size_t n = 0; n < sizeof(handle.reserved); ++n)
    handle.reserved[n] = static_cast<char>(std::stoi(text.substr(2 * n, 2), nullptr, 16));
  CurrentContext context;
  CUevent event = nullptr;
  CUstream stream = nullptr;
  REQUIRE_CUDA(cuIpcOpenEventHandle(&event, handle));
  REQUIRE_CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  REQUIRE_CUDA(cuLaunchHostFunc(
      stream, [](void*) { std::this_thread::sleep_for(std::chrono::seconds(30)); }, nullptr));
  REQUIRE_CUDA(cuEventRecord(event, stream));
  REQUIRE_CUDA(cuStreamSynchronize(stream));
}
