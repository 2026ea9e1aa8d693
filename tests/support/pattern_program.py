"""A CUDA program that fills device memory with patterns and looks later whether every byte is still there.

Uses nothing but the driver API by ctypes, so that it starts quickly. Commands come line by line on standard input; each is
answered by one line: the CUresult, a blank, and what there is to say.

    fill MIB SEED    allocates so much and copies a pattern into it
    add              a kernel adds one to every word of the newest buffer, and is waited for
    check            copies everything back and compares
    free NUMBER      frees one of the buffers that there are
    room             free and total MiB of the share
    total            MiB that the device has, as a property of the device
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable

import numpy as np
from add_one import ADD_ONE  # beside this script

MIB = 1 << 20


def pattern(mib: int, seed: int) -> np.ndarray:
    """Every word differs from its neighbours and from the same word of another seed."""
    words = np.arange(mib * MIB // 4, dtype=np.uint32)
    words *= np.uint32(2654435761)
    words += np.uint32(seed * 40503 + 1)
    return words


class Program:
    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.cuda.gpupool_last_message.restype = ctypes.c_char_p
        self.buffers: list[tuple[ctypes.c_uint64, int, int, int]] = []
        context, module = ctypes.c_void_p(), ctypes.c_void_p()
        self.kernel = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.call("cuModuleLoadData", ctypes.byref(module), ADD_ONE)
        self.call("cuModuleGetFunction", ctypes.byref(self.kernel), module, b"add_one")

    def call(self, name: str, *arguments: object) -> None:
        result = getattr(self.cuda, name)(*arguments)
        if result:
            raise RuntimeError(f"{result} {name}: {self.cuda.gpupool_last_message().decode()}")

    def fill(self, mib: int, seed: int) -> str:
        where = ctypes.c_uint64()
        words = pattern(mib, seed)
        self.call("cuMemAlloc_v2", ctypes.byref(where), ctypes.c_size_t(words.nbytes))
        self.call(
            "cuMemcpyHtoD_v2", where, words.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(words.nbytes)
        )
        self.call("cuCtxSynchronize")
        self.buffers.append((where, mib, seed, 0))
        return f"{where.value:x}"

    def add(self) -> str:
        where, mib, seed, added = self.buffers[-1]
        words = ctypes.c_uint32(mib * MIB // 4)
        parameters = (ctypes.c_void_p * 2)(
            ctypes.cast(ctypes.byref(where), ctypes.c_void_p),
            ctypes.cast(ctypes.byref(words), ctypes.c_void_p),
        )
        blocks = -(-words.value // 256)
        self.call("cuLaunchKernel", self.kernel, blocks, 1, 1, 256, 1, 1, 0, None, parameters, None)
        self.call("cuCtxSynchronize")
        self.buffers[-1] = (where, mib, seed, added + 1)
        return str(added + 1)

    def check(self) -> str:
        total = 0
        for where, mib, seed, added in self.buffers:
            expected = pattern(mib, seed)
            expected += np.uint32(added)
            found = np.zeros_like(expected)
            size = ctypes.c_size_t(found.nbytes)
            self.call("cuMemcpyDtoH_v2", found.ctypes.data_as(ctypes.c_void_p), where, size)
            wrong = int(np.count_nonzero(found != expected))
            if wrong:
                raise RuntimeError(
                    f"999 {wrong} of {found.size} words of the buffer at {where.value:x} differ"
                )
            total += found.nbytes
        return str(total)

    def free(self, number: int) -> str:
        where, mib, _, _ = self.buffers.pop(number)
        self.call("cuMemFree_v2", where)
        return str(mib)

    def room(self) -> str:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return f"{free.value // MIB} {total.value // MIB}"

    def total(self) -> str:
        total = ctypes.c_size_t()
        self.call("cuDeviceTotalMem_v2", ctypes.byref(total), 0)
        return str(total.value // MIB)

    def obey(self, line: str) -> str:
        verb, *arguments = line.split()
        numbers = [int(argument) for argument in arguments]
        return COMMANDS[verb](self, *numbers)


COMMANDS: dict[str, Callable[..., str]] = {
    "fill": Program.fill,
    "add": Program.add,
    "check": Program.check,
    "free": Program.free,
    "room": Program.room,
    "total": Program.total,
}


def main() -> None:
    began = time.monotonic()
    program = Program()
    print(f"0 ready after {time.monotonic() - began:.2f} s", flush=True)
    for line in sys.stdin:
        try:
            print(f"0 {program.obey(line)}", flush=True)
        except RuntimeError as error:
            print(error, flush=True)


if __name__ == "__main__":
    main()
