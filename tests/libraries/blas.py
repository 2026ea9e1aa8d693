"""BLAS by its functions' names: arguments as a test writes them, and matrices in the forms that BLAS stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from hypothesis import HealthCheck, settings

from tests.libraries.cublas import HOST, call, handle
from tests.libraries.machine import Answer, Argument, Array, Machine, host, integer, pointer, wide

LETTERS: Final[dict[str, np.dtype[Any]]] = {
    "S": np.dtype(np.float32),
    "D": np.dtype(np.float64),
    "C": np.dtype(np.complex64),
    "Z": np.dtype(np.complex128),
}
LOWER, UPPER = 0, 1
LEFT, RIGHT = 0, 1
#: What lies where a function has no business: it shows when it is read, and when it is written.
UNTOUCHED: Final = np.nan
quickly = settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def real(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.empty(0, dtype).real.dtype


@dataclass(slots=True)
class Blas:
    """A handle with a pointer mode, and which width sizes have."""

    machine: Machine
    cublas: Argument
    mode: int
    wide: bool
    scalars: list[int] = field(default_factory=list)

    def __call__(self, name: str, *arguments: Any) -> Answer:
        """Numbers of Python are sizes, numbers of numpy are factors, which lie where the pointer mode says."""
        passed = [self._argument(argument) for argument in arguments]
        return call(self.machine, name + ("_64" if self.wide else ""), self.cublas, *passed)

    def _argument(self, argument: Any) -> Argument:
        if isinstance(argument, tuple):
            return argument[0], argument[1]
        if isinstance(argument, (np.generic, np.ndarray)):
            value = np.atleast_1d(np.asarray(argument))
            if self.mode == HOST:
                return host(value)
            self.scalars.append(self.machine.put(value))
            return pointer(self.scalars[-1])
        return wide(argument) if self.wide else integer(argument)


@contextmanager
def blas(machine: Machine, mode: int = HOST, *, is_wide: bool = False) -> Iterator[Blas]:
    with handle(machine, mode) as cublas:
        made = Blas(machine, cublas, mode, is_wide)
        yield made
        machine.synchronize()
        for address in made.scalars:
            machine.driver("cuMemFree_v2", pointer(address))


def flag(value: int) -> Argument:
    return integer(value)


def numbers(generator: np.random.Generator, shape: int | tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Small numbers that are exact in every type, so that sums of some are, too."""
    found = generator.integers(-8, 9, shape) / 4
    if dtype.kind == "c":
        found = found + 1j * generator.integers(-8, 9, shape) / 4
    return found.astype(dtype)


def spread(values: Array, increment: int) -> Array:
    """A vector in memory; between its elements lies what nobody touches."""
    memory = np.full(max((len(values) - 1) * abs(increment) + 1, 1), UNTOUCHED, values.dtype)
    memory[:: abs(increment)][: len(values)] = values if increment > 0 else values[::-1]
    return memory


def gathered(memory: Array, increment: int) -> Array:
    found = memory[:: abs(increment)]
    return found if increment > 0 else found[::-1]


def framed(values: Array, more: int) -> Array:
    """A matrix in column order with ``more`` rows below that nobody touches."""
    memory = np.full((values.shape[0] + more, values.shape[1]), UNTOUCHED, values.dtype, order="F")
    memory[: values.shape[0]] = values
    return memory


def in_triangle(order: int, uplo: int, band: int | None = None) -> Array:
    """Where the triangle, or a band of it, is stored."""
    rows, columns = np.indices((order, order))
    distance = rows - columns if uplo == LOWER else columns - rows
    return (distance >= 0) & (distance <= (order if band is None else band))


def stored(full: Array, form: str, uplo: int, band: int, more: int = 0) -> tuple[Array, list[int]]:
    """One triangle of a square matrix in memory, and the sizes that say how (k of bands, the leading dimension)."""
    order = len(full)
    if form == "packed":
        columns = [full[: j + 1, j] if uplo == UPPER else full[j:, j] for j in range(order)]
        return np.concatenate(columns), []
    if form == "band":
        memory = np.full((band + 1 + more, order), UNTOUCHED, full.dtype, order="F")
        for i, j in zip(*np.nonzero(in_triangle(order, uplo, band)), strict=True):
            memory[(band if uplo == UPPER else 0) + i - j, j] = full[i, j]
        return memory, [len(memory)]
    memory = framed(np.where(in_triangle(order, uplo), full, np.array(UNTOUCHED, full.dtype)), more)
    return memory, [len(memory)]


def assert_close(result: Array, wanted: Array, scale: float = 1) -> None:
    """Equal but for rounding; what is UNTOUCHED stays so."""
    tolerance = 1e-4 if real(result.dtype) == np.float32 else 1e-11
    np.testing.assert_allclose(result, wanted, rtol=tolerance, atol=tolerance * scale)
