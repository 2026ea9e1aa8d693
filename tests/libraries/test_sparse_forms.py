"""cuSPARSE's triangles and other forms of a matrix: SpSV and SpSM, offsets and rows, sorted entries, dense matrices."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.libraries import cusparse
from tests.libraries.conftest import WITHOUT_LIBRARIES
from tests.libraries.cusparse import (
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
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
TYPES: Final = [np.dtype(kind) for kind in (np.float32, np.float64, np.complex64, np.complex128)]
seeds = st.integers(0, 2**32 - 1)
bases = st.integers(0, 1)
ALPHA: Final = 2.0


def solution(
    machine: Machine, a: Argument, operation: int, b: Array, c: Array, operation_b: int | None
) -> Array:
    """SpSM's C, or without an operation of B SpSV's y, by all functions that programs call for it."""
    kind = c.dtype
    name = "cusparseSpSV" if operation_b is None else "cusparseSpSM"
    describe = cusparse.vector if operation_b is None else cusparse.matrix
    own_operations = [integer(operation)] + ([] if operation_b is None else [integer(operation_b)])
    with (
        handle(machine) as own,
        machine.arrays(b, c) as (at_b, at_c),
        describe(machine, at_b, b) as of_b,
        describe(machine, at_c, c) as of_c,
        scalars(machine, HOST, kind, ALPHA) as (alpha,),
        cusparse.descriptor(machine, f"{name}_createDescr", f"{name}_destroyDescr") as analysis,
    ):
        arguments = [
            own,
            *own_operations,
            alpha,
            a,
            of_b,
            of_c,
            integer(DATA_TYPES[kind]),
            integer(0),
            analysis,
        ]
        room = call(machine, f"{name}_bufferSize", *arguments, out(8))
        assert (room.status, room.number()) == (SUCCESS, 0)
        assert call(machine, f"{name}_analysis", *arguments, pointer(0)).status == SUCCESS
        assert call(machine, f"{name}_solve", *arguments).status == SUCCESS
        assert machine.synchronize() == SUCCESS
        return machine.get(at_c, c)


def set_triangle(machine: Machine, a: Argument, upper: bool, unit: bool) -> None:
    for attribute, value in enumerate((upper, unit)):
        number = host(np.array(value, np.int32))
        assert (
            call(machine, "cusparseSpMatSetAttribute", a, integer(attribute), number, wide(4)).status
            == SUCCESS
        )


def triangle_of(full: Array, upper: bool, unit: bool) -> Array:
    kept = np.triu(exact(full)) if upper else np.tril(exact(full))
    if unit:
        np.fill_diagonal(kept, 1)
    return kept


@quickly
@given(
    st.builds(Layout, st.sampled_from(["Csr", "Coo"]), st.sampled_from([np.int32, np.int64]), bases),
    st.sampled_from(TYPES),
    st.sampled_from(list(OPERATIONS)),
    st.booleans(),
    st.booleans(),
    st.integers(1, 30),
    st.one_of(st.none(), st.tuples(st.integers(1, 9), st.integers(0, 1), st.sampled_from("CF"))),
    seeds,
)
def test_solutions_with_one_triangle_of_a_matrix(
    machine: Machine,
    layout: Layout,
    dtype: np.dtype[Any],
    operation: int,
    upper: bool,
    unit: bool,
    order: int,
    columns: tuple[int, int, str] | None,
    seed: int,
) -> None:
    """Entries on the other side of the diagonal are there, and are not looked at."""
    generator = np.random.default_rng(seed)
    full = (thin(generator, (order, order), dtype) / 4).astype(dtype)
    np.fill_diagonal(full, 2)
    if columns is None:
        b = random(generator, (order,), dtype)
        c, operation_b = np.zeros_like(b), None
        right = exact(b)
    else:
        n, operation_b, lies = columns
        b = random(generator, (order, n) if operation_b == 0 else (n, order), dtype, lies)
        c = np.zeros((order, n), dtype, order="F" if lies == "F" else "C")
        right = OPERATIONS[operation_b](exact(b))
    with placed(machine, layout, full) as (a, _):
        set_triangle(machine, a, upper, unit)
        x = solution(machine, a, operation, b, c, operation_b)
    wanted = np.linalg.solve(OPERATIONS[operation](triangle_of(full, upper, unit)), ALPHA * right)
    assert_close(x, wanted, scale=100)


def test_a_triangle_that_is_not_square_is_refused(machine: Machine) -> None:
    x = np.ones(4, np.float32)
    one = host(x[:1])
    with (
        handle(machine) as own,
        placed(machine, Layout(), np.eye(4, 5, dtype=np.float32)) as (a, _),
        machine.arrays(x) as (address,),
        cusparse.vector(machine, address, x) as of_x,
        cusparse.descriptor(machine, "cusparseSpSV_createDescr", "cusparseSpSV_destroyDescr") as analysis,
    ):
        arguments = own, integer(0), one, a, of_x, of_x, integer(0), integer(0)
        assert call(machine, "cusparseSpSV_solve", *arguments, analysis).status == INVALID_VALUE
        assert call(machine, "cusparseSpSV_solve", *arguments, pointer(0)).status == INVALID_VALUE


@quickly
@given(st.integers(0, 40), st.integers(0, 100), bases, seeds)
def test_offsets_of_rows_and_back(machine: Machine, m: int, entries: int, base: int, seed: int) -> None:
    rows = np.sort(np.random.default_rng(seed).integers(0, max(m, 1), entries if m else 0)).astype(np.int32)
    offsets = np.searchsorted(rows, np.arange(m + 1)).astype(np.int32)
    count, size, counted_from = integer(rows.size), integer(m), integer(base)
    with (
        handle(machine) as own,
        machine.arrays(rows + np.int32(base), np.zeros_like(offsets), np.zeros_like(rows)) as (
            given_rows,
            made,
            back,
        ),
    ):
        compress = own, pointer(given_rows), count, size, pointer(made), counted_from
        assert call(machine, "cusparseXcoo2csr", *compress).status == SUCCESS
        expand = own, pointer(made), count, size, pointer(back), counted_from
        assert call(machine, "cusparseXcsr2coo", *expand).status == SUCCESS
        assert np.array_equal(machine.get(made, offsets), offsets + base)
        assert np.array_equal(machine.get(back, rows), rows + base)


@quickly
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 60), st.booleans(), seeds)
def test_entries_are_sorted_and_the_permutation_says_how(
    machine: Machine, m: int, n: int, entries: int, by_row: bool, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    rows, columns = (generator.integers(0, size, entries).astype(np.int32) for size in (m, n))
    order = np.lexsort((columns, rows) if by_row else (rows, columns))
    with handle(machine) as own, machine.arrays(rows, columns, np.zeros_like(rows)) as addresses:
        size, (at_rows, at_columns, permutation) = (
            [integer(m), integer(n), integer(entries)],
            map(pointer, addresses),
        )
        room = call(machine, "cusparseXcoosort_bufferSizeExt", own, *size, at_rows, at_columns, out(8))
        assert room.status == SUCCESS
        identity = call(machine, "cusparseCreateIdentityPermutation", own, integer(entries), permutation)
        assert identity.status == SUCCESS
        function = f"cusparseXcoosortBy{'Row' if by_row else 'Column'}"
        assert (
            call(machine, function, own, *size, at_rows, at_columns, permutation, pointer(0)).status
            == SUCCESS
        )
        results = [machine.get(address, rows) for address in addresses]
    assert np.array_equal(results[0], rows[order])
    assert np.array_equal(results[1], columns[order])
    assert np.array_equal(results[2], order)


@pytest.mark.parametrize("base", [0, 1])
def test_columns_are_sorted_within_their_rows(machine: Machine, base: int) -> None:
    offsets = np.array([0, 3, 3, 5], np.int32) + np.int32(base)
    columns = np.array([4, 0, 2, 3, 1], np.int32) + np.int32(base)
    wanted = np.array([1, 2, 0, 4, 3])
    description = pointer(call(machine, "cusparseCreateMatDescr", out(8)).number())
    with handle(machine) as own, machine.arrays(offsets, columns, np.arange(5, dtype=np.int32)) as addresses:
        size = integer(3), integer(5), integer(5)
        arguments = [description, *map(pointer, addresses), pointer(0)]
        assert (
            call(machine, "cusparseXcsrsort", own, *size, pointer(0), *arguments[1:]).status == INVALID_VALUE
        )
        assert call(machine, "cusparseXcsrsort", own, *size, *arguments).status == SUCCESS
        assert np.array_equal(machine.get(addresses[1], columns), columns[wanted])
        assert np.array_equal(machine.get(addresses[2], columns), wanted)
    assert call(machine, "cusparseDestroyMatDescr", description).status == SUCCESS


@quickly
@given(
    st.builds(Layout, st.sampled_from(["Csr", "Csc", "Coo"]), st.sampled_from([np.int32, np.int64]), bases),
    st.sampled_from([*TYPES, np.dtype(np.float16)]),
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from("CF"),
    seeds,
)
def test_sparse_to_dense(
    machine: Machine, layout: Layout, dtype: np.dtype[Any], rows: int, columns: int, order: str, seed: int
) -> None:
    a = thin(np.random.default_rng(seed), (rows, columns), dtype)
    b = np.full(a.shape, np.nan, dtype, order="F" if order == "F" else "C")
    with (
        handle(machine) as own,
        placed(machine, layout, a) as (sparse, _),
        machine.arrays(b) as (address,),
        cusparse.matrix(machine, address, b) as of_b,
    ):
        assert (
            call(machine, "cusparseSparseToDense_bufferSize", own, sparse, of_b, integer(0), out(8)).status
            == SUCCESS
        )
        assert (
            call(machine, "cusparseSparseToDense", own, sparse, of_b, integer(0), pointer(0)).status
            == SUCCESS
        )
        assert np.array_equal(machine.get(address, b), a)


def test_wrong_arguments_of_conversions(machine: Machine) -> None:
    zero, none = integer(0), pointer(0)
    with handle(machine) as own, machine.arrays(np.zeros(8, np.int32)) as (address,):
        here = pointer(address)
        for function in ("cusparseXcoo2csr", "cusparseXcsr2coo"):
            assert (
                call(machine, function, none, here, integer(2), integer(2), here, zero).status
                == NOT_INITIALIZED
            )
            assert (
                call(machine, function, own, here, integer(-1), integer(2), here, zero).status
                == INVALID_VALUE
            )
            assert (
                call(machine, function, own, here, integer(2), integer(-1), here, zero).status
                == INVALID_VALUE
            )
            assert (
                call(machine, function, own, none, integer(2), integer(2), here, zero).status == INVALID_VALUE
            )
            assert (
                call(machine, function, own, here, integer(2), integer(2), here, integer(2)).status
                == INVALID_VALUE
            )
        assert (
            call(machine, "cusparseCreateIdentityPermutation", own, integer(-1), here).status == INVALID_VALUE
        )
        a, b = np.eye(2, dtype=np.float32), np.zeros((2, 3), np.float32)
        double = np.zeros((2, 2))
        with (
            placed(machine, Layout(), a) as (sparse, _),
            cusparse.matrix(machine, address, b) as too_wide,
            cusparse.matrix(machine, address, double) as of_doubles,
        ):
            assert (
                call(machine, "cusparseSparseToDense", own, sparse, too_wide, zero, none).status
                == INVALID_VALUE
            )
            assert (
                call(machine, "cusparseSparseToDense", own, sparse, of_doubles, zero, none).status
                == NOT_SUPPORTED
            )
