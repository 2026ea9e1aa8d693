"""cublasLtMatmul by its descriptors: what it computes, and which attributes it refuses rather than ignore."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest

from tests.libraries.cublas import INVALID_VALUE, NOT_SUPPORTED, SUCCESS, random
from tests.libraries.cublaslt import (
    ALPHA_STRIDE,
    BATCH,
    BIAS,
    COMPUTE_16F,
    COMPUTE_32F,
    EPILOGUE,
    LARGEST_D,
    PLANE_OFFSET,
    POINTER_MODE,
    SCALE_D,
    SINGLE,
    STRIDE,
    TRANSPOSE_A,
    WITH_BIAS,
    Product,
    Shape,
    product_of,
    turned_shapes,
)
from tests.libraries.machine import DATA_TYPES, Array, Machine, host, integer, out, pointer, wide

#: cublasLtPointerMode_t.
ALPHA_PER_ROW_BETA_ON_HOST: Final = 4
M, N, K = 3, 4, 5
SHAPES: Final = {"a": (M, K), "b": (K, N), "c": (M, N), "d": (M, N)}
HALF: Final = np.dtype(np.float16)
BFLOAT: Final = np.dtype(ml_dtypes.bfloat16)
E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
ONE: Final = host(np.ones(1, SINGLE))


@contextmanager
def product(machine: Machine, batch: int, dtype: np.dtype[Any] = SINGLE) -> Iterator[Product]:
    """One without attributes but those of its batch."""
    shapes = {name: Shape(dtype, rows, columns, rows) for name, (rows, columns) in SHAPES.items()}
    with product_of(machine, shapes, scalar=dtype) as of:
        for name, (rows, columns) in SHAPES.items():
            of.set_layout(name, BATCH, np.array(batch, np.int32))
            of.set_layout(name, STRIDE, np.array(rows * columns, np.int64))
        yield of


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


@pytest.mark.parametrize("library", ["libcublasLt.so.12", "libcublasLt.so.13"])
def test_a_product_fits_into_what_the_first_headers_of_cuda_12_have_for_it(
    machine: Machine, library: str
) -> None:
    room = 184  # cublasLtMatmulDescOpaque_t in CUDA 12.0 and 12.1
    passed = (out(room + 8), wide(room), integer(COMPUTE_32F), integer(DATA_TYPES[SINGLE]))
    answer = machine.call(library, "cublasLtMatmulDescInit_internal", *passed)
    assert answer.status == SUCCESS
    assert not any(answer.outputs[0][room:])


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


def shapes_with(name: str, leading: int) -> dict[str, Shape]:
    """Of single matrices, one of which has another distance of columns."""
    shapes = {key: Shape(SINGLE, rows, columns, rows) for key, (rows, columns) in SHAPES.items()}
    return shapes | {name: shapes[name]._replace(leading=leading)}


def test_one_column_may_be_all_of_c(machine: Machine) -> None:
    """PyTorch adds a bias so where it has a factor."""
    of = matrices(1)
    with product_of(machine, shapes_with("c", 0)) as run, placed(machine, of) as addresses:
        assert run.heuristic() == SUCCESS
        assert run.multiply(ONE, addresses, beta=0.5) == SUCCESS
        (found,) = results(machine, addresses["d"], 1)
    wanted = of["a"][0] @ of["b"][0] + 0.5 * of["c"][0][:, :1]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["a", "b", "d"])
def test_no_other_matrix_is_one_column(machine: Machine, name: str) -> None:
    with product_of(machine, shapes_with(name, 0)) as run:
        assert run.heuristic() == INVALID_VALUE
        assert run.multiply(ONE, dict.fromkeys(SHAPES, 0)) == INVALID_VALUE


@pytest.mark.parametrize("offset", [0, 1])
def test_a_bias_may_lie_at_any_of_its_elements(machine: Machine, offset: int) -> None:
    """Beside a worker it is moved to where kernels read 16 bytes at once."""
    of, bias = matrices(1), np.array([5, 1, -2, 4], SINGLE)
    with (
        product(machine, 1) as run,
        placed(machine, of) as addresses,
        machine.arrays(bias) as (at,),
    ):
        run.set(EPILOGUE, np.array(WITH_BIAS, np.uint32))
        run.set(BIAS, np.array(at + 4 * offset, np.uint64))
        assert run.multiply(ONE, addresses) == SUCCESS
        (found,) = results(machine, addresses["d"], 1)
    wanted = of["a"][0] @ of["b"][0] + bias[offset : offset + M, None]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_the_largest_element_is_that_before_the_factor_of_d(machine: Machine) -> None:
    m, n, k = 144, 160, 32  # more than one part
    generator = np.random.default_rng(2)
    a, b = (generator.integers(-8, 9, (rows, k)).astype(E4M3) for rows in (m, n))
    d, largest, scale = np.zeros((n, m), E4M3), np.full(1, np.nan, SINGLE), np.full(1, 0.5, SINGLE)
    with (
        product_of(machine, turned_shapes(m, n, k, E4M3, E4M3, E4M3, BFLOAT)) as run,
        machine.arrays(a, b, d, largest, scale) as (at_a, at_b, at_d, at_largest, at_scale),
    ):
        run.set(TRANSPOSE_A, np.array(1, np.int32))
        run.set(SCALE_D, np.array(at_scale, np.uint64))
        run.set(LARGEST_D, np.array(at_largest, np.uint64))
        assert run.heuristic() == SUCCESS
        for factor in (2, 1):  # the second time it becomes smaller
            addresses = {"a": at_a, "b": at_b, "c": 0, "d": at_d}
            assert run.multiply(host(np.full(1, factor, SINGLE)), addresses) == SUCCESS
            exact = factor * (b.astype(np.float64) @ a.astype(np.float64).T)
            assert machine.get(at_largest, largest)[0] == np.abs(exact).max()
        found = machine.get(at_d, d)
    # What is beyond the type's range becomes its largest number.
    wanted = np.clip(exact / 2, -448, 448).astype(E4M3)
    np.testing.assert_array_equal(found.astype(SINGLE), wanted.astype(SINGLE))


def test_the_largest_element_of_a_wide_type_is_not_supported(machine: Machine) -> None:
    with product(machine, 1) as run:
        run.set(LARGEST_D, np.array(256, np.uint64))
        assert run.heuristic() == NOT_SUPPORTED
        assert run.multiply(ONE, dict.fromkeys(SHAPES, 0)) == NOT_SUPPORTED


@pytest.mark.parametrize("scalar", [HALF, SINGLE])
def test_sums_of_half_precision_have_factors_of_it(machine: Machine, scalar: np.dtype[Any]) -> None:
    shapes = {name: Shape(HALF, rows, columns, rows) for name, (rows, columns) in SHAPES.items()}
    with product_of(machine, shapes, COMPUTE_16F, scalar) as run:
        assert run.heuristic() == (SUCCESS if scalar == HALF else NOT_SUPPORTED)


def narrow(
    machine: Machine, left: np.dtype[Any], right: np.dtype[Any], transpose_a: int = 1, leading: int = 32,
    address: int = 0,
) -> tuple[int, int]:  # fmt: skip
    """The statuses of the question for a product of fp8 that nobody computes, and of the product."""
    shapes = turned_shapes(0, 32, 32, left, right, SINGLE, SINGLE)
    if transpose_a == 0:
        shapes["a"] = Shape(left, 0, 32, 0)
    shapes["b"] = shapes["b"]._replace(leading=leading)
    with product_of(machine, shapes, COMPUTE_32F) as run:
        run.set(TRANSPOSE_A, np.array(transpose_a, np.int32))
        return run.heuristic(), run.multiply(ONE, {"a": 0, "b": address, "c": 0, "d": 0})


def test_a_product_of_fp8_is_one_that_nvidias_library_has(machine: Machine) -> None:
    """On the software GPU's usual compute capability: 12.0."""
    assert narrow(machine, E4M3, E4M3) == (SUCCESS, SUCCESS)
    assert narrow(machine, E5M2, E4M3) == (SUCCESS, SUCCESS)
    assert narrow(machine, E5M2, E5M2) == (NOT_SUPPORTED, NOT_SUPPORTED)
    assert narrow(machine, E4M3, E4M3, transpose_a=0) == (NOT_SUPPORTED, NOT_SUPPORTED)
    assert narrow(machine, E4M3, E4M3, leading=40) == (NOT_SUPPORTED, NOT_SUPPORTED)
    assert narrow(machine, E4M3, E4M3, address=8) == (SUCCESS, NOT_SUPPORTED)
    assert narrow(machine, E4M3, HALF) == (NOT_SUPPORTED, NOT_SUPPORTED)


@pytest.mark.parametrize(("major", "version"), [(12, 120_900), (13, 130_100)])
def test_both_libraries_say_the_version_that_has_factors_of_blocks(
    machine: Machine, major: int, version: int
) -> None:
    assert machine.call(f"libcublasLt.so.{major}", "cublasLtGetVersion").status == version
    answer = machine.call(f"libcublas.so.{major}", "cublasGetVersion_v2", pointer(0), out(4))
    assert (answer.status, answer.number()) == (SUCCESS, version)
