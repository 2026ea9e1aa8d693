"""cuBLAS by its handles: what the tests of its functions share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

from tests.libraries.machine import Answer, Argument, Array, Machine, integer, out, pointer

LIBRARY: Final = "libcublas.so.13"
SUCCESS, NOT_INITIALIZED, INVALID_VALUE, EXECUTION_FAILED, NOT_SUPPORTED = 0, 1, 7, 13, 15
#: cublasOperation_t by what numpy does.
OPERATIONS: Final = {0: lambda x: x, 1: lambda x: x.T, 2: lambda x: x.conj().T}
HOST, DEVICE = 0, 1


@contextmanager
def handle(machine: Machine, mode: int = HOST) -> Iterator[Argument]:
    """A handle of its own."""
    made = machine.call(LIBRARY, "cublasCreate_v2", out(8))
    assert made.status == SUCCESS
    argument = pointer(made.number())
    try:
        assert machine.call(LIBRARY, "cublasSetPointerMode_v2", argument, integer(mode)).status == SUCCESS
        yield argument
    finally:
        machine.call(LIBRARY, "cublasDestroy_v2", argument)


def call(machine: Machine, function: str, *arguments: Argument) -> Answer:
    return machine.call(LIBRARY, function, *arguments)


def random(generator: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
    """Small numbers of a type, in column order."""
    if dtype.kind == "i":
        return np.asfortranarray(generator.integers(-8, 9, shape).astype(dtype))
    numbers = generator.standard_normal(shape)
    if dtype.kind == "c":
        numbers = numbers + 1j * generator.standard_normal(shape)
    return np.asfortranarray(numbers.astype(dtype))
