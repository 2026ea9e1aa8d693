"""cuSPARSE's products: SpMV, SpMM and SDDMM against numpy, and what they answer to wrong arguments."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.libraries import cusparse
from tests.libraries.conftest import WITHOUT_LIBRARIES
from tests.libraries.cusparse import (
    DEVICE,
    HOST,
    INVALID_VALUE,
    NOT_INITIALIZED,
    NOT_SUPPORTED,
    OPERATIONS,
    SUCCESS,
    Layout,
    assert_close,
    call,
    exact,
    handle,
    placed,
    random,
    scalars,
    thin,
)
from tests.libraries.machine import DATA_TYPES, Argument, Array, Machine, host, integer, out, pointer, wide

pytestmark = WITHOUT_LIBRARIES

quickly = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
TYPES: Final = [np.dtype(kind) for kind in (np.float32, np.float64, np.complex64, np.complex128)]
layouts = st.builds(
    Layout, st.sampled_from(["Csr", "Csc", "Coo"]), st.sampled_from([np.int32, np.int64]), st.integers(0, 1)
)
types = st.sampled_from(TYPES)
operations = st.sampled_from(list(OPERATIONS))
orders = st.sampled_from("CF")
sizes = st.integers(1, 40)
seeds = st.integers(0, 2**32 - 1)
modes = st.sampled_from([HOST, DEVICE])
betas = st.sampled_from([0, 1.5 - 0.5j])
ALPHA: Final = 0.75 + 0.25j


def factor(value: complex, dtype: np.dtype[Any]) -> complex:
    return complex(value) if dtype.kind == "c" else complex(value).real


def multiplied(
    machine: Machine,
    layout: Layout,
    a: Array,
    operation: int,
    x: Array,
    y: Array,
    beta: complex,
    mode: int = HOST,
) -> Array:
    """SpMV's y, with the three functions called as programs call them."""
    kind = np.dtype(np.float32) if a.dtype.itemsize == 2 else x.dtype
    with (
        handle(machine, mode) as own,
        placed(machine, layout, a) as (sparse, _),
        machine.arrays(x, y) as (at_x, at_y),
        cusparse.vector(machine, at_x, x) as of_x,
        cusparse.vector(machine, at_y, y) as of_y,
        scalars(machine, mode, kind, ALPHA, beta) as (alpha, of_beta),
    ):
        arguments = [
            own,
            integer(operation),
            alpha,
            sparse,
            of_x,
            of_beta,
            of_y,
            integer(DATA_TYPES[kind]),
            integer(0),
        ]
        room = call(machine, "cusparseSpMV_bufferSize", *arguments, out(8))
        assert (room.status, room.number()) == (SUCCESS, 0)
        assert call(machine, "cusparseSpMV_preprocess", *arguments, pointer(0)).status == SUCCESS
        assert call(machine, "cusparseSpMV", *arguments, pointer(0)).status == SUCCESS
        assert machine.synchronize() == SUCCESS
        return machine.get(at_y, y)


@quickly
@given(layouts, types, operations, sizes, sizes, betas, modes, seeds)
def test_spmv(
    machine: Machine,
    layout: Layout,
    dtype: np.dtype[Any],
    operation: int,
    rows: int,
    columns: int,
    beta: complex,
    mode: int,
    seed: int,
) -> None:
    generator = np.random.default_rng(seed)
    a = thin(generator, (rows, columns), dtype)
    applied = OPERATIONS[operation](exact(a))
    x = random(generator, (applied.shape[1],), dtype)
    # What is there is not read where beta is 0.
    y = random(generator, (applied.shape[0],), dtype) if beta else np.full(applied.shape[0], np.nan, dtype)
    wanted = factor(ALPHA, dtype) * (applied @ exact(x))
    if beta:
        wanted = wanted + factor(beta, dtype) * exact(y)
    assert_close(multiplied(machine, layout, a, operation, x, y, beta, mode), wanted)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("result", ["narrow", "single"])
def test_spmv_of_narrow_types_adds_up_in_single_precision(machine: Machine, kind: Any, result: str) -> None:
    generator = np.random.default_rng(3)
    dtype = np.dtype(kind)
    a, x = thin(generator, (9, 12), dtype), random(generator, (12,), dtype)
    y = np.zeros(9, dtype if result == "narrow" else np.float32)
    wanted = ALPHA.real * (exact(a) @ exact(x))
    assert_close(multiplied(machine, Layout(), a, 0, x, y, 0), wanted)


def test_a_real_matrix_times_a_complex_vector(machine: Machine) -> None:
    generator = np.random.default_rng(4)
    a, x = thin(generator, (7, 5), TYPES[0]), random(generator, (5,), TYPES[2])
    y = np.zeros(7, np.complex64)
    assert_close(multiplied(machine, Layout("Coo"), a, 0, x, y, 0), ALPHA * (exact(a) @ exact(x)))


