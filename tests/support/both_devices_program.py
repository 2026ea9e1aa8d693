"""A CUDA program that uses all devices of its process and looks later whether every byte is still there.

Driver API by ctypes. Commands come line by line on standard input; each is answered by one line: the CUresult of the
first call that failed, or 0, a blank, and what there is to say.

    fill MIB     so much on every device, with another pattern on each
    check        copies everything back and compares
    cross        copies from the first device to the last, and looks there
"""

from __future__ import annotations

import ctypes
import sys

import numpy as np

MIB = 1 << 20


class Failed(Exception):
    pass


class Program:
    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.contexts: list[ctypes.c_void_p] = []
        self.buffers: list[tuple[int, ctypes.c_uint64, np.ndarray]] = []
        count = ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGetCount", ctypes.byref(count))
        for device in range(count.value):
            context = ctypes.c_void_p()
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self.contexts.append(context)

    def call(self, name: str, *arguments: object) -> None:
        result = getattr(self.cuda, name)(*arguments)
        if result != 0:
            raise Failed(f"{result} {name}")

    def fill(self, mib: str) -> str:
        for device, context in enumerate(self.contexts):
            self.call("cuCtxSetCurrent", context)
            words = np.arange(int(mib) * MIB // 4, dtype=np.uint32) * np.uint32(2654435761 + device)
            where = ctypes.c_uint64()
            self.call("cuMemAlloc_v2", ctypes.byref(where), ctypes.c_size_t(words.nbytes))
            self.call(
                "cuMemcpyHtoD_v2", where, words.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(words.nbytes)
            )
            self.buffers.append((device, where, words))
        return str(len(self.contexts))

    def check(self) -> str:
        for device, where, words in self.buffers:
            if not np.array_equal(self.read(device, where, words.nbytes), words):
                return f"device {device} has other bytes"
        return "same"

    def cross(self) -> str:
        (source, origin, words), (target, _, _) = self.buffers[0], self.buffers[-1]
        self.call("cuCtxSetCurrent", self.contexts[target])
        where = ctypes.c_uint64()
        size = ctypes.c_size_t(words.nbytes)
        self.call("cuMemAlloc_v2", ctypes.byref(where), size)
        self.call("cuMemcpyPeer", where, self.contexts[target], origin, self.contexts[source], size)
        return "same" if np.array_equal(self.read(target, where, words.nbytes), words) else "other bytes"

    def read(self, device: int, where: ctypes.c_uint64, size: int) -> np.ndarray:
        self.call("cuCtxSetCurrent", self.contexts[device])
        out = np.empty(size // 4, dtype=np.uint32)
        self.call("cuMemcpyDtoH_v2", out.ctypes.data_as(ctypes.c_void_p), where, ctypes.c_size_t(size))
        return out


def main() -> None:
    program = None
    try:
        program = Program()
        print("0 ", flush=True)
    except Failed as failed:
        print(failed, flush=True)
        return
    for line in sys.stdin:
        name, *arguments = line.split()
        try:
            print(0, getattr(program, name)(*arguments), flush=True)
        except Failed as failed:
            print(failed, flush=True)


main()
