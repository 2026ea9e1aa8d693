// A program may end at any moment: while its streams work, while a kernel is compiled, while another thread
// loads modules. It ends with its own exit code, soon, and leaves no process behind.
//
//   ends_while_working        runs itself, to end after different times
//   ends_while_working MS     works, and returns from main after so many milliseconds
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "softgpu/driver/base/cuda_api.h"

extern char** environ;

namespace {

constexpr int exit_code = 7;
constexpr std::chrono::seconds longest_wait(60);

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: %d\n", what, static_cast<int>(result));
  _exit(1);
}

// Adds one to every element of `p`, and goes on for `rounds` about it.
std::string text(int which) {
  return ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry work(.param .u64 p, .param .u32 "
         "rounds) {\n"
         ".reg .pred %p1; .reg .b32 %r<6>; .reg .b64 %x<3>;\n"
         "ld.param.u64 %x1, [p]; ld.param.u32 %r5, [rounds]; mov.u32 %r1, %tid.x; mad.wide.u32 %x2, %r1, 4, "
         "%x1;\n"
         "AGAIN: ld.global.u32 %r2, [%x2]; add.u32 %r2, %r2, " +
         std::to_string(which) +
         "; st.global.u32 [%x2], %r2; sub.u32 %r5, %r5, 1; setp.ne.u32 %p1, %r5, 0; @%p1 bra AGAIN; ret; }\n";
}

CUfunction load(int which) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  check(cuModuleLoadData(&module, text(which).c_str()), "cuModuleLoadData");
  check(cuModuleGetFunction(&function, module, "work"), "cuModuleGetFunction");
  return function;
}

void launch(CUfunction function, CUstream stream, CUdeviceptr memory, unsigned rounds) {
  void* parameters[] = {&memory, &rounds};
  check(cuLaunchKernel(function, 4, 1, 1, 64, 1, 1, 0, stream, parameters, nullptr), "cuLaunchKernel");
}

int work(std::chrono::milliseconds time) {
  check(cuInit(0), "cuInit");
  CUcontext context = nullptr;
  check(cuCtxCreate_v4(&context, nullptr, 0, 0), "cuCtxCreate");
  CUdeviceptr memory = 0;
  check(cuMemAlloc_v2(&memory, 4096), "cuMemAlloc");
  // Two streams: one kernel that goes on for long, and many short ones that are compiled meanwhile.
  CUstream streams[2] = {};
  for (CUstream& stream : streams) check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  launch(load(1), streams[0], memory, 2'000'000'000);
  const CUfunction many = load(2);
  for (int n = 0; n < 50; ++n) launch(many, streams[1], memory + 2048, 10);
  // A thread that loads and launches for as long as there is a process. To its end the driver knows PTX.
  std::thread([context, memory, stream = streams[1]] {
    cuCtxSetCurrent(context);
    for (int which = 3;; ++which) {
      CUmodule module = nullptr;
      CUfunction function = nullptr;
      const CUresult loaded = cuModuleLoadData(&module, text(which).c_str());
      if (loaded == CUDA_ERROR_INVALID_PTX) _exit(2);
      if (loaded != CUDA_SUCCESS || cuModuleGetFunction(&function, module, "work") != CUDA_SUCCESS) return;
      CUdeviceptr place = memory + 2048;
      unsigned rounds = 10;
      void* parameters[] = {&place, &rounds};
      for (int n = 0; n < 4; ++n) {
        if (cuLaunchKernel(function, 4, 1, 1, 64, 1, 1, 0, stream, parameters, nullptr) != CUDA_SUCCESS)
          return;
      }
    }
  }).detach();
  std::this_thread::sleep_for(time);
  return exit_code;
}

// True if the process has ended well, and what it had started is gone too.
bool ends_well(char* program, int milliseconds) {
  std::string time = std::to_string(milliseconds);
  char* const arguments[] = {program, time.data(), nullptr};
  pid_t child = -1;
  if (posix_spawn(&child, program, nullptr, nullptr, arguments, environ) != 0) return false;
  const auto end = std::chrono::steady_clock::now() + longest_wait;
  bool well = false;
  // This process is the parent of what its child has left: nothing may stay.
  for (;;) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, WNOHANG);
    if (ended < 0 && errno == ECHILD) return well;
    if (ended == child) {
      well = WIFEXITED(status) && WEXITSTATUS(status) == exit_code;
      if (!well)
        std::fprintf(stderr, "after %d ms: status %#x\n", milliseconds, static_cast<unsigned>(status));
    }
    if (std::chrono::steady_clock::now() > end) {
      std::fprintf(stderr, "after %d ms: still there after a minute\n", milliseconds);
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 2) return work(std::chrono::milliseconds(std::atoi(arguments[1])));
  setenv("GPUPOOL_SOFTGPU_JIT_CACHE", "off", 1);
  setenv("GPUPOOL_SOFTGPU_MEMORY_MIB", "256", 1);
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  for (const int milliseconds : {0, 1, 3, 10, 20, 30, 50, 80, 120, 200, 400}) {
    if (!ends_well(arguments[0], milliseconds)) return 1;
  }
  return 0;
}
