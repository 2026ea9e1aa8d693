"""Solutions with sparse triangles, against numpy: forms, halves, transposed ones, many right-hand sides, blocks."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.libraries.cusparse import (
    FORMATS,
    INVALID_VALUE,
    LIBRARY,
    OPERATIONS,
    SUCCESS,
    Cusparse,
    close,
    cusparse,
    quickly,
    sparse,
)
from tests.libraries.machine import DATA_TYPES, Argument, Array, Machine, host, integer, out, pointer

LETTERS: Final = {"S": np.float32, "D": np.float64, "C": np.complex64, "Z": np.complex128}
LOWER, UPPER = 0, 1
ZERO_PIVOT: Final = 9
dtypes = st.sampled_from([np.dtype(kind) for kind in LETTERS.values()])
forms = st.sampled_from(FORMATS)
operations = st.sampled_from(sorted(OPERATIONS))
halves = st.sampled_from([LOWER, UPPER])
seeds = st.integers(0, 99)


def whole(generator: np.random.Generator, size: int, dtype: np.dtype[Any]) -> Array:
    """A matrix with both triangles, and a large diagonal."""
    array = sparse(generator, size, size, dtype) / np.array(8 * max(size, 1), dtype)
    np.fill_diagonal(array, generator.integers(2, 5, size).astype(dtype))
    made: Array = array.astype(dtype)
    return made


def triangle(array: Array, half: int, unit: int) -> Array:
    made: Array = np.tril(array) if half == LOWER else np.triu(array)
    if unit:
        np.fill_diagonal(made, 1)
    return made


def set_triangle(machine: Machine, descriptor: Argument, half: int, unit: int) -> None:
    for attribute, value in enumerate((half, unit)):
        answer = machine.call(
            LIBRARY,
            "cusparseSpMatSetAttribute",
            descriptor,
            integer(attribute),
            host(np.array([value], np.int32)),
            ("l", 4),
        )
        assert answer.status == SUCCESS


@given(
    size=st.integers(0, 12),
    dtype=dtypes,
    form=forms,
    op=operations,
    half=halves,
    unit=st.integers(0, 1),
    seed=seeds,
)
@quickly
def test_a_triangle_and_a_vector(
    machine: Machine, size: int, dtype: np.dtype[Any], form: str, op: int, half: int, unit: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    array = whole(generator, size, dtype)
    x, y = sparse(generator, 1, size, dtype, 1)[0], np.zeros(size, dtype)
    wanted = np.linalg.solve(OPERATIONS[op](triangle(array, half, unit)), 2 * x)
    with cusparse(machine) as library:
        a, (source, _), (into, address) = library.matrix(array, form), library.vector(x), library.vector(y)
        set_triangle(machine, a.descriptor, half, unit)
        plan = library.made("cusparseSpSV_createDescr", "cusparseSpSV_destroyDescr")
        arguments = [
            integer(op),
            library.factor(dtype, 2),
            a.descriptor,
            source,
            into,
            integer(DATA_TYPES[dtype]),
            integer(0),
            plan,
        ]
        assert library("cusparseSpSV_solve", *arguments).status == INVALID_VALUE
        assert library("cusparseSpSV_bufferSize", *arguments, out(8)).status == SUCCESS
        assert library("cusparseSpSV_analysis", *arguments, pointer(0)).status == SUCCESS
        assert library("cusparseSpSV_solve", *arguments).status == SUCCESS
        close(library.get(address, y), wanted)


@given(
    size=st.integers(1, 10),
    count=st.integers(0, 40),
    dtype=dtypes,
    form=forms,
    ops=st.tuples(operations, st.integers(0, 1)),
    half=halves,
    seed=seeds,
)
@quickly
def test_a_triangle_and_many_columns(
    machine: Machine,
    size: int,
    count: int,
    dtype: np.dtype[Any],
    form: str,
    ops: tuple[int, int],
    half: int,
    seed: int,
) -> None:
    generator = np.random.default_rng(seed)
    array = whole(generator, size, dtype)
    b = sparse(generator, *((size, count) if ops[1] == 0 else (count, size)), dtype, 1)
    c = np.zeros((size, count), dtype)
    wanted = np.linalg.solve(OPERATIONS[ops[0]](triangle(array, half, 0)), OPERATIONS[ops[1]](b))
    with cusparse(machine) as library:
        a, (source, _), (into, address) = library.matrix(array, form), library.dense(b), library.dense(c)
        set_triangle(machine, a.descriptor, half, 0)
        plan = library.made("cusparseSpSM_createDescr", "cusparseSpSM_destroyDescr")
        arguments = [
            *map(integer, ops),
            library.factor(dtype, 1),
            a.descriptor,
            source,
            into,
            integer(DATA_TYPES[dtype]),
            integer(0),
            plan,
        ]
        assert library("cusparseSpSM_bufferSize", *arguments, out(8)).status == SUCCESS
        assert library("cusparseSpSM_analysis", *arguments, pointer(0)).status == SUCCESS
        assert library("cusparseSpSM_solve", *arguments).status == SUCCESS
        close(library.get(address, c), wanted)


class Blocks:
    """A matrix of square blocks, as the older functions take it."""

    def __init__(
        self, library: Cusparse, array: Array, block: int, direction: int, half: int = LOWER
    ) -> None:
        count, columns = array.shape[0] // block, array.shape[1] // block
        tiles = array.reshape(count, block, columns, block).swapaxes(1, 2)
        there = np.abs(tiles).sum(axis=(2, 3)) != 0
        values = tiles[there] if direction == 0 else tiles[there].swapaxes(1, 2)
        offsets = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int32) + 1
        self.entries = len(values)
        descriptor = library.made("cusparseCreateMatDescr", "cusparseDestroyMatDescr")
        for setting, value in (("IndexBase", 1), ("FillMode", half)):
            call = library.machine.call(LIBRARY, f"cusparseSetMat{setting}", descriptor, integer(value))
            assert call.status == SUCCESS
        places = [library.put(np.ascontiguousarray(part)) for part in (values, offsets)]
        places.append(library.put((np.argwhere(there)[:, 1] + 1).astype(np.int32)))
        self.arguments = [descriptor, *map(pointer, places), integer(block)]


@pytest.mark.parametrize("letter", LETTERS)
@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    block=st.integers(1, 3),
    direction=st.integers(0, 1),
    op=operations,
    seed=seeds,
)
@quickly
def test_products_with_square_blocks(
    machine: Machine, letter: str, shape: tuple[int, int], block: int, direction: int, op: int, seed: int
) -> None:
    dtype = np.dtype(LETTERS[letter])
    generator = np.random.default_rng(seed)
    array = sparse(generator, shape[0] * block, shape[1] * block, dtype)
    applied = OPERATIONS[op](array)
    x, y = sparse(generator, 1, applied.shape[1], dtype, 1)[0], np.ones(applied.shape[0], dtype)
    b = np.asfortranarray(sparse(generator, array.shape[1], 3, dtype, 1))
    c = np.zeros((array.shape[0], 3), dtype, order="F")
    with cusparse(machine) as library:
        blocks = Blocks(library, array, block, direction)
        one = library.factor(dtype, 1)
        places = [library.put(x), library.put(y), library.put(b), library.put(c)]
        sizes = [*map(integer, (direction, op, *shape, blocks.entries))]
        tail = [pointer(places[0]), one, pointer(places[1])]
        assert library(f"cusparse{letter}bsrmv", *sizes, one, *blocks.arguments, *tail).status == SUCCESS
        close(library.get(places[1], y), applied @ x + 1)
        sizes = [*map(integer, (direction, 0, 0, shape[0], 3, shape[1], blocks.entries))]
        tail = [
            pointer(places[2]),
            integer(len(b)),
            library.factor(dtype, 0),
            pointer(places[3]),
            integer(len(c)),
        ]
        assert library(f"cusparse{letter}bsrmm", *sizes, one, *blocks.arguments, *tail).status == SUCCESS
        close(library.get(places[3], c), array @ b)


@pytest.mark.parametrize("letter", LETTERS)
@given(
    count=st.integers(1, 4),
    block=st.integers(1, 3),
    direction=st.integers(0, 1),
    op=operations,
    half=halves,
    seed=seeds,
)
@quickly
def test_solutions_with_square_blocks(
    machine: Machine, letter: str, count: int, block: int, direction: int, op: int, half: int, seed: int
) -> None:
    dtype = np.dtype(LETTERS[letter])
    generator = np.random.default_rng(seed)
    array = whole(generator, count * block, dtype)
    b = np.asfortranarray(sparse(generator, len(array), 3, dtype, 1))
    x = np.zeros_like(b)
    wanted = np.linalg.solve(OPERATIONS[op](triangle(array, half, 0)), b)
    with cusparse(machine) as library:
        blocks = Blocks(library, array, block, direction, half)
        one, buffer = library.factor(dtype, 1), pointer(library.put(np.zeros(16, np.uint8)))
        source, into = library.put(b), library.put(x)
        for kind, sizes, tail, result in (
            ("sv", [count], [pointer(source), pointer(into)], wanted[:, 0]),
            (
                "sm",
                [0, count, 3],
                [pointer(source), integer(len(b)), pointer(into), integer(len(b))],
                wanted,
            ),
        ):
            name = f"cusparse{letter}bsr{kind}2"
            plan = library.made(f"cusparseCreateBsr{kind}2Info", f"cusparseDestroyBsr{kind}2Info")
            head = [*map(integer, (direction, op, *sizes, blocks.entries))]
            assert library(f"{name}_bufferSize", *head, *blocks.arguments, plan, out(4)).number() <= 16
            analysis = library(f"{name}_analysis", *head, *blocks.arguments, plan, integer(0), buffer)
            assert analysis.status == SUCCESS
            solution = library(
                f"{name}_solve", *head, one, *blocks.arguments, plan, *tail, integer(0), buffer
            )
            assert solution.status == SUCCESS
            pivot = library(f"cusparseXbsr{kind}2_zeroPivot", plan, out(4))
            assert (pivot.status, pivot.number()) == (SUCCESS, 2**32 - 1)
            found = library.get(into, x)
            close(found[:, 0] if kind == "sv" else found, result)


def test_a_row_without_a_pivot_is_named(machine: Machine) -> None:
    array = np.diag([1.0, 2, 0, 4])
    array[2, 0] = 1
    with cusparse(machine) as library:
        blocks = Blocks(library, array, 1, 0)
        plan = library.made("cusparseCreateBsrsv2Info", "cusparseDestroyBsrsv2Info")
        buffer = pointer(library.put(np.zeros(16, np.uint8)))
        head = [*map(integer, (0, 0, 4, blocks.entries))]
        call = library("cusparseDbsrsv2_analysis", *head, *blocks.arguments, plan, integer(0), buffer)
        assert call.status == SUCCESS
        pivot = library("cusparseXbsrsv2_zeroPivot", plan, out(4))
        assert (pivot.status, pivot.number()) == (ZERO_PIVOT, 3)