def spmm(
    machine: Machine,
    own: Argument,
    operations_of: tuple[int, int],
    kind: np.dtype[Any],
    *descriptors: Argument,
) -> int:
    """C = alpha · op(A) · op(B), with the host's scalars."""
    alpha, beta = (host(np.array(factor(value, kind), kind)) for value in (ALPHA, 0))
    a, b, c = descriptors
    arguments = [
        own,
        *map(integer, operations_of),
        alpha,
        a,
        b,
        beta,
        c,
        integer(DATA_TYPES[kind]),
        integer(0),
    ]
    room = call(machine, "cusparseSpMM_bufferSize", *arguments, out(8))
    if room.status != SUCCESS:
        return room.status
    assert call(machine, "cusparseSpMM_preprocess", *arguments, pointer(0)).status == SUCCESS
    return call(machine, "cusparseSpMM", *arguments, pointer(0)).status


@quickly
@given(layouts, types, operations, operations, orders, orders, sizes, sizes, st.integers(1, 150), seeds)
def test_spmm(
    machine: Machine,
    layout: Layout,
    dtype: np.dtype[Any],
    operation_a: int,
    operation_b: int,
    order_b: str,
    order_c: str,
    rows: int,
    columns: int,
    n: int,
    seed: int,
) -> None:
    generator = np.random.default_rng(seed)
    a = thin(generator, (rows, columns), dtype)
    left = OPERATIONS[operation_a](exact(a))
    k = left.shape[1]
    b = random(generator, (k, n) if operation_b == 0 else (n, k), dtype, order_b)
    c = np.full((left.shape[0], n), np.nan, dtype, order="F" if order_c == "F" else "C")
    with (
        handle(machine) as own,
        placed(machine, layout, a) as (sparse, _),
        machine.arrays(b, c) as (at_b, at_c),
        cusparse.matrix(machine, at_b, b) as of_b,
        cusparse.matrix(machine, at_c, c) as of_c,
    ):
        assert spmm(machine, own, (operation_a, operation_b), dtype, sparse, of_b, of_c) == SUCCESS
        result = machine.get(at_c, c)
    assert_close(result, factor(ALPHA, dtype) * (left @ OPERATIONS[operation_b](exact(b))))


@pytest.mark.parametrize("shared", [True, False])
def test_a_batch_of_products_with_one_sparse_matrix_or_many(machine: Machine, shared: bool) -> None:
    generator = np.random.default_rng(5)
    dtype, batch = TYPES[1], 3
    pattern = thin(generator, (6, 4), dtype) != 0
    # Batches have as many entries each.
    dense = [np.where(pattern, random(generator, (6, 4), dtype), 0) for _ in range(1 if shared else batch)]
    offsets, indices, _ = Layout().arrays(dense[0])
    values = np.concatenate([Layout().arrays(one)[2] for one in dense])
    b, c = random(generator, (batch, 4, 5), dtype), np.zeros((batch, 6, 5), dtype)
    with (
        handle(machine) as own,
        machine.arrays(offsets, np.tile(indices, len(dense)), values, b, c) as (*parts, at_b, at_c),
        cusparse.sparse(machine, Layout(), (6, 4), dtype, parts, indices.size) as a,
        cusparse.matrix(machine, at_b, b) as of_b,
        cusparse.matrix(machine, at_c, c) as of_c,
    ):
        if not shared:
            batches = integer(batch), wide(0), wide(indices.size)
            assert call(machine, "cusparseCsrSetStridedBatch", a, *batches).status == SUCCESS
        assert spmm(machine, own, (0, 0), dtype, a, of_b, of_c) == SUCCESS
        result = machine.get(at_c, c)
    assert_close(result, ALPHA.real * (np.stack(dense) @ b))


