"""Products of sparse and dense matrices, against numpy: forms, types, indices, orders, batches; and what is refused."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.libraries.cusparse import (
    DEVICE,
    FORMATS,
    HOST,
    INVALID_VALUE,
    LIBRARY,
    NOT_INITIALIZED,
    NOT_SUPPORTED,
    OPERATIONS,
    SUCCESS,
    Cusparse,
    close,
    compute_type,
    cusparse,
    quickly,
    sparse,
)
from tests.libraries.machine import DATA_TYPES, Argument, Array, Machine, integer, out, pointer, wide

TYPES: Final = [
    np.dtype(kind)
    for kind in (np.float32, np.float64, np.complex64, np.complex128, np.float16, ml_dtypes.bfloat16)
]
types = st.sampled_from(TYPES)
sizes = st.integers(0, 12)
operations = st.sampled_from(sorted(OPERATIONS))
forms = st.sampled_from(FORMATS)
indices = st.sampled_from([np.int32, np.int64])
bases = st.integers(0, 1)
modes = st.sampled_from([HOST, DEVICE])
factors = st.sampled_from([0, 1, -0.5 + 2j])
seeds = st.integers(0, 99)


def widened(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def computed(dtype: np.dtype[Any]) -> Argument:
    return integer(DATA_TYPES[compute_type(dtype)])


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@given(
    rows=sizes,
    columns=sizes,
    form=forms,
    op=operations,
    index=indices,
    base=bases,
    mode=modes,
    beta=factors,
    seed=seeds,
)
@quickly
def test_a_matrix_times_a_vector(
    machine: Machine,
    dtype: np.dtype[Any],
    rows: int,
    columns: int,
    form: str,
    op: int,
    index: type,
    base: int,
    mode: int,
    beta: complex,
    seed: int,
) -> None:
    generator = np.random.default_rng(seed)
    array = sparse(generator, rows, columns, dtype)
    applied = OPERATIONS[op](widened(array))
    x = sparse(generator, 1, applied.shape[1], dtype, 1)[0]
    # What is not asked for is not read.
    y = np.full(applied.shape[0], np.nan if beta == 0 else 2, dtype)
    alpha, factor = (value if dtype.kind == "c" else value.real for value in (1.5 - 1j, complex(beta)))
    wanted = alpha * (applied @ widened(x)) + (0 if factor == 0 else factor * widened(y))
    with cusparse(machine, mode) as library:
        a = library.matrix(array, form, index, base)
        (from_vector, _), (into, address) = library.vector(x), library.vector(y)
        arguments = [
            integer(op),
            library.factor(dtype, alpha),
            a.descriptor,
            from_vector,
            library.factor(dtype, factor),
            into,
            computed(dtype),
            integer(0),
        ]
        assert library("cusparseSpMV_bufferSize", *arguments, out(8)).status == SUCCESS
        assert library("cusparseSpMV_preprocess", *arguments, pointer(0)).status == SUCCESS
        assert library("cusparseSpMV", *arguments, pointer(0)).status == SUCCESS
        close(library.get(address, y), wanted)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@given(
    sizes=st.tuples(sizes, st.integers(0, 70), sizes),
    form=forms,
    ops=st.tuples(operations, operations),
    orders=st.tuples(st.sampled_from("CF"), st.sampled_from("CF")),
    beta=factors,
    seed=seeds,
)
@quickly
def test_a_matrix_times_a_dense_one(
    machine: Machine,
    dtype: np.dtype[Any],
    sizes: tuple[int, int, int],
    form: str,
    ops: tuple[int, int],
    orders: tuple[str, str],
    beta: complex,
    seed: int,
) -> None:
    generator = np.random.default_rng(seed)
    m, n, k = sizes
    array = sparse(generator, *((m, k) if ops[0] == 0 else (k, m)), dtype)
    b = np.asarray(sparse(generator, *((k, n) if ops[1] == 0 else (n, k)), dtype, 1), order=orders[0])  # type: ignore[call-overload]
    c = np.full((m, n), 2, dtype, order=orders[1])  # type: ignore[call-overload]
    factor = complex(beta) if dtype.kind == "c" else complex(beta).real
    wanted = OPERATIONS[ops[0]](widened(array)) @ OPERATIONS[ops[1]](widened(b)) + factor * widened(c)
    with cusparse(machine) as library:
        a = library.matrix(array, form)
        (dense, _), (into, address) = library.dense(b), library.dense(c)
        arguments = [
            *map(integer, ops),
            library.factor(dtype, 1),
            a.descriptor,
            dense,
            library.factor(dtype, factor),
            into,
            computed(dtype),
            integer(0),
        ]
        assert library("cusparseSpMM_bufferSize", *arguments, out(8)).status == SUCCESS
        assert library("cusparseSpMM", *arguments, pointer(0)).status == SUCCESS
        close(library.get(address, c), wanted)


@given(
    blocks=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    block=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    order=st.sampled_from([1, 2]),
    seed=seeds,
)
@quickly
def test_a_matrix_of_blocks_times_a_dense_one(
    machine: Machine, blocks: tuple[int, int], block: tuple[int, int], order: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    there = generator.random(blocks) < 0.5
    tiles = generator.standard_normal((int(there.sum()), *block))
    array = np.zeros((blocks[0] * block[0], blocks[1] * block[1]))
    for tile, (i, j) in zip(tiles, np.argwhere(there), strict=True):
        array[i * block[0] : (i + 1) * block[0], j * block[1] : (j + 1) * block[1]] = tile
    offsets = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int32)
    stored = tiles if order == 2 else tiles.transpose(0, 2, 1)
    b, c = generator.standard_normal((array.shape[1], 3)), np.zeros((array.shape[0], 3))
    with cusparse(machine) as library:
        places = [
            library.put(part)
            for part in (offsets, np.argwhere(there)[:, 1].astype(np.int32), np.ascontiguousarray(stored))
        ]
        a = library.made(
            "cusparseCreateBsr",
            "cusparseDestroySpMat",
            *map(wide, (*blocks, len(tiles), *block)),
            *map(pointer, places),
            *map(integer, (2, 2, 0, 1, order)),
        )
        (dense, _), (into, address) = library.dense(b), library.dense(c)
        one, nothing = library.factor(b.dtype, 1), library.factor(b.dtype, 0)
        arguments = [integer(0), integer(0), one, a, dense, nothing, into, integer(1), integer(0)]
        assert library("cusparseSpMM", *arguments, pointer(0)).status == SUCCESS
        close(library.get(address, c), array @ b)


def test_a_matrix_of_padded_blocks_times_a_dense_one(machine: Machine) -> None:
    tiles = np.arange(1.0, 17).reshape(4, 2, 2)
    columns = np.array([[1, -1], [0, 2]], np.int32)
    array = np.zeros((4, 6))
    array[:2, 2:4], array[2:, :2], array[2:, 4:] = tiles[0], tiles[2], tiles[3]
    b, c = np.arange(12.0).reshape(6, 2), np.zeros((4, 2))
    with cusparse(machine) as library:
        places = [library.put(columns), library.put(np.ascontiguousarray(tiles))]
        a = library.made(
            "cusparseCreateBlockedEll",
            "cusparseDestroySpMat",
            *map(wide, (4, 6, 2, 4)),
            *map(pointer, places),
            *map(integer, (2, 0, 1)),
        )
        (dense, _), (into, address) = library.dense(b), library.dense(c)
        one, nothing = library.factor(b.dtype, 1), library.factor(b.dtype, 0)
        arguments = [integer(0), integer(0), one, a, dense, nothing, into, integer(1), integer(0)]
        assert library("cusparseSpMM", *arguments, pointer(0)).status == SUCCESS
        close(library.get(address, c), array @ b)


def test_one_matrix_times_each_of_a_batch(machine: Machine) -> None:
    generator = np.random.default_rng(2)
    array = sparse(generator, 5, 4, np.dtype(np.float64))
    b, c = generator.standard_normal((3, 4, 2)), np.zeros((3, 5, 2))
    with cusparse(machine) as library:
        a = library.matrix(array, "csr")
        (dense, _), (into, address) = library.dense(b[0]), library.dense(c[0])
        sources, results = library.put(b), library.put(c)
        for descriptor, place, size in ((dense, sources, 8), (into, results, 10)):
            assert (
                machine.call(LIBRARY, "cusparseDnMatSetValues", descriptor, pointer(place)).status == SUCCESS
            )
            batch = machine.call(LIBRARY, "cusparseDnMatSetStridedBatch", descriptor, integer(3), wide(size))
            assert batch.status == SUCCESS
        del address
        one, nothing = library.factor(b.dtype, 1), library.factor(b.dtype, 0)
        arguments = [integer(0), integer(0), one, a.descriptor, dense, nothing, into, integer(1), integer(0)]
        assert library("cusparseSpMM", *arguments, pointer(0)).status == SUCCESS
        close(library.get(results, c), array @ b)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@given(
    sizes=st.tuples(sizes, sizes, sizes),
    form=forms,
    ops=st.tuples(st.integers(0, 1), st.integers(0, 1)),
    seed=seeds,
)
@quickly
def test_a_dense_product_where_a_matrix_has_entries(
    machine: Machine,
    dtype: np.dtype[Any],
    sizes: tuple[int, int, int],
    form: str,
    ops: tuple[int, int],
    seed: int,
) -> None:
    generator = np.random.default_rng(seed)
    m, n, k = sizes
    pattern = sparse(generator, m, n, dtype)
    a = sparse(generator, *((m, k) if ops[0] == 0 else (k, m)), dtype, 1)
    b = sparse(generator, *((k, n) if ops[1] == 0 else (n, k)), dtype, 1)
    full = 2 * (OPERATIONS[ops[0]](widened(a)) @ OPERATIONS[ops[1]](widened(b))) - widened(pattern)
    wanted = np.where(widened(pattern) != 0, full, 0)
    with cusparse(machine) as library:
        c = library.matrix(pattern, form)
        (first, _), (second, _), (into, address) = library.dense(a), library.dense(b), library.dense(pattern)
        arguments = [
            *map(integer, ops),
            library.factor(dtype, 2),
            first,
            second,
            library.factor(dtype, -1),
            c.descriptor,
            computed(dtype),
            integer(0),
        ]
        assert library("cusparseSDDMM", *arguments, pointer(0)).status == SUCCESS
        spread = (c.descriptor, into, integer(0))
        assert library("cusparseSparseToDense_bufferSize", *spread, out(8)).status == SUCCESS
        assert library("cusparseSparseToDense", *spread, pointer(0)).status == SUCCESS
        close(library.get(address, pattern), wanted)


def test_a_transposed_product_is_the_same_every_time(machine: Machine) -> None:
    """Sums of many numbers of all sizes: another order would show."""
    generator = np.random.default_rng(4)
    array = generator.standard_normal((700, 30)).astype(np.float32) * 10.0 ** generator.integers(
        -4, 4, (700, 1)
    )
    array = array.astype(np.float32)
    x, y = generator.standard_normal(700).astype(np.float32), np.zeros(30, np.float32)
    results = set()
    with cusparse(machine) as library:
        a, (source, _), (into, address) = library.matrix(array, "csr"), library.vector(x), library.vector(y)
        one, nothing = library.factor(x.dtype, 1), library.factor(x.dtype, 0)
        for _ in range(5):
            arguments = [integer(1), one, a.descriptor, source, nothing, into, integer(0), integer(0)]
            assert library("cusparseSpMV", *arguments, pointer(0)).status == SUCCESS
            results.add(library.get(address, y).tobytes())
    assert len(results) == 1


def product(library: Cusparse, **changed: Argument) -> int:
    """The status of a product of a 3 × 4 matrix, with an argument of another value."""
    array = sparse(np.random.default_rng(1), 3, 4, np.dtype(np.float32))
    right = {
        "op": integer(0),
        "alpha": library.factor(array.dtype, 1),
        "a": library.matrix(array, "csr").descriptor,
        "x": library.vector(np.ones(4, np.float32))[0],
        "beta": library.factor(array.dtype, 0),
        "y": library.vector(np.ones(3, np.float32))[0],
        "compute": integer(0),
        "algorithm": integer(0),
        "buffer": pointer(0),
    }
    return library("cusparseSpMV", *{**right, **changed}.values()).status


@pytest.mark.parametrize(
    ("name", "argument", "status"),
    [
        ("op", integer(3), INVALID_VALUE),
        ("alpha", pointer(0), INVALID_VALUE),
        ("a", pointer(0), INVALID_VALUE),
        ("x", pointer(0), INVALID_VALUE),
        ("op", integer(1), INVALID_VALUE),  # then the vectors have the wrong lengths
        ("compute", integer(1), NOT_SUPPORTED),
        ("compute", integer(10), NOT_SUPPORTED),
        ("buffer", pointer(0), SUCCESS),
    ],
)
def test_wrong_arguments_have_their_status(
    machine: Machine, name: str, argument: Argument, status: int
) -> None:
    with cusparse(machine) as library:
        assert product(library, **{name: argument}) == status


def test_a_handle_that_is_none_is_not_initialised(machine: Machine) -> None:
    assert machine.call(LIBRARY, "cusparseSetStream", pointer(0), pointer(0)).status == NOT_INITIALIZED
    assert machine.call(LIBRARY, "cusparseCreate", pointer(0)).status == INVALID_VALUE


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("cusparseCreateDnVec", (wide(-1), pointer(0), integer(0))),
        ("cusparseCreateDnVec", (wide(1), pointer(0), integer(99))),
        ("cusparseCreateDnMat", (wide(3), wide(2), wide(2), pointer(0), integer(0), integer(1))),
        ("cusparseCreateDnMat", (wide(3), wide(2), wide(3), pointer(0), integer(0), integer(0))),
        ("cusparseCreateCsr", (*map(wide, (2, 2, 1)), *map(pointer, (0, 0, 0)), *map(integer, (2, 2, 2, 0)))),
        ("cusparseCreateCsr", (*map(wide, (2, 2, 1)), *map(pointer, (0, 0, 0)), *map(integer, (4, 2, 0, 0)))),
        ("cusparseCreateCoo", (*map(wide, (2, -2, 1)), *map(pointer, (0, 0, 0)), *map(integer, (2, 0, 0)))),
    ],
)
def test_what_describes_nothing_is_no_descriptor(
    machine: Machine, function: str, arguments: tuple[Argument, ...]
) -> None:
    assert machine.call(LIBRARY, function, out(8), *arguments).status == INVALID_VALUE


def test_a_descriptor_says_what_it_was_made_of(machine: Machine) -> None:
    array = sparse(np.random.default_rng(1), 3, 5, np.dtype(np.float64))
    with cusparse(machine) as library:
        for number, form in enumerate(FORMATS, 1):
            made = library.matrix(array, form, np.int64, 1)
            kinds = 1 if form == "coo" else 2
            outputs = [out(8)] * 6 + [out(4)] * (kinds + 2)
            for name in (f"cusparse{form.capitalize()}Get", f"cusparseConst{form.capitalize()}Get"):
                answer = machine.call(LIBRARY, name, made.descriptor, *outputs)
                values = [answer.number(i) for i in range(len(outputs))]
                nonzero = int(np.count_nonzero(array))
                assert (answer.status, values[:3]) == (SUCCESS, [3, 5, nonzero])
                assert values[3:6] == [made.offsets, made.indices, made.values]
                assert values[6:] == [3] * kinds + [1, 1]
            assert machine.call(LIBRARY, "cusparseSpMatGetFormat", made.descriptor, out(4)).number() == number
            other = "cusparseCsrGet" if form == "coo" else "cusparseCooGet"
            assert machine.call(LIBRARY, other, made.descriptor, *outputs, out(4)).status == INVALID_VALUE
