"""The driver's API by hand, for programs that must run without any framework: memory, and two kernels."""

from __future__ import annotations

import ctypes
from typing import Any, Final

#: `endless`, by which name lists show it, runs for so long. `work` computes so many rounds in each thread; its store keeps a
#: compiler from leaving them out.
PTX: Final = b"""
.version 6.3
.target sm_75
.address_size 64
.visible .entry endless(.param .u64 nanoseconds)
{
  .reg .u64 %begin, %now, %most;
  .reg .pred %less;
  ld.param.u64 %most, [nanoseconds];
  mov.u64 %begin, %globaltimer;
endless_again:
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %begin;
  setp.lt.u64 %less, %now, %most;
  @%less bra endless_again;
  ret;
}
.visible .entry work(.param .u64 place, .param .u32 rounds)
{
  .reg .u64 %at;
  .reg .u32 %n, %most, %thread;
  .reg .f32 %x, %half, %nothing;
  .reg .pred %more, %never;
  ld.param.u64 %at, [place];
  ld.param.u32 %most, [rounds];
  mov.u32 %thread, %tid.x;
  cvt.rn.f32.u32 %x, %thread;
  mov.f32 %half, 0f3F000000;
  mov.f32 %nothing, 0f00000000;
  mov.u32 %n, 0;
work_again:
  fma.rn.f32 %x, %x, %half, %half;
  fma.rn.f32 %x, %x, %half, %half;
  fma.rn.f32 %x, %x, %half, %half;
  fma.rn.f32 %x, %x, %half, %half;
  fma.rn.f32 %x, %x, %half, %half;
  fma.rn.f32 %x, %x, %half, %half;
  fma.rn.f32 %x, %x, %half, %half;
  fma.rn.f32 %x, %x, %half, %half;
  add.u32 %n, %n, 1;
  setp.lt.u32 %more, %n, %most;
  @%more bra work_again;
  setp.lt.f32 %never, %x, %nothing;
  @%never st.global.f32 [%at], %x;
  ret;
}
"""
#: Threads of a block of `work`.
_THREADS: Final = 256


class CudaError(RuntimeError):
    """A call of the driver's API failed."""


class Cuda:
    """A context on the first device."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        context, module = ctypes.c_void_p(), ctypes.c_void_p()
        self.do("cuInit", 0)
        self.do("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.do("cuCtxSetCurrent", context)
        self.do("cuModuleLoadData", ctypes.byref(module), PTX)
        self._spin, self._work = ctypes.c_void_p(), ctypes.c_void_p()
        self.do("cuModuleGetFunction", ctypes.byref(self._spin), module, b"endless")
        self.do("cuModuleGetFunction", ctypes.byref(self._work), module, b"work")
        self._place = self.allocated(4)

    def status(self, name: str, *arguments: Any) -> int:
        """The CUresult of a call."""
        return int(getattr(self._cuda, name)(*arguments))

    def do(self, name: str, *arguments: Any) -> None:
        """Raises CudaError when the call fails."""
        if status := self.status(name, *arguments):
            raise CudaError(f"{name} returned {status}")

    def allocated(self, size: int) -> ctypes.c_uint64:
        address = ctypes.c_uint64()
        self.do("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address

    def memory(self) -> tuple[int, int]:
        """Free and total, bytes."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.do("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def byte(self, address: ctypes.c_uint64) -> int:
        """The first one there."""
        value = ctypes.c_ubyte()
        self.do("cuMemcpyDtoH_v2", ctypes.byref(value), address, ctypes.c_size_t(1))
        return value.value

    def spin(self, seconds: float) -> None:
        """Launches a kernel of one thread that runs for so long."""
        self._launch(self._spin, 1, 1, ctypes.c_uint64(int(seconds * 1e9)))

    def work(self, blocks: int, rounds: int) -> None:
        """Launches a kernel that only computes."""
        self._launch(self._work, blocks, _THREADS, self._place, ctypes.c_uint32(rounds))

    def synchronize(self) -> None:
        self.do("cuCtxSynchronize")

    def _launch(self, kernel: ctypes.c_void_p, blocks: int, threads: int, *parameters: Any) -> None:
        places = (ctypes.c_void_p * len(parameters))(*(ctypes.addressof(one) for one in parameters))
        self.do("cuLaunchKernel", kernel, blocks, 1, 1, threads, 1, 1, 0, None, places, None)
