"""cuSOLVER by its handles: calls that first ask for work space, as programs do, and matrices to decompose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from hypothesis import HealthCheck, settings

from tests.libraries.blas import real
from tests.libraries.machine import DATA_TYPES, Answer, Argument, Array, Machine, integer, out, pointer, wide

LIBRARY: Final = "libcusolver.so.12"
SUCCESS, NOT_INITIALIZED, INVALID_VALUE, NOT_SUPPORTED = 0, 1, 3, 9
#: Where a question puts its answer, and where a call has its work space: one argument or several.
SIZE: Final = ("size", 0)
WORK: Final = ("work", 0)
NONE: Final = pointer(0)
#: What lies in ``info`` before a call.
UNSET: Final = -77
few = settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@dataclass(slots=True)
class Solver:
    """A handle, and a place for work."""

    machine: Machine
    handle: Argument
    work: int

    def call(self, name: str, *arguments: Any, wanted: int = 1) -> Answer:
        """cusolverDn``name`` with the handle; functions that begin with X have 64-bit sizes."""
        is_wide = name.startswith("X")
        passed: list[Argument] = []
        for argument in arguments:
            if argument == SIZE:
                passed += [out(8), out(8)] if is_wide else [out(4)]
            elif argument == WORK:
                passed += (
                    [pointer(self.work), wide(wanted), NONE, wide(0)]
                    if is_wide
                    else [pointer(self.work), integer(wanted)]
                )
            elif isinstance(argument, tuple):
                passed.append((argument[0], argument[1]))
            else:
                passed.append(wide(argument) if is_wide else integer(argument))
        return self.machine.call(LIBRARY, f"cusolverDn{name}", self.handle, *passed)

    def run(self, name: str, ask: tuple[Any, ...], do: tuple[Any, ...]) -> Answer:
        """Asks for work space and computes with as much."""
        asked = self.call(f"{name}_bufferSize", *ask)
        assert asked.status == SUCCESS
        assert 0 < asked.number() <= 16
        done = self.call(name, *do, wanted=asked.number())
        assert done.status == SUCCESS
        return done


@contextmanager
def solver(machine: Machine) -> Iterator[Solver]:
    made = machine.call(LIBRARY, "cusolverDnCreate", out(8))
    assert made.status == SUCCESS
    handle = pointer(made.number())
    try:
        with machine.arrays(np.zeros(16, np.uint8)) as (work,):
            yield Solver(machine, handle, work)
    finally:
        assert machine.call(LIBRARY, "cusolverDnDestroy", handle).status == SUCCESS


@contextmanager
def jacobi(machine: Machine, of: str) -> Iterator[Argument]:
    """Settings of Jacobi's method; ``of`` is Syevj or Gesvdj."""
    made = machine.call(LIBRARY, f"cusolverDnCreate{of}Info", out(8))
    assert made.status == SUCCESS
    settings_of_it = pointer(made.number())
    yield settings_of_it
    assert machine.call(LIBRARY, f"cusolverDnDestroy{of}Info", settings_of_it).status == SUCCESS


def infos(count: int = 1) -> Array:
    return np.full(count, UNSET, np.int32)


def by_type(letter: str, symmetric: str, hermitian: str) -> str:
    """A function's name, which has other words for complex numbers."""
    return letter + (hermitian if letter in "CZ" else symmetric)


def adjoint_of(letter: str) -> int:
    """The cublasOperation_t that LAPACK takes for it."""
    return 2 if letter in "CZ" else 1


def data_type(dtype: np.dtype[Any]) -> int:
    return DATA_TYPES[np.dtype(dtype)]


def matrix(generator: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Random numbers in column order."""
    found = generator.standard_normal(shape)
    if dtype.kind == "c":
        found = found + 1j * generator.standard_normal(shape)
    return np.asfortranarray(found.astype(dtype))


def hermitian(generator: np.random.Generator, order: int, dtype: np.dtype[Any]) -> Array:
    half = matrix(generator, (order, order), dtype)
    return np.asfortranarray(half + half.conj().T)


def positive(generator: np.random.Generator, order: int, dtype: np.dtype[Any]) -> Array:
    """Hermitian, and its eigenvalues are positive."""
    half = matrix(generator, (order, order), dtype)
    return np.asfortranarray((half @ half.conj().T + order * np.eye(order)).astype(dtype))


def assert_near(found: Array, wanted: Array, factor: float = 1) -> None:
    """Equal but for rounding, measured by the largest number."""
    assert found.shape == wanted.shape
    epsilon = float(np.finfo(real(found.dtype)).eps)
    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
    size = max(1, *wanted.shape) if wanted.shape else 1
    np.testing.assert_allclose(found, wanted, rtol=0, atol=factor * 50 * epsilon * size * scale)


def assert_orthogonal(q: Array) -> None:
    """The columns are."""
    assert_near(q.conj().T @ q, np.eye(q.shape[1], dtype=q.dtype))
