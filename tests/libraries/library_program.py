"""A program that uses math libraries as it is told to: one JSON line in, one out. It runs alone or on a share.

Requests name what to do:

- ``["put", HEX]`` → the address of a copy in device memory; ``["get", ADDRESS, BYTES]`` → hex; ``["free", ADDRESS]``
- ``["call", LIBRARY, FUNCTION, ARGUMENTS]`` → ``[STATUS, OUTPUTS]``; ``["driver", FUNCTION, ARGUMENTS]`` likewise

An argument is a list of its kind and value:

- ``["i", n]`` int, ``["l", n]`` 64-bit, ``["f", x]`` float, ``["d", x]`` double, ``["p", address]`` a pointer or handle
- ``["bytes", hex]`` a pointer to those bytes in host memory
- ``["out", n]`` a pointer to n bytes, whose content comes back in OUTPUTS; ``["both", hex]`` to those bytes, likewise
"""

from __future__ import annotations

import ctypes
import json
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

    def put(self, content: str) -> int:
        data = bytes.fromhex(content)
        address = ctypes.c_uint64()
        self.check(
            "cuMemAlloc", self.driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(max(len(data), 1)))
        )
        self.check("cuMemcpyHtoD", self.driver.cuMemcpyHtoD_v2(address, data, ctypes.c_size_t(len(data))))
        return address.value

    def get(self, address: int, size: int) -> str:
        data = ctypes.create_string_buffer(max(size, 1))
        self.check(
            "cuMemcpyDtoH", self.driver.cuMemcpyDtoH_v2(data, ctypes.c_uint64(address), ctypes.c_size_t(size))
        )
        return data.raw[:size].hex()

    def free(self, address: int) -> int:
        return int(self.driver.cuMemFree_v2(ctypes.c_uint64(address)))

    def call(self, library: str, function: str, arguments: list[list[Any]]) -> tuple[int, list[str]]:
        if library not in self.libraries:
            self.libraries[library] = ctypes.CDLL(str(self.folder / library))
        return self._call(self.libraries[library], function, arguments)

    def on_driver(self, function: str, arguments: list[list[Any]]) -> tuple[int, list[str]]:
        return self._call(self.driver, function, arguments)

    @staticmethod
    def _call(library: ctypes.CDLL, function: str, arguments: list[list[Any]]) -> tuple[int, list[str]]:
        passed: list[Any] = []
        outputs: list[Any] = []
        for kind, value in arguments:
            if kind == "p":
                passed.append(ctypes.c_void_p(value))
            elif kind == "bytes":
                passed.append(ctypes.create_string_buffer(bytes.fromhex(value), len(value) // 2 or 1))
            elif kind == "both":
                outputs.append(ctypes.create_string_buffer(bytes.fromhex(value), len(value) // 2 or 1))
                passed.append(outputs[-1])
            elif kind == "out":
                outputs.append(ctypes.create_string_buffer(value))
                passed.append(outputs[-1])
            else:
                passed.append(NUMBERS[kind](value))
        status = getattr(library, function)(*passed)
        return status, [output.raw.hex() for output in outputs]


def main() -> None:
    program = Program(Path(sys.argv[1]))
    actions = {
        "put": program.put,
        "get": program.get,
        "free": program.free,
        "call": program.call,
        "driver": program.on_driver,
    }
    for line in sys.stdin:
        what, *arguments = json.loads(line)
        try:
            answer: dict[str, Any] = {"value": actions[what](*arguments)}
        except Exception as error:
            answer = {"error": repr(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
