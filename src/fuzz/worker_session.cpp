// The worker's decoder and its handlers, against the stand-in driver, which aborts on a handle that it did
// not give out.
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "fuzz/frame_script.h"
#include "fuzz/memory_stream.h"
#include "fuzz/worker_frames.h"
#include "worker/process/session_host.h"

using namespace gpupool;

namespace {

/// One session for all inputs: a client with another process id makes it start from nothing.
struct Worker {
  Worker() {
    std::string pattern = (std::filesystem::temp_directory_path() / "gpupool-fuzz-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    state.image_cache = pattern;
    state.image_cache_mib = 1;
    state.devices.push_back({0, "01010101010101010101010101010101", 500, 64});
    state.memory.emplace_back(64u << 20);
    const auto now = worker::boottime_ns();
    if (state.gate.grant(fuzz::epoch, now + 3'600'000'000'000'000, now) != worker::LeaseAnswer::ok)
      std::abort();
    session = worker::SessionHost::open(GPUPOOL_TEST_DRIVER, state);
    void* const driver = dlopen(GPUPOOL_TEST_DRIVER, RTLD_NOW | RTLD_NOLOAD);
    pinned = driver == nullptr ? nullptr : static_cast<bool*>(dlsym(driver, "test_driver_uses_pinned"));
    if (pinned == nullptr) std::abort();
  }
  worker::WorkerState state;
  std::unique_ptr<worker::SessionHost> session;
  bool* pinned = nullptr;  // whether the driver has pinned memory
  std::uint64_t pid = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Worker& only = *new Worker;  // the driver ends before it would
  static const struct Removal {
    ~Removal() { std::filesystem::remove_all(only.state.image_cache); }
  } removal;
  const auto script = std::as_bytes(std::span(data, size));
  const auto stream = fuzz::frames_of(script, fuzz::WorkerFrames{}, std::byte{'.'});
  fuzz::MemoryStream client(stream);
  *only.pinned = size % 16 != 0;  // without it the worker clears megabytes for each session
  only.session->serve(client, fuzz::hello_of(++only.pid));
  if (only.state.memory[0].used() > only.state.memory[0].limit()) std::abort();
  return 0;
}
