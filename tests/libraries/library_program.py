"""A program that uses math libraries as it is told to: one pickled tuple in, one out. It runs alone or on a share.

Requests name what to do:

- ``("put", [BYTES, …])`` → addresses of copies in device memory; ``("free", [ADDRESS, …])``
- ``("get", ADDRESS, SIZE)`` → bytes
- ``("call", LIBRARY, FUNCTION, ARGUMENTS)`` → ``(STATUS, OUTPUTS)``; ``("driver", FUNCTION, ARGUMENTS)`` likewise

An argument is a tuple of its kind and value:

- ``("i", n)`` int, ``("l", n)`` 64-bit, ``("f", x)`` float, ``("d", x)`` double, ``("p", address)`` a pointer or handle
- ``("bytes", b)`` a pointer to those bytes in host memory
- ``("out", n)`` a pointer to n bytes, whose content comes back in OUTPUTS; ``("both", b)`` to those bytes, likewise

The answer is ``(VALUE, "")``, or ``(None, WHY_NOT)``.
"""

from __future__ import annotations

import ctypes
import pickle
import sys
from pathlib import Path
from typing import Any

NUMBERS = {"i": ctypes.c_int, "l": ctypes.c_int64, "f": ctypes.c_float, "d": ctypes.c_double}


class Program:
    """The driver with a context, and the libraries that were asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.driver = ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
        self.libraries: dict[str, ctypes.CDLL] = {}
        context = ctypes.c_void_p()
        for name, arguments in (
            ("cuInit", (0,)),
            ("cuDevicePrimaryCtxRetain", (ctypes.byref(context), 0)),
            ("cuCtxSetCurrent", (context,)),
        ):
            self.check(name, getattr(self.driver, name)(*arguments))

    @staticmethod
    def check(name: str, result: int) -> None:
        if result != 0:
            raise RuntimeError(f"{name} returned {result}")

    def put(self, contents: list[bytes]) -> list[int]:
        return [self._put(data) for data in contents]

    def _put(self, data: bytes) -> int:
        address = ctypes.c_uint64()
        self.check(
            "cuMemAlloc", self.driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(max(len(data), 1)))
        )
        self.check("cuMemcpyHtoD", self.driver.cuMemcpyHtoD_v2(address, data, ctypes.c_size_t(len(data))))
        return address.value

    def get(self, address: int, size: int) -> bytes:
        data = ctypes.create_string_buffer(max(size, 1))
        self.check(
            "cuMemcpyDtoH", self.driver.cuMemcpyDtoH_v2(data, ctypes.c_uint64(address), ctypes.c_size_t(size))
        )
        return data.raw[:size]

    def free(self, addresses: list[int]) -> None:
        for address in addresses:
            self.driver.cuMemFree_v2(ctypes.c_uint64(address))

    def call(self, library: str, function: str, arguments: list[tuple[str, Any]]) -> tuple[int, list[bytes]]:
        if library not in self.libraries:
            self.libraries[library] = ctypes.CDLL(str(self.folder / library))
        return self._call(self.libraries[library], function, arguments)

    def on_driver(self, function: str, arguments: list[tuple[str, Any]]) -> tuple[int, list[bytes]]:
        return self._call(self.driver, function, arguments)

    @staticmethod
    def _call(
        library: ctypes.CDLL, function: str, arguments: list[tuple[str, Any]]
    ) -> tuple[int, list[bytes]]:
        passed: list[Any] = []
        outputs: list[Any] = []
        for kind, value in arguments:
            if kind == "p":
                passed.append(ctypes.c_void_p(value))
            elif kind == "bytes":
                passed.append(ctypes.create_string_buffer(value, len(value) or 1))
            elif kind == "both":
                outputs.append(ctypes.create_string_buffer(value, len(value) or 1))
                passed.append(outputs[-1])
            elif kind == "out":
                outputs.append(ctypes.create_string_buffer(value))
                passed.append(outputs[-1])
            else:
                passed.append(NUMBERS[kind](value))
        status = getattr(library, function)(*passed)
        return status, [output.raw for output in outputs]


def main() -> None:
    program = Program(Path(sys.argv[1]))
    actions = {
        "put": program.put,
        "get": program.get,
        "free": program.free,
        "call": program.call,
        "driver": program.on_driver,
    }
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            what, *arguments = pickle.load(requests)
        except EOFError:
            return
        try:
            answer: tuple[Any, str] = actions[what](*arguments), ""
        except Exception as error:
            answer = None, repr(error)
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
