"""The software GPU's driver by ctypes: PTX text and arrays in, arrays out."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import numpy as np
from gpupool.client.native import native_directory

LIBRARY: Final = native_directory() / "softgpu" / "libcuda.so.1"
_LOG_BYTES: Final = 4096
_MAX_DYNAMIC_SHARED: Final = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_LOG, _LOG_SIZE = 5, 6  # CU_JIT_ERROR_LOG_BUFFER and its size


class DriverError(AssertionError):
    """A call of the driver returned an error; the text is the driver's."""


class Device:
    """One context on the software GPU. Raises DriverError when a call fails."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL(str(LIBRARY))
        self._call("cuInit", 0)
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self._call("cuCtxSetCurrent", context)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code != 0:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorName(code, ctypes.byref(text))
            raise DriverError(f"{name}: {(text.value or b'?').decode()}")

    def opcodes(self) -> dict[str, str]:
        """Every opcode that the engine knows -> its signature (see src/softgpu/exec/program/opcode_table.h)."""
        ask = self._cuda.cuGpupoolOpcodeNames
        ask.restype = ctypes.c_size_t
        size = ask(None, ctypes.c_size_t(0))
        text = ctypes.create_string_buffer(size)
        ask(text, ctypes.c_size_t(size))
        return dict(line.split("\t") for line in text.raw.decode().splitlines())

    def load(self, ptx: str) -> Module:
        """Compiles a module; DriverError names the line and the reason."""
        module = ctypes.c_void_p()
        log = ctypes.create_string_buffer(_LOG_BYTES)
        names = (ctypes.c_int * 2)(_LOG, _LOG_SIZE)
        values = (ctypes.c_void_p * 2)(ctypes.cast(log, ctypes.c_void_p), ctypes.c_void_p(_LOG_BYTES))
        try:
            self._call("cuModuleLoadDataEx", ctypes.byref(module), ptx.encode() + b"\0", 2, names, values)
        except DriverError as error:
            raise DriverError(f"{error}: {log.value.decode()}") from None
        return Module(self, module)

    def allocate(self, size: int) -> int:
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        return address.value

    def free(self, address: int) -> None:
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def write(self, address: int, array: np.ndarray[Any, Any]) -> None:
        data = np.ascontiguousarray(array)
        self._call(
            "cuMemcpyHtoD_v2", ctypes.c_uint64(address), data.ctypes.data_as(ctypes.c_void_p), data.nbytes
        )

    def read(self, address: int, array: np.ndarray[Any, Any]) -> None:
        self._call(
            "cuMemcpyDtoH_v2", array.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(address), array.nbytes
        )


class Module:
    """Compiled PTX."""

    def __init__(self, device: Device, handle: ctypes.c_void_p) -> None:
        self._device = device
        self._handle = handle

    def launch(self, kernel: str, blocks: int, threads: int, arguments: Sequence[int]) -> None:
        """Runs a kernel whose parameters are 64-bit numbers, and waits for its end."""
        self.launch_with(kernel, (blocks, 1), threads, 0, arguments)

    def launch_with(
        self, kernel: str, grid: tuple[int, int], threads: int, shared_bytes: int, arguments: Sequence[int]
    ) -> None:
        """The same with dynamic shared memory. A parameter of fewer bytes takes the low ones of its number."""
        function = ctypes.c_void_p()
        self._device._call("cuModuleGetFunction", ctypes.byref(function), self._handle, kernel.encode())
        values = [ctypes.c_uint64(value) for value in arguments]
        pointers = (ctypes.c_void_p * max(len(values), 1))(*[ctypes.addressof(value) for value in values])
        if shared_bytes > 0:
            self._device._call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, shared_bytes)
        dimensions = (*grid, 1, threads, 1, 1, shared_bytes)
        self._device._call("cuLaunchKernel", function, *dimensions, None, pointers, None)
        self._device._call("cuCtxSynchronize")

    def unload(self) -> None:
        self._device._call("cuModuleUnload", self._handle)


@cache
def device() -> Device:
    """The device of this process."""
    return Device()
