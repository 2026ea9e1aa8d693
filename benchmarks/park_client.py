"""The client of ``gpupool bench park``: a process whose CUDA calls go to a worker, and that does what it is told.

One command a line on standard input, one JSON object a line back. Nothing but the standard library and the client
runtime, so that the figures are the runtime's.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Final

MIB: Final = 1 << 20
BLOCK: Final = 64 * MIB
#: Adds one to a counter.
PTX: Final = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry count(.param .u64 counter)
{ .reg .b32 %r<2>; .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [counter]; atom.global.add.u32 %r1, [%rd1], 1; ret; }
"""


class CudaError(RuntimeError):
    """A call of the driver API failed."""


class Client:
    """The driver API by hand, with one context, one kernel and blocks of known bytes."""

    def __init__(self) -> None:
        # Bound now, used later: a kernel process has the runtime loaded long before it is attached.
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._pattern = os.urandom(BLOCK)
        self._blocks: list[int] = []
        self._buffer = ctypes.create_string_buffer(BLOCK)
        self._function = ctypes.c_void_p()
        self._counter = ctypes.c_uint64()
        self._launches = 0

    def begin(self) -> dict[str, Any]:
        """Everything up to the end of a first kernel."""
        began = time.perf_counter()
        context, module = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("gpupool_attach")
        self._call("cuInit", ctypes.c_uint(0))
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(0))
        self._call("cuCtxSetCurrent", context)
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(PTX))
        self._call("cuModuleGetFunction", ctypes.byref(self._function), module, ctypes.c_char_p(b"count"))
        self._call("cuMemAlloc_v2", ctypes.byref(self._counter), ctypes.c_size_t(4))
        self._call("cuMemsetD32_v2", self._counter, ctypes.c_uint(0), ctypes.c_size_t(1))
        self._launch()
        return {"seconds": time.perf_counter() - began}

    def fill(self, mib: int) -> dict[str, Any]:
        """Device memory with bytes that are known."""
        for _ in range(mib * MIB // BLOCK):
            address = ctypes.c_uint64()
            self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(BLOCK))
            self._call("cuMemcpyHtoD_v2", address, ctypes.c_char_p(self._pattern), ctypes.c_size_t(BLOCK))
            self._blocks.append(address.value)
        return {"mib": len(self._blocks) * BLOCK // MIB}

    def read(self) -> dict[str, Any]:
        """Reads all of it; the time without the comparing."""
        seconds, same = 0.0, True
        for address in self._blocks:
            began = time.perf_counter()
            self._call("cuMemcpyDtoH_v2", self._buffer, ctypes.c_uint64(address), ctypes.c_size_t(BLOCK))
            seconds += time.perf_counter() - began
            same = same and self._buffer.raw == self._pattern
        return {"seconds": seconds, "same": same}

    def mark(self, mib: int, value: int) -> dict[str, Any]:
        """Fills device memory with one value, and frees it."""
        address, size = ctypes.c_uint64(), ctypes.c_size_t(mib * MIB)
        self._call("cuMemAlloc_v2", ctypes.byref(address), size)
        self._call("cuMemsetD8_v2", address, ctypes.c_ubyte(value), size)
        self._call("cuCtxSynchronize")
        self._call("cuMemFree_v2", address)
        self._call("cuCtxSynchronize")
        return {}

    def search(self, mib: int, value: int) -> dict[str, Any]:
        """How many pages of new memory hold that value throughout."""
        address, page, found = ctypes.c_uint64(), bytes([value]) * 4096, 0
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(mib * MIB))
        for offset in range(0, mib * MIB, BLOCK):
            place = ctypes.c_uint64(address.value + offset)
            self._call("cuMemcpyDtoH_v2", self._buffer, place, ctypes.c_size_t(BLOCK))
            block = self._buffer.raw
            found += sum(block[at : at + 4096] == page for at in range(0, BLOCK, 4096))
        return {"found": found}

    def kernel(self) -> dict[str, Any]:
        """Takes up the lease that the session file names, and runs a kernel."""
        began = time.perf_counter()
        self._call("gpupool_attach")
        self._launch()
        return {
            "seconds": time.perf_counter() - began,
            "launches": self._launches,
            "counted": self._counted(),
        }

    def detach(self) -> dict[str, Any]:
        """Forgets the lease, as the end of a cell does."""
        self._call("gpupool_drain", ctypes.c_int(2000))
        self._call("gpupool_detach")
        return {}

    def _launch(self) -> None:
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(self._counter))
        one, none = ctypes.c_uint(1), ctypes.c_void_p()
        self._call(
            "cuLaunchKernel",
            self._function,
            one,
            one,
            one,
            one,
            one,
            one,
            ctypes.c_uint(0),
            none,
            arguments,
            none,
        )
        self._call("cuCtxSynchronize")
        self._launches += 1

    def _counted(self) -> int:
        value = ctypes.c_uint(0)
        self._call("cuMemcpyDtoH_v2", ctypes.byref(value), self._counter, ctypes.c_size_t(4))
        return value.value

    def _call(self, name: str, *arguments: Any) -> None:
        result = getattr(self._cuda, name)(*arguments)
        if result != 0:
            raise CudaError(f"{name} failed with {result}")


def main() -> int:
    """Until the end of standard input."""
    client = Client()
    commands: dict[str, Callable[..., dict[str, Any]]] = {
        "begin": client.begin,
        "fill": client.fill,
        "read": client.read,
        "mark": client.mark,
        "search": client.search,
        "kernel": client.kernel,
        "detach": client.detach,
    }
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        name, *arguments = line.split()
        answer = commands[name](*map(int, arguments))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
