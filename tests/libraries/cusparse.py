"""cuSPARSE by its handles and descriptors: what the tests of its functions share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np
import scipy.sparse  # type: ignore[import-untyped]

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
SUCCESS, NOT_INITIALIZED, INVALID_VALUE, NOT_SUPPORTED = 0, 1, 3, 10
ILLEGAL_ADDRESS: Final = 700
HOST, DEVICE = 0, 1
#: cusparseIndexType_t.
INDEX_TYPES: Final = {np.dtype(np.int32): 2, np.dtype(np.int64): 3}
#: cusparseOperation_t by what numpy does.
OPERATIONS: Final = {0: lambda x: x, 1: lambda x: x.T, 2: lambda x: x.conj().T}
BY_COLUMN, BY_ROW = 1, 2
TOLERANCES: Final = {
    np.dtype(np.float32): 1e-5,
    np.dtype(np.complex64): 1e-5,
    np.dtype(np.float64): 1e-13,
    np.dtype(np.complex128): 1e-13,
    np.dtype(np.float16): 2e-3,
    np.dtype(ml_dtypes.bfloat16): 2e-2,
}


def call(machine: Machine, function: str, *arguments: Argument) -> Answer:
    return machine.call(LIBRARY, function, *arguments)


@contextmanager
def handle(machine: Machine, mode: int = HOST) -> Iterator[Argument]:
    """A handle of its own."""
    made = call(machine, "cusparseCreate", out(8))
    assert made.status == SUCCESS
    argument = pointer(made.number())
    try:
        assert call(machine, "cusparseSetPointerMode", argument, integer(mode)).status == SUCCESS
        yield argument
    finally:
        assert call(machine, "cusparseDestroy", argument).status == SUCCESS


@contextmanager
def descriptor(machine: Machine, create: str, destroy: str, *arguments: Argument) -> Iterator[Argument]:
    made = call(machine, create, out(8), *arguments)
    assert made.status == SUCCESS
    argument = pointer(made.number())
    try:
        yield argument
    finally:
        assert call(machine, destroy, argument).status == SUCCESS


@dataclass(frozen=True)
class Layout:
    """How a sparse matrix lies: Csr, Csc or Coo, what its indices are, and what they count from."""

    format: str = "Csr"
    index: type[Any] = np.int32
    base: int = 0

    def arrays(self, dense: Array) -> tuple[Array, Array, Array]:
        """Offsets (or rows), indices and values of the elements that are not zero, by scipy."""
        wide_type = (
            dense.dtype if dense.dtype.kind != "V" and dense.dtype.itemsize > 2 else np.dtype(np.float32)
        )
        made = scipy.sparse.coo_array(dense.astype(wide_type))
        if self.format == "Coo":
            first, second = made.coords
        else:
            made = made.tocsr() if self.format == "Csr" else made.tocsc()
            first, second = made.indptr, made.indices
        shifted = [(part + self.base).astype(self.index) for part in (first, second)]
        return shifted[0], shifted[1], made.data.astype(dense.dtype)


@contextmanager
def sparse(
    machine: Machine,
    layout: Layout,
    shape: tuple[int, int],
    dtype: np.dtype[Any],
    addresses: Sequence[int],
    entries: int,
) -> Iterator[Argument]:
    """A descriptor of a matrix whose arrays lie at the addresses."""
    index = INDEX_TYPES[np.dtype(layout.index)]
    indices = [integer(index)] * (1 if layout.format == "Coo" else 2)
    with descriptor(
        machine,
        f"cusparseCreate{layout.format}",
        "cusparseDestroySpMat",
        *map(wide, shape),
        wide(entries),
        *map(pointer, addresses),
        *indices,
        integer(layout.base),
        integer(DATA_TYPES[dtype]),
    ) as made:
        yield made


@contextmanager
def placed(machine: Machine, layout: Layout, dense: Array) -> Iterator[tuple[Argument, list[int]]]:
    """A sparse matrix in device memory: its descriptor, and the addresses of its arrays."""
    parts = layout.arrays(dense)
    with (
        machine.arrays(*parts) as addresses,
        sparse(machine, layout, dense.shape, dense.dtype, addresses, parts[1].size) as made,
    ):
        yield made, addresses


@contextmanager
def matrix(machine: Machine, address: int, like: Array) -> Iterator[Argument]:
    """A descriptor of a dense matrix, in the order of the array's memory; of three dimensions: of a batch of them."""
    rows, columns = like.shape[-2:]
    by_row = bool(like.flags.c_contiguous)
    with descriptor(
        machine,
        "cusparseCreateDnMat",
        "cusparseDestroyDnMat",
        wide(rows),
        wide(columns),
        wide(columns if by_row else rows),
        pointer(address),
        integer(DATA_TYPES[like.dtype]),
        integer(BY_ROW if by_row else BY_COLUMN),
    ) as made:
        if like.ndim == 3:
            status = call(
                machine, "cusparseDnMatSetStridedBatch", made, integer(len(like)), wide(rows * columns)
            ).status
            assert status == SUCCESS
        yield made


@contextmanager
def vector(machine: Machine, address: int, like: Array) -> Iterator[Argument]:
    arguments = wide(like.size), pointer(address), integer(DATA_TYPES[like.dtype])
    with descriptor(machine, "cusparseCreateDnVec", "cusparseDestroyDnVec", *arguments) as made:
        yield made


@contextmanager
def scalars(machine: Machine, mode: int, dtype: np.dtype[Any], *values: complex) -> Iterator[list[Argument]]:
    """alpha and beta where the handle's mode looks for them."""
    arrays = [np.array(value if dtype.kind == "c" else value.real, dtype) for value in values]
    if mode == HOST:
        yield [host(array) for array in arrays]
        return
    with machine.arrays(*arrays) as addresses:
        yield [pointer(address) for address in addresses]


def random(
    generator: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any], order: str = "C"
) -> Array:
    numbers: Array = generator.standard_normal(shape)
    if dtype.kind == "c":
        numbers = numbers + 1j * generator.standard_normal(shape)
    return np.asarray(numbers.astype(dtype), order="F" if order == "F" else "C")


def thin(generator: np.random.Generator, shape: tuple[int, int], dtype: np.dtype[Any]) -> Array:
    """A matrix with zeros in most places, all of a row among them."""
    full = random(generator, shape, dtype)
    full[generator.random(shape) > 0.3] = 0
    return full


def exact(array: Array) -> Array:
    """The same numbers, to compute in."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def assert_close(result: Array, wanted: Array, scale: float = 1) -> None:
    """As close as sums of the result's type are."""
    bound = TOLERANCES[result.dtype] * (1 + np.abs(wanted).max(initial=0)) * scale
    np.testing.assert_array_less(np.abs(exact(result) - wanted), bound)
