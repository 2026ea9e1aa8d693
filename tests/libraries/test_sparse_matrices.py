"""Sparse matrices that are made of others, and their indices, against scipy: products, sums, conversions, sorts."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest
import scipy.sparse  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from tests.libraries.cusparse import (
    DEVICE,
    FORMATS,
    HOST,
    INVALID_VALUE,
    LIBRARY,
    NOT_SUPPORTED,
    SUCCESS,
    Cusparse,
    close,
    cusparse,
    quickly,
    sparse,
)
from tests.libraries.machine import DATA_TYPES, Array, Machine, integer, out, pointer, wide

LETTERS: Final = {"S": np.float32, "D": np.float64, "C": np.complex64, "Z": np.complex128}
TYPES: Final = [np.dtype(kind) for kind in (*LETTERS.values(), np.float16, ml_dtypes.bfloat16)]
dtypes = st.sampled_from([np.dtype(kind) for kind in LETTERS.values()])
sizes = st.integers(0, 10)
indices = st.sampled_from([np.int32, np.int64])
bases = st.integers(0, 1)
seeds = st.integers(0, 99)


def entries(library: Cusparse, matrix: Any) -> int:
    answer = library.machine.call(LIBRARY, "cusparseSpMatGetSize", matrix, out(8), out(8), out(8))
    assert answer.status == SUCCESS
    return answer.number(2)


@given(shape=st.tuples(sizes, sizes, sizes), dtype=dtypes, index=indices, base=bases, seed=seeds)
@quickly
def test_a_product_of_sparse_matrices(
    machine: Machine, shape: tuple[int, int, int], dtype: np.dtype[Any], index: type, base: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    m, n, k = shape
    a, b = sparse(generator, m, k, dtype), sparse(generator, k, n, dtype)
    wanted = scipy.sparse.csr_array(a != 0).astype(int) @ scipy.sparse.csr_array(b != 0).astype(int)
    with cusparse(machine) as library:
        first, second = library.matrix(a, "csr", index, base), library.matrix(b, "csr", index, base)
        into = library.matrix(np.zeros((m, n), dtype), "csr", index, base)
        plan = library.made("cusparseSpGEMM_createDescr", "cusparseSpGEMM_destroyDescr")
        arguments = [
            integer(0),
            integer(0),
            library.factor(dtype, 2),
            first.descriptor,
            second.descriptor,
            library.factor(dtype, 0),
            into.descriptor,
            integer(DATA_TYPES[dtype]),
            integer(0),
            plan,
        ]
        estimated = library("cusparseSpGEMM_workEstimation", *arguments, out(8), pointer(0))
        assert estimated.status == SUCCESS
        # TensorFlow ends the process if it is asked for nothing.
        assert estimated.number() > 0
        needed = library("cusparseSpGEMM_compute", *arguments, out(8), pointer(0))
        size = needed.number()
        assert size > 0
        buffer = library.put(np.zeros(size, np.uint8))
        room = ("bytes", np.array([size], np.uint64).tobytes())
        assert library("cusparseSpGEMM_compute", *arguments, room, pointer(buffer)).status == SUCCESS
        count = entries(library, into.descriptor)
        assert count == wanted.nnz
        columns: Array = np.zeros(count, index)
        values: Array = np.zeros(count, dtype)
        places = [library.put(columns), library.put(values)]
        pointers = [pointer(into.offsets), *map(pointer, places)]
        assert machine.call(LIBRARY, "cusparseCsrSetPointers", into.descriptor, *pointers).status == SUCCESS
        assert library("cusparseSpGEMM_copy", *arguments).status == SUCCESS
        offsets = library.get(into.offsets, into.like[0]) - base
        columns, values = library.get(places[0], columns) - base, library.get(places[1], values)
        close(scipy.sparse.csr_array((values, columns, offsets), shape=(m, n)).toarray(), 2 * (a @ b))
        for row in range(m):
            assert (np.diff(columns[offsets[row] : offsets[row + 1]]) > 0).all()


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@given(shape=st.tuples(sizes, sizes), form=st.sampled_from(FORMATS), index=indices, base=bases, seed=seeds)
@quickly
def test_a_dense_matrix_becomes_a_sparse_one(
    machine: Machine,
    dtype: np.dtype[Any],
    shape: tuple[int, int],
    form: str,
    index: type,
    base: int,
    seed: int,
) -> None:
    array = sparse(np.random.default_rng(seed), *shape, dtype)
    with cusparse(machine) as library:
        dense, _ = library.dense(array)
        wanted = library.matrix(array, form, index, base)
        into = library.matrix(np.zeros(shape, dtype), form, index, base)
        size = library(
            "cusparseDenseToSparse_bufferSize", dense, into.descriptor, integer(0), out(8)
        ).number()
        arguments = (dense, into.descriptor, integer(0), pointer(library.put(np.zeros(size, np.uint8))))
        assert library("cusparseDenseToSparse_analysis", *arguments).status == SUCCESS
        count = entries(library, into.descriptor)
        assert count == np.count_nonzero(array)
        results = [np.zeros_like(part) for part in wanted.like]
        places = [library.put(part) for part in results]
        setter = f"cusparse{form.capitalize()}SetPointers"
        assert machine.call(LIBRARY, setter, into.descriptor, *map(pointer, places)).status == SUCCESS
        assert library("cusparseDenseToSparse_convert", *arguments).status == SUCCESS
        for place, part in zip(places, wanted.like, strict=True):
            np.testing.assert_array_equal(library.get(place, part), part)


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize("mode", [HOST, DEVICE])
@given(shape=st.tuples(sizes, sizes), seed=seeds)
@quickly
def test_a_sum_of_sparse_matrices(
    machine: Machine, letter: str, mode: int, shape: tuple[int, int], seed: int
) -> None:
    dtype = np.dtype(LETTERS[letter])
    generator = np.random.default_rng(seed)
    a, b = sparse(generator, *shape, dtype), sparse(generator, *shape, dtype)
    m, n = shape
    with cusparse(machine, mode) as library:
        first, second = library.matrix(a, "csr"), library.matrix(b, "csr")
        described = library.made("cusparseCreateMatDescr", "cusparseDestroyMatDescr")
        count = int(np.count_nonzero((a != 0) | (b != 0)))
        results = [np.zeros(m + 1, np.int32), np.zeros(count, np.int32), np.zeros(count, dtype)]
        offsets, columns, values = (library.put(part) for part in results)
        pattern, full = [], []
        for of, factor in ((first, 2), (second, -1)):
            number = len(of.like[2])
            pattern += [described, integer(number), pointer(of.offsets), pointer(of.indices)]
            full += [
                library.factor(dtype, factor),
                described,
                integer(number),
                *map(pointer, (of.values, of.offsets, of.indices)),
            ]
        full += [described, *map(pointer, (values, offsets, columns))]
        size = library(f"cusparse{letter}csrgeam2_bufferSizeExt", integer(m), integer(n), *full, out(8))
        assert size.status == SUCCESS
        total = library.put(np.zeros(1, np.int32))
        answer = library(
            "cusparseXcsrgeam2Nnz",
            integer(m),
            integer(n),
            *pattern,
            described,
            pointer(offsets),
            out(4) if mode == HOST else pointer(total),
            pointer(0),
        )
        assert answer.status == SUCCESS
        found = answer.number() if mode == HOST else int(library.get(total, np.zeros(1, np.int32))[0])
        assert found == count
        assert (
            library(f"cusparse{letter}csrgeam2", integer(m), integer(n), *full, pointer(0)).status == SUCCESS
        )
        parts = [
            library.get(place, like) for place, like in zip((offsets, columns, values), results, strict=True)
        ]
        made = scipy.sparse.csr_array((parts[2], parts[1], parts[0]), shape=shape)
        close(made.toarray(), 2 * a - b)


@given(shape=st.tuples(sizes, sizes), base=bases, seed=seeds)
@quickly
def test_rows_are_counted_and_named(machine: Machine, shape: tuple[int, int], base: int, seed: int) -> None:
    array = sparse(np.random.default_rng(seed), *shape, np.dtype(np.float32))
    with cusparse(machine) as library:
        coo, csr = library.matrix(array, "coo", np.int32, base), library.matrix(array, "csr", np.int32, base)
        sizes_and_base = integer(len(csr.like[2])), integer(shape[0])
        offsets, rows = library.put(np.zeros_like(csr.like[0])), library.put(np.zeros_like(coo.like[0]))
        call = library(
            "cusparseXcoo2csr", pointer(coo.offsets), *sizes_and_base, pointer(offsets), integer(base)
        )
        assert call.status == SUCCESS
        np.testing.assert_array_equal(library.get(offsets, csr.like[0]), csr.like[0])
        call = library(
            "cusparseXcsr2coo", pointer(csr.offsets), *sizes_and_base, pointer(rows), integer(base)
        )
        assert call.status == SUCCESS
        np.testing.assert_array_equal(library.get(rows, coo.like[0]), coo.like[0])


@pytest.mark.parametrize("order", ["Row", "Column"])
@given(count=st.integers(0, 40), seed=seeds)
@quickly
def test_entries_are_sorted_with_their_places(machine: Machine, order: str, count: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    rows, columns = (generator.integers(0, 6, count).astype(np.int32) for _ in range(2))
    wanted = np.lexsort((columns, rows) if order == "Row" else (rows, columns))
    with cusparse(machine) as library:
        places = [library.put(part) for part in (rows, columns, rows)]
        assert (
            library("cusparseCreateIdentityPermutation", integer(count), pointer(places[2])).status == SUCCESS
        )
        sizes_ = [*map(integer, (6, 6, count))]
        call = library("cusparseXcoosort_bufferSizeExt", *sizes_, *map(pointer, places[:2]), out(8))
        assert call.status == SUCCESS
        call = library(f"cusparseXcoosortBy{order}", *sizes_, *map(pointer, places), pointer(0))
        assert call.status == SUCCESS
        for place, part in zip(places, (rows[wanted], columns[wanted], wanted), strict=True):
            np.testing.assert_array_equal(library.get(place, rows), part)


@given(shape=st.tuples(sizes, sizes), base=bases, seed=seeds)
@quickly
def test_columns_of_rows_are_sorted(machine: Machine, shape: tuple[int, int], base: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    array = sparse(generator, *shape, np.dtype(np.float32))
    with cusparse(machine) as library:
        made = library.matrix(array, "csr", np.int32, base)
        offsets, columns, values = made.like
        mixed, places = columns.copy(), np.arange(len(columns), dtype=np.int32)
        for begin, end in zip(offsets[:-1] - base, offsets[1:] - base, strict=True):
            order = generator.permutation(end - begin)
            mixed[begin:end] = columns[begin:end][order]
        described = library.made("cusparseCreateMatDescr", "cusparseDestroyMatDescr")
        machine.call(LIBRARY, "cusparseSetMatIndexBase", described, integer(base))
        addresses = [library.put(mixed), library.put(places)]
        sizes_ = [*map(integer, (*shape, len(values)))]
        arguments = [described, pointer(made.offsets), *map(pointer, addresses), pointer(0)]
        assert library("cusparseXcsrsort", *sizes_, *arguments).status == SUCCESS
        np.testing.assert_array_equal(library.get(addresses[0], columns), columns)
        np.testing.assert_array_equal(mixed[library.get(addresses[1], places)], columns)


@given(shape=st.tuples(sizes, sizes), dtype=dtypes, base=bases, action=st.integers(0, 1), seed=seeds)
@quickly
def test_rows_become_columns(
    machine: Machine, shape: tuple[int, int], dtype: np.dtype[Any], base: int, action: int, seed: int
) -> None:
    array = sparse(np.random.default_rng(seed), *shape, dtype)
    with cusparse(machine) as library:
        from_, to = library.matrix(array, "csr", np.int32, base), library.matrix(array, "csc", np.int32, base)
        results: list[Array] = [np.zeros_like(part) for part in to.like]
        offsets, rows, values = (library.put(part) for part in results)
        arguments = [
            *map(integer, (*shape, len(from_.like[2]))),
            *map(pointer, (from_.values, from_.offsets, from_.indices, values, offsets, rows)),
            *map(integer, (DATA_TYPES[dtype], action, base, 1)),
        ]
        assert library("cusparseCsr2cscEx2_bufferSize", *arguments, out(8)).status == SUCCESS
        assert library("cusparseCsr2cscEx2", *arguments, pointer(0)).status == SUCCESS
        np.testing.assert_array_equal(library.get(offsets, to.like[0]), to.like[0])
        np.testing.assert_array_equal(library.get(rows, to.like[1]), to.like[1])
        np.testing.assert_array_equal(library.get(values, to.like[2]), to.like[2] if action else results[2])


@given(size=st.integers(0, 20), dtype=dtypes, index=indices, base=bases, seed=seeds)
@quickly
def test_vectors_with_few_entries(
    machine: Machine, size: int, dtype: np.dtype[Any], index: type, base: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    at: Array = np.flatnonzero(generator.random(size) < 0.5).astype(index)
    few, many = sparse(generator, 1, len(at), dtype, 1)[0], sparse(generator, 1, size, dtype, 1)[0]
    with cusparse(machine) as library:
        y, address = library.vector(many)
        places = [library.put((at + base).astype(index)), library.put(few)]
        x = library.made(
            "cusparseCreateSpVec",
            "cusparseDestroySpVec",
            wide(size),
            wide(len(at)),
            *map(pointer, places),
            *map(integer, (2 if index is np.int32 else 3, base, DATA_TYPES[dtype])),
        )
        dot = [integer(0), x, y, out(16), integer(DATA_TYPES[dtype])]
        assert library("cusparseSpVV_bufferSize", *dot, out(8)).number(1) == 16
        answer = library("cusparseSpVV", *dot, pointer(library.put(np.zeros(16, np.uint8))))
        assert answer.status == SUCCESS
        close(np.frombuffer(answer.outputs[0], dtype)[:1], np.array([few @ many[at]], dtype))
        two, three = library.factor(dtype, 2), library.factor(dtype, 3)
        assert library("cusparseAxpby", two, x, three, y).status == SUCCESS
        many = 3 * many
        many[at] += 2 * few
        close(library.get(address, many), many)
        assert library("cusparseRot", two, three, x, y).status == SUCCESS
        few, many[at] = 2 * few + 3 * many[at], 2 * many[at] - 3 * few
        close(library.get(places[1], few), few)
        close(library.get(address, many), many)
        assert library("cusparseScatter", x, y).status == SUCCESS
        many[at] = few
        close(library.get(address, many), many)
        assert library("cusparseGather", y, x).status == SUCCESS
        close(library.get(places[1], few), few)


def test_what_a_product_of_sparse_matrices_does_not_take(machine: Machine) -> None:
    dtype = np.dtype(np.float32)
    array = np.eye(3, dtype=dtype)
    with cusparse(machine) as library:
        a, other = library.matrix(array, "csr").descriptor, library.matrix(array, "coo").descriptor
        narrow = library.matrix(array[:2], "csr").descriptor
        plan = library.made("cusparseSpGEMM_createDescr", "cusparseSpGEMM_destroyDescr")
        one, nothing = library.factor(dtype, 1), library.factor(dtype, 0)

        def status(op: int = 0, first: Any = a, beta: Any = nothing, of: Any = plan) -> int:
            head = [integer(op), integer(0), one, first, a, beta, a, integer(0), integer(0), of]
            return library("cusparseSpGEMM_workEstimation", *head, out(8), pointer(0)).status

        assert status() == SUCCESS
        assert status(op=1) == NOT_SUPPORTED
        assert status(beta=one) == NOT_SUPPORTED
        assert status(first=other) == NOT_SUPPORTED
        assert status(first=narrow) == INVALID_VALUE
        assert status(first=pointer(0)) == INVALID_VALUE
        assert status(of=pointer(0)) == INVALID_VALUE
