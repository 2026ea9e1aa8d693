"""Exits 0 when the machine's own libcuda.so.1 finds at least one device, and prints driver and name; else says why not."""

from __future__ import annotations

import ctypes
import sys


def main() -> int:
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        print(f"no driver: {error}")
        return 1
    count = ctypes.c_int()
    for call, arguments in (("cuInit", (0,)), ("cuDeviceGetCount", (ctypes.byref(count),))):
        if status := getattr(cuda, call)(*arguments):
            print(f"the driver does not work: {call} returned {status}")
            return 1
    if count.value == 0:
        print("the driver finds no device")
        return 1
    version, name = ctypes.c_int(), ctypes.create_string_buffer(128)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    cuda.cuDeviceGetName(name, len(name), 0)
    print(
        f"{count.value} device(s), first: {name.value.decode()}, CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
