"""Exits 0 when the machine's own libcuda.so.1 finds at least one device, and prints driver and name."""

from __future__ import annotations

import ctypes
import sys


def main() -> int:
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 1
    count = ctypes.c_int()
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
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
