"""NVIDIA's libraries by their C interfaces: loading one, and its arguments in device memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_size_t, c_void_p
from typing import Any, Final

import numpy as np

cuda: Final = ctypes.CDLL("libcuda.so.1")


class Refused(Exception):
    """A call that returned another status than 0."""


def check(status: int, what: str) -> None:
    """Raises Refused."""
    if status != 0:
        raise Refused(f"status {status} in {what}")


def library(name: str, majors: Sequence[int]) -> Any:
    """The first of these versions that can be loaded; ends the program where there is none."""
    tried = [f"lib{name}.so.{major}" for major in majors]
    for file in tried:
        try:
            return ctypes.CDLL(file)
        except OSError:
            continue
    raise SystemExit(f"none of {', '.join(tried)} can be loaded")


def device(array: Any) -> c_void_p:
    """A copy in device memory, which stays until the program ends."""
    address = c_void_p()
    check(cuda.cuMemAlloc_v2(byref(address), c_size_t(array.nbytes)), "cuMemAlloc")
    check(
        cuda.cuMemcpyHtoD_v2(address, array.ctypes.data_as(c_void_p), c_size_t(array.nbytes)), "cuMemcpyHtoD"
    )
    return address


def host(address: c_void_p, like: Any) -> Any:
    """What is there, in an array of this shape and type."""
    made = np.empty_like(like)
    check(cuda.cuMemcpyDtoH_v2(made.ctypes.data_as(c_void_p), address, c_size_t(made.nbytes)), "cuMemcpyDtoH")
    return made