@quickly
@given(
    st.builds(Layout, st.just("Csr"), st.sampled_from([np.int32, np.int64]), st.integers(0, 1)),
    types,
    operations,
    operations,
    orders,
    st.integers(0, 20),
    sizes,
    betas,
    seeds,
)
def test_sddmm(
    machine: Machine,
    layout: Layout,
    dtype: np.dtype[Any],
    operation_a: int,
    operation_b: int,
    order: str,
    k: int,
    n: int,
    beta: complex,
    seed: int,
) -> None:
    generator = np.random.default_rng(seed)
    m = 11
    c = thin(generator, (m, n), dtype)
    a = random(generator, (m, k) if operation_a == 0 else (k, m), dtype, order)
    b = random(generator, (k, n) if operation_b == 0 else (n, k), dtype, order)
    values = layout.arrays(c)[2]
    with (
        handle(machine) as own,
        placed(machine, layout, c) as (sparse, addresses),
        machine.arrays(a, b) as (at_a, at_b),
        cusparse.matrix(machine, at_a, a) as of_a,
        cusparse.matrix(machine, at_b, b) as of_b,
        scalars(machine, HOST, dtype, ALPHA, beta) as (alpha, of_beta),
    ):
        two = integer(operation_a), integer(operation_b)
        arguments = [own, *two, alpha, of_a, of_b, of_beta, sparse, integer(DATA_TYPES[dtype]), integer(0)]
        assert call(machine, "cusparseSDDMM_bufferSize", *arguments, out(8)).status == SUCCESS
        assert call(machine, "cusparseSDDMM_preprocess", *arguments, pointer(0)).status == SUCCESS
        assert call(machine, "cusparseSDDMM", *arguments, pointer(0)).status == SUCCESS
        result = machine.get(addresses[2], values)
    product = OPERATIONS[operation_a](exact(a)) @ OPERATIONS[operation_b](exact(b))
    assert_close(result, (factor(ALPHA, dtype) * product + factor(beta, dtype) * exact(c))[c != 0])


def test_results_do_not_depend_on_where_parts_end(machine: Machine) -> None:
    """Rows of many entries, in more parts than one, and a second time to the bit."""
    generator = np.random.default_rng(6)
    a = thin(generator, (3000, 300), TYPES[0])
    x = random(generator, (300,), TYPES[0])
    y = np.zeros(3000, np.float32)
    results = [multiplied(machine, Layout(format), a, 0, x, y, 0) for format in ("Csr", "Csr", "Coo", "Csc")]
    assert_close(results[0], ALPHA.real * (exact(a) @ exact(x)))
    for other in results[1:]:
        assert np.array_equal(results[0], other)


def test_wrong_arguments_of_spmv(machine: Machine) -> None:
    dtype = TYPES[0]
    a, x, y = np.eye(4, 6, dtype=dtype), np.ones(6, dtype), np.ones(4, dtype)
    one = host(np.array(1, dtype))
    with (
        handle(machine) as own,
        placed(machine, Layout(), a) as (sparse, _),
        machine.arrays(x, y) as (at_x, at_y),
        cusparse.vector(machine, at_x, x) as of_x,
        cusparse.vector(machine, at_y, y) as of_y,
    ):
        right = [own, integer(0), one, sparse, of_x, one, of_y, integer(0), integer(0), pointer(0)]

        def status(**changes: Argument) -> int:
            arguments = list(right)
            for name, value in changes.items():
                arguments[int(name[1:])] = value
            return call(machine, "cusparseSpMV", *arguments).status

        assert status() == SUCCESS
        assert status(_0=pointer(0)) == NOT_INITIALIZED
        assert status(_1=integer(3)) == INVALID_VALUE
        assert status(_1=integer(1)) == INVALID_VALUE  # the vectors have the sizes of A
        assert status(_2=pointer(0)) == INVALID_VALUE
        assert status(_3=pointer(0)) == INVALID_VALUE
        assert status(_3=of_x) == INVALID_VALUE
        assert status(_4=of_y) == INVALID_VALUE
        assert status(_5=pointer(0)) == INVALID_VALUE
        assert status(_7=integer(DATA_TYPES[TYPES[1]])) == NOT_SUPPORTED
        assert status(_8=integer(77)) == INVALID_VALUE
        assert machine.synchronize() == SUCCESS


def test_spmm_of_shapes_that_do_not_fit_is_refused(machine: Machine) -> None:
    dtype = TYPES[0]
    a, b, c = np.eye(4, 6, dtype=dtype), np.ones((6, 3), dtype), np.ones((4, 3), dtype)
    with (
        handle(machine) as own,
        placed(machine, Layout(), a) as (sparse, _),
        machine.arrays(b, c) as (at_b, at_c),
        cusparse.matrix(machine, at_b, b) as of_b,
        cusparse.matrix(machine, at_c, c) as of_c,
    ):
        assert spmm(machine, own, (0, 0), dtype, sparse, of_b, of_c) == SUCCESS
        assert spmm(machine, own, (1, 0), dtype, sparse, of_b, of_c) == INVALID_VALUE
        assert spmm(machine, own, (0, 1), dtype, sparse, of_b, of_c) == INVALID_VALUE
        assert spmm(machine, own, (0, 0), dtype, sparse, of_c, of_b) == INVALID_VALUE
        assert spmm(machine, own, (0, 0), TYPES[1], sparse, of_b, of_c) == NOT_SUPPORTED
