"""cublasLtMatmul by its descriptors: what it computes, and which attributes it refuses rather than ignore."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pytest

from tests.libraries.cublas import NOT_SUPPORTED, SUCCESS, random
from tests.libraries.machine import DATA_TYPES, Argument, Array, Machine, host, integer, out, pointer, wide

LIBRARY: Final = "libcublasLt.so.13"
SINGLE: Final = np.dtype(np.float32)
COMPUTE_32F: Final = 68
#: Attributes of a product, of cublasLtMatmulDescAttributes_t.
POINTER_MODE, ALPHA_STRIDE = 2, 14
#: Attributes of a layout, of cublasLtMatrixLayoutAttribute_t.
BATCH, STRIDE, PLANE_OFFSET = 5, 6, 7
#: cublasLtPointerMode_t.
ALPHA_PER_ROW_BETA_ON_HOST: Final = 4
M, N, K = 3, 4, 5
SHAPES: Final = {"a": (M, K), "b": (K, N), "c": (M, N), "d": (M, N)}


@dataclass(slots=True)
class Product:
    """D = alpha A B + beta C of a batch, as descriptors say it."""

    machine: Machine
    lt: Argument
    product: Argument
    layouts: dict[str, Argument] = field(default_factory=dict)

    def set(self, attribute: int, value: Array) -> None:
        """An attribute of the product."""
        self._call("cublasLtMatmulDescSetAttribute", self.product, attribute, value)

    def set_layout(self, name: str, attribute: int, value: Array) -> None:
        self._call("cublasLtMatrixLayoutSetAttribute", self.layouts[name], attribute, value)

    def _call(self, function: str, descriptor: Argument, attribute: int, value: Array) -> None:
        passed = (descriptor, integer(attribute), host(value), wide(value.nbytes))
        assert self.machine.call(LIBRARY, function, *passed).status == SUCCESS

    def multiply(self, alpha: Argument, addresses: dict[str, int], beta: float = 0) -> int:
        """The status of cublasLtMatmul."""
        at = {name: (pointer(address), self.layouts[name]) for name, address in addresses.items()}
        return self.machine.call(
            LIBRARY, "cublasLtMatmul", self.lt, self.product, alpha, *at["a"], *at["b"],
            host(np.full(1, beta, SINGLE)), *at["c"], *at["d"], pointer(0), pointer(0), wide(0), pointer(0),
        ).status  # fmt: skip

    def heuristic(self) -> int:
        """The status of the question how to compute it."""
        layouts = [self.layouts[name] for name in "abcd"]
        return self.machine.call(
            LIBRARY, "cublasLtMatmulAlgoGetHeuristic", self.lt, self.product, *layouts, pointer(0), integer(1), out(96),
            out(4),
        ).status  # fmt: skip


def made(machine: Machine, function: str, *arguments: Argument) -> Argument:
    answer = machine.call(LIBRARY, function, out(8), *arguments)
    assert answer.status == SUCCESS
    return pointer(answer.number())


@contextmanager
def product(machine: Machine, batch: int, dtype: np.dtype[np.generic] = SINGLE) -> Iterator[Product]:
    """One without attributes but those of its batch."""
    kind = DATA_TYPES[dtype]
    lt = made(machine, "cublasLtCreate")
    of = Product(machine, lt, made(machine, "cublasLtMatmulDescCreate", integer(COMPUTE_32F), integer(kind)))
    try:
        for name, (rows, columns) in SHAPES.items():
            sizes = (integer(kind), wide(rows), wide(columns), wide(rows))
            of.layouts[name] = made(machine, "cublasLtMatrixLayoutCreate", *sizes)
            of.set_layout(name, BATCH, np.array(batch, np.int32))
            of.set_layout(name, STRIDE, np.array(rows * columns, np.int64))
        yield of
    finally:
        for layout in of.layouts.values():
            machine.call(LIBRARY, "cublasLtMatrixLayoutDestroy", layout)
        machine.call(LIBRARY, "cublasLtMatmulDescDestroy", of.product)
        machine.call(LIBRARY, "cublasLtDestroy", lt)


def matrices(batch: int) -> dict[str, list[Array]]:
    generator = np.random.default_rng(1)
    return {name: [random(generator, shape, SINGLE) for _ in range(batch)] for name, shape in SHAPES.items()}


@contextmanager
def placed(machine: Machine, of: dict[str, list[Array]]) -> Iterator[dict[str, int]]:
    """Addresses of the batches."""
    together = [np.concatenate([one.ravel(order="F") for one in of[name]]) for name in "abcd"]
    with machine.arrays(*together) as addresses:
        yield dict(zip("abcd", addresses, strict=True))


def results(machine: Machine, address: int, batch: int) -> list[Array]:
    found = machine.get(address, np.empty(batch * M * N, SINGLE))
    return [part.reshape((M, N), order="F") for part in np.split(found, batch)]


@pytest.mark.parametrize("batch", [1, 2])
def test_a_product_of_a_batch(machine: Machine, batch: int) -> None:
    of = matrices(batch)
    with product(machine, batch) as run, placed(machine, of) as addresses:
        # A stride of vectors of factors says nothing about one factor.
        run.set(ALPHA_STRIDE, np.array(M, np.int64))
        assert run.heuristic() == SUCCESS
        assert run.multiply(host(np.full(1, 2, SINGLE)), addresses, beta=0.5) == SUCCESS
        found = results(machine, addresses["d"], batch)
    for a, b, c, d in zip(of["a"], of["b"], of["c"], found, strict=True):
        np.testing.assert_allclose(d, 2 * (a @ b) + 0.5 * c, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("batch", "stride"), [(1, 0), (1, M), (3, 0)])
def test_a_factor_for_each_row_is_the_same_in_all_batches(machine: Machine, batch: int, stride: int) -> None:
    of, factors = matrices(batch), np.array([1, -2, 0.5], SINGLE)
    with (
        product(machine, batch) as run,
        placed(machine, of) as addresses,
        machine.arrays(factors) as (alpha,),
    ):
        run.set(POINTER_MODE, np.array(ALPHA_PER_ROW_BETA_ON_HOST, np.int32))
        run.set(ALPHA_STRIDE, np.array(stride, np.int64))
        assert run.multiply(pointer(alpha), addresses) == SUCCESS
        found = results(machine, addresses["d"], batch)
    for a, b, d in zip(of["a"], of["b"], found, strict=True):
        np.testing.assert_allclose(d, factors[:, None] * (a @ b), rtol=1e-4, atol=1e-4)


def test_factors_of_each_batch_are_not_supported(machine: Machine) -> None:
    of = matrices(2)
    with product(machine, 2) as run, placed(machine, of) as addresses:
        run.set(POINTER_MODE, np.array(ALPHA_PER_ROW_BETA_ON_HOST, np.int32))
        run.set(ALPHA_STRIDE, np.array(M, np.int64))
        assert run.heuristic() == NOT_SUPPORTED
        assert run.multiply(pointer(addresses["c"]), addresses) == NOT_SUPPORTED
        for d, before in zip(results(machine, addresses["d"], 2), of["d"], strict=True):
            np.testing.assert_array_equal(d, before)


@pytest.mark.parametrize("name", SHAPES)
def test_matrices_of_planes_are_not_supported(machine: Machine, name: str) -> None:
    """Their real and imaginary parts lie apart."""
    addresses = dict.fromkeys(SHAPES, 0)
    with product(machine, 1, np.dtype(np.complex64)) as run:
        assert run.heuristic() == SUCCESS
        run.set_layout(name, PLANE_OFFSET, np.array(256, np.int64))
        assert run.heuristic() == NOT_SUPPORTED
        assert run.multiply(host(np.ones(1, np.complex64)), addresses) == NOT_SUPPORTED
    assert machine.synchronize() == 0
