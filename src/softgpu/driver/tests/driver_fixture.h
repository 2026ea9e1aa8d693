// Helpers for tests that go through the driver's C API.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "softgpu/driver/base/cuda_api.h"

#define CHECK_CUDA(call) CHECK_EQ(static_cast<int>(call), static_cast<int>(CUDA_SUCCESS))
#define REQUIRE_CUDA(call) REQUIRE_EQ(static_cast<int>(call), static_cast<int>(CUDA_SUCCESS))
#define CHECK_RESULT(call, expected) CHECK_EQ(static_cast<int>(call), static_cast<int>(expected))

// An address in the middle of nowhere, as a client that places its own memory would choose it.
// ThreadSanitizer lets programs have little of the address space, and turns other wishes into address 0.
#ifdef __SANITIZE_THREAD__
inline constexpr CUdeviceptr unmapped_address = 0x007000000000ULL;
#else
inline constexpr CUdeviceptr unmapped_address = 0x200000000000ULL;
#endif

// A context of device 0 that is current while the object lives.
class CurrentContext {
 public:
  explicit CurrentContext(CUdevice device = 0) {
    REQUIRE_CUDA(cuInit(0));
    REQUIRE_CUDA(cuCtxCreate_v4(&context_, nullptr, 0, device));
  }
  ~CurrentContext() { cuCtxDestroy_v2(context_); }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  CUcontext get() const { return context_; }

 private:
  CUcontext context_ = nullptr;
};

// out[i] = a * x[i] + y[i]
inline constexpr const char* saxpy_ptx = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 launches = 7;
.visible .entry saxpy(.param .u64 out, .param .u64 x, .param .u64 y, .param .f32 a, .param .u32 n)
{
    .reg .pred %p<2>; .reg .f32 %f<5>; .reg .b32 %r<6>; .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [x]; ld.param.u64 %rd3, [y];
    ld.param.f32 %f1, [a]; ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.s32 %p1, %r5, %r1;
    @%p1 bra DONE;
    mul.wide.s32 %rd4, %r5, 4;
    add.s64 %rd5, %rd2, %rd4; ld.global.f32 %f2, [%rd5];
    add.s64 %rd6, %rd3, %rd4; ld.global.f32 %f3, [%rd6];
    fma.rn.f32 %f4, %f1, %f2, %f3;
    add.s64 %rd7, %rd1, %rd4; st.global.f32 [%rd7], %f4;
DONE:
    ret;
}
)";

// Writes a word to any address: for faults.
inline constexpr const char* poke_ptx = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry poke(.param .u64 address, .param .u32 value)
{
    .reg .b32 %r<2>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [address]; ld.param.u32 %r1, [value];
    st.global.u32 [%rd1], %r1;
    ret;
}
)";

// Spins until the word at the address is not 0: for order and asynchrony.
inline constexpr const char* wait_ptx = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry wait_for(.param .u64 flag)
{
    .reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [flag];
AGAIN:
    ld.volatile.global.u32 %r1, [%rd1];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra AGAIN;
    ret;
}
)";

struct LoadedKernel {
  CUmodule module = nullptr;
  CUfunction function = nullptr;

  LoadedKernel(const char* ptx, const char* name) {
    REQUIRE_CUDA(cuModuleLoadData(&module, ptx));
    REQUIRE_CUDA(cuModuleGetFunction(&function, module, name));
  }
};

inline CUstream make_stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
  CUstream stream = nullptr;
  REQUIRE_CUDA(cuStreamCreate(&stream, flags));
  return stream;
}

inline CUresult launch(CUfunction function, unsigned grid, unsigned block, CUstream stream,
                       std::vector<void*> parameters) {
  return cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, stream, parameters.data(), nullptr);
}
