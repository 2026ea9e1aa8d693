"""cuSPARSE by its handles and descriptors: what the tests of its functions share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import scipy.sparse  # type: ignore[import-untyped]
from hypothesis import HealthCheck, settings
from numpy.typing import NDArray

from tests.libraries.machine import (
    DATA_TYPES,
    Answer,
    Argument,
    Array,
    Machine,
    host,
    integer,
    out,
    pointer,
    wide,
)

LIBRARY: Final = "libcusparse.so.12"
SUCCESS, NOT_INITIALIZED, INVALID_VALUE, TYPE_NOT_SUPPORTED, NOT_SUPPORTED = 0, 1, 3, 8, 10
ILLEGAL_ADDRESS: Final = 700
HOST, DEVICE = 0, 1
BY_COLUMN, BY_ROW = 1, 2
#: cusparseOperation_t by what numpy does.
OPERATIONS: Final = {0: lambda x: x, 1: lambda x: x.T, 2: lambda x: x.conj().T}
INDEX_TYPES: Final = {np.dtype(np.int32): 2, np.dtype(np.int64): 3}
FORMATS: Final = ("csr", "csc", "coo")

quickly = settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def compute_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What values of a type are computed in."""
    return np.dtype(np.float32) if dtype.itemsize == 2 else dtype


def number(dtype: np.dtype[Any], value: complex) -> Array:
    """A factor of a type."""
    return np.array([value if dtype.kind == "c" else value.real], dtype)


def sparse(
    generator: np.random.Generator, rows: int, columns: int, dtype: np.dtype[Any], density: float = 0.4
) -> Array:
    """A dense array, most of it zeros; the others are small and exact in every type."""
    values = generator.integers(1, 9, (rows, columns)) / 4
    if dtype.kind == "c":
        values = values + 1j * generator.integers(-8, 9, (rows, columns)) / 4
    return np.where(generator.random((rows, columns)) < density, values, 0).astype(dtype)


def close(result: Array, wanted: Array) -> None:
    narrow = {2: 2e-2, 4: 1e-4}.get(np.empty(0, result.dtype).real.dtype.itemsize, 1e-10)
    kind = np.complex128 if result.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(result.astype(kind), wanted.astype(kind), rtol=narrow, atol=narrow)


@dataclass(slots=True)
class Sparse:
    """A sparse matrix in device memory and its descriptor."""

    descriptor: Argument
    offsets: int
    indices: int
    values: int
    like: Any


@dataclass(slots=True)
class Cusparse:
    """A handle with what a test makes of descriptors and memory."""

    machine: Machine
    handle: Argument
    mode: int = HOST
    addresses: list[int] = field(default_factory=list)
    stack: ExitStack = field(default_factory=ExitStack)

    def __call__(self, name: str, *arguments: Argument) -> Answer:
        """A function that takes the handle."""
        return self.machine.call(LIBRARY, name, self.handle, *arguments)

    def put(self, array: Array) -> int:
        self.addresses.append(self.machine.put(array))
        return self.addresses[-1]

    def factor(self, dtype: np.dtype[Any], value: complex) -> Argument:
        made = number(compute_type(dtype), value)
        return host(made) if self.mode == HOST else pointer(self.put(made))

    def made(self, create: str, destroy: str, *arguments: Argument) -> Argument:
        """A descriptor, which is destroyed at the end."""
        answer = self.machine.call(LIBRARY, create, out(8), *arguments)
        assert answer.status == SUCCESS
        descriptor = pointer(answer.number())
        self.stack.callback(self.machine.call, LIBRARY, destroy, descriptor)
        return descriptor

    def vector(self, array: Array) -> tuple[Argument, int]:
        address = self.put(array)
        made = self.made(
            "cusparseCreateDnVec",
            "cusparseDestroyDnVec",
            wide(len(array)),
            pointer(address),
            integer(DATA_TYPES[array.dtype]),
        )
        return made, address

    def dense(self, array: Array, shape: tuple[int, int] | None = None) -> tuple[Argument, int]:
        """In the order of its memory; ``shape``: without what lies between rows or columns."""
        by_row = array.flags.c_contiguous
        rows, columns = shape or (array.shape[0], array.shape[1])
        address = self.put(array)
        made = self.made(
            "cusparseCreateDnMat",
            "cusparseDestroyDnMat",
            wide(rows),
            wide(columns),
            wide(max(1, array.shape[1] if by_row else array.shape[0])),
            pointer(address),
            integer(DATA_TYPES[array.dtype]),
            integer(BY_ROW if by_row else BY_COLUMN),
        )
        return made, address

    def matrix(
        self, array: Array, form: str, index: NDArray[Any] | type = np.int32, base: int = 0, **changed: Array
    ) -> Sparse:
        """What of ``array`` is not zero, in a form; ``changed`` puts other indices in place of the right ones."""
        index_type = np.dtype(index)
        known = np.float32 if array.dtype.itemsize == 2 else array.dtype
        wanted = getattr(scipy.sparse, f"{form}_array")(array.astype(known))
        first, second = (wanted.row, wanted.col) if form == "coo" else (wanted.indptr, wanted.indices)
        if form == "coo":
            order = np.lexsort((second, first))
            first, second = first[order], second[order]
            values = wanted.data[order].astype(array.dtype)
        else:
            values = wanted.data.astype(array.dtype)
        first, second = changed.get("first", first + base), changed.get("second", second + base)
        first, second = first.astype(index_type), second.astype(index_type)
        places = [self.put(part) for part in (first, second, values)]
        kind = integer(INDEX_TYPES[index_type])
        made = self.made(
            f"cusparseCreate{form.capitalize()}",
            "cusparseDestroySpMat",
            wide(array.shape[0]),
            wide(array.shape[1]),
            wide(len(values)),
            *(pointer(place) for place in places),
            *([kind] if form == "coo" else [kind, kind]),
            integer(base),
            integer(DATA_TYPES[array.dtype]),
        )
        return Sparse(made, places[0], places[1], places[2], (first, second, values))

    def get(self, address: int, like: Array) -> Array:
        return self.machine.get(address, like)


@contextmanager
def cusparse(machine: Machine, mode: int = HOST) -> Iterator[Cusparse]:
    answer = machine.call(LIBRARY, "cusparseCreate", out(8))
    assert answer.status == SUCCESS
    made = Cusparse(machine, pointer(answer.number()), mode)
    assert made("cusparseSetPointerMode", integer(mode)).status == SUCCESS
    try:
        yield made
    finally:
        made.stack.close()
        machine.synchronize()
        for address in made.addresses:
            machine.driver("cuMemFree_v2", pointer(address))
        assert made("cusparseDestroy").status == SUCCESS
