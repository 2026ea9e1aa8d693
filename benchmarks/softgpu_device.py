"""The software GPU by its driver API, in this process and without a pool: what a measurement needs of it.

Imported only by processes that measure it: loading the driver decides its settings.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_DYNAMIC_SHARED_ATTRIBUTE = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class DriverError(RuntimeError):
    """A call of the driver failed; the text has its name and CUDA's number."""


class Device:
    """Device 0 of the driver at ``library``, with its primary context current in this thread."""

    def __init__(self, library: Path) -> None:
        self._driver = ctypes.CDLL(str(library))
        self._call("cuInit", ctypes.c_uint(0))
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(0))
        self._call("cuCtxSetCurrent", context)

    def load(self, ptx: bytes) -> ctypes.c_void_p:
        """A module. Raises DriverError."""
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(ptx))
        return module

    def kernel(self, module: ctypes.c_void_p, name: str, dynamic_shared: int = 0) -> ctypes.c_void_p:
        """A kernel of it, allowed to be launched with ``dynamic_shared`` bytes. Raises DriverError."""
        found = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(found), module, ctypes.c_char_p(name.encode()))
        if dynamic_shared:
            attribute = ctypes.c_int(_DYNAMIC_SHARED_ATTRIBUTE)
            self._call("cuFuncSetAttribute", found, attribute, ctypes.c_int(dynamic_shared))
        return found

    def put(self, data: ctypes.Array[ctypes.c_char]) -> int:
        """The address of device memory with this content, which stays until the process ends. Raises DriverError."""
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(len(data)))
        self.fill(address.value, data)
        return address.value

    def fill(self, address: int, data: ctypes.Array[ctypes.c_char]) -> None:
        """Copies to the device. Raises DriverError."""
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))

    def get(self, address: int, data: ctypes.Array[ctypes.c_char]) -> None:
        """Copies from the device. Raises DriverError."""
        self._call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(address), ctypes.c_size_t(len(data)))

    def launch(
        self,
        kernel: ctypes.c_void_p,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[ctypes._SimpleCData[Any]],
        shared: int = 0,
    ) -> None:
        """Launches and waits until it is done. Raises DriverError."""
        pointers = (ctypes.c_void_p * max(1, len(arguments)))(
            *(ctypes.cast(ctypes.byref(argument), ctypes.c_void_p) for argument in arguments)
        )
        shape = [ctypes.c_uint(number) for number in (*grid, *block, shared)]
        self._call("cuLaunchKernel", kernel, *shape, ctypes.c_void_p(), pointers, ctypes.c_void_p())
        self._call("cuCtxSynchronize")

    def entry(self, name: str) -> ctypes.c_void_p:
        """The address of one of the driver's functions, for code that calls it without Python between."""
        return ctypes.cast(getattr(self._driver, name), ctypes.c_void_p)

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._driver, name)(*arguments)
        if status != 0:
            raise DriverError(f"{name} returned {status}")
