"""Batches of cuBLAS: products with vectors, triangles, factorisations and groups of products; and its copies, against numpy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.libraries.blas import (
    LETTERS,
    UNTOUCHED,
    assert_close,
    blas,
    flag,
    framed,
    numbers,
    quickly,
    spread,
)
from tests.libraries.cublas import DEVICE, HOST, INVALID_VALUE, LIBRARY, NOT_SUPPORTED, OPERATIONS, SUCCESS
from tests.libraries.machine import (
    Argument,
    Array,
    Machine,
    host,
    integer,
    out,
    pointer,
    wide,
    words,
)

sizes = st.sampled_from([1, 2, 5, 20, 70])
batches = st.integers(1, 4)
trans = st.integers(0, 2)
seeds = st.integers(0, 99)
modes = st.sampled_from([HOST, DEVICE])
NONE: Final = pointer(0)


@contextmanager
def listed(machine: Machine, arrays: list[Array]) -> Iterator[tuple[Argument, list[int]]]:
    """A list of addresses in device memory, and the addresses."""
    with (
        machine.arrays(*arrays) as addresses,
        machine.arrays(np.frombuffer(words(*addresses), np.uint64)) as (at,),
    ):
        yield pointer(at), addresses


def well_made(generator: np.random.Generator, order: int, dtype: np.dtype[Any]) -> Array:
    """A matrix that can be taken apart without losing digits."""
    found = numbers(generator, (order, order), dtype) + 4 * np.eye(order) * np.sqrt(order)
    return np.asfortranarray(generator.permutation(found).astype(dtype))


def got(machine: Machine, addresses: list[int], like: list[Array]) -> list[Array]:
    return [machine.get(address, array) for address, array in zip(addresses, like, strict=True)]


@pytest.mark.parametrize("letter", LETTERS)
@quickly
@given(shape=st.tuples(sizes, sizes), batch=batches, t=trans, mode=modes,
       incs=st.tuples(st.sampled_from([1, 2, -1]), st.sampled_from([1, -2])), is_wide=st.booleans(), seed=seeds)  # fmt: skip
def test_matrices_by_vectors(
    machine: Machine, letter: str, shape: tuple[int, int], batch: int, t: int, incs: tuple[int, int], mode: int, is_wide: bool,
    seed: int,
) -> None:  # fmt: skip
    """gemvBatched and gemvStridedBatched."""
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    inner, outer = (shape[0], shape[1]) if t else (shape[1], shape[0])
    a = [numbers(generator, shape, dtype) for _ in range(batch)]
    x, y = ([numbers(generator, size, dtype) for _ in range(batch)] for size in (inner, outer))
    alpha, beta = dtype.type(2), dtype.type(-1)
    wanted = [alpha * (OPERATIONS[t](a[i]) @ x[i]) + beta * y[i] for i in range(batch)]
    lists = [
        [framed(matrix, 1) for matrix in a],
        [spread(v, incs[0]) for v in x],
        [spread(v, incs[1]) for v in y],
    ]
    with (
        blas(machine, mode, is_wide=is_wide) as run,
        listed(machine, lists[0]) as (of_a, _),
        listed(machine, lists[1]) as (of_x, _),
        listed(machine, lists[2]) as (of_y, at_y),
    ):
        arguments = [flag(t), *shape, alpha, of_a, shape[0] + 1, of_x, incs[0], beta, of_y, incs[1], batch]
        assert run(f"cublas{letter}gemvBatched", *arguments).status == SUCCESS
        for found, vector in zip(got(machine, at_y, lists[2]), wanted, strict=True):
            assert_close(found, spread(vector.astype(dtype), incs[1]), inner)
    together = [np.concatenate([array.ravel(order="F") for array in arrays]) for arrays in lists]
    strides = [wide(arrays[0].size) for arrays in lists]
    with blas(machine, mode, is_wide=is_wide) as run, machine.arrays(*together) as (at_a, at_x, at_all):
        status = run(
            f"cublas{letter}gemvStridedBatched", flag(t), *shape, alpha, pointer(at_a), shape[0] + 1, strides[0], pointer(at_x),
            incs[0], strides[1], beta, pointer(at_all), incs[1], strides[2], batch,
        ).status  # fmt: skip
        found = machine.get(at_all, together[2])
    assert status == SUCCESS
    assert_close(found, np.concatenate([spread(v.astype(dtype), incs[1]) for v in wanted]), inner)


@pytest.mark.parametrize(
    ("letters", "inner", "outer"),
    [("HSH", np.float16, np.float16), ("HSS", np.float16, np.float32), ("TST", ml_dtypes.bfloat16, ml_dtypes.bfloat16),
     ("TSS", ml_dtypes.bfloat16, np.float32)],
)  # fmt: skip
def test_narrow_matrices_by_vectors(machine: Machine, letters: str, inner: type, outer: type) -> None:
    generator, single = np.random.default_rng(1), np.dtype(np.float32)
    a, x, y = (numbers(generator, shape, single) for shape in ((2, 6, 5), (2, 5), (2, 6)))
    memory: list[Array] = [
        np.concatenate([m.ravel(order="F") for m in a]).astype(inner),
        x.ravel().astype(inner),
        y.ravel().astype(outer),
    ]
    with blas(machine) as run, machine.arrays(*memory) as (at_a, at_x, at_y):
        status = run(
            f"cublas{letters}gemvStridedBatched", flag(0), 6, 5, np.float32(1), pointer(at_a), 6, wide(30), pointer(at_x), 1,
            wide(5), np.float32(2), pointer(at_y), 1, wide(6), 2,
        ).status  # fmt: skip
        found = machine.get(at_y, memory[2]).astype(np.float32).reshape(2, 6)
    assert status == SUCCESS
    np.testing.assert_allclose(found, np.einsum("bij,bj->bi", a, x) + 2 * y, rtol=1e-2, atol=0.05)


@pytest.mark.parametrize("letter", LETTERS)
@quickly
@given(
    shape=st.tuples(sizes, sizes),
    batch=batches,
    side=st.integers(0, 1),
    uplo=st.integers(0, 1),
    t=trans,
    seed=seeds,
)
def test_triangles_are_solved(
    machine: Machine, letter: str, shape: tuple[int, int], batch: int, side: int, uplo: int, t: int, seed: int
) -> None:
    """trsmBatched."""
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    order = shape[side]
    full = [
        (numbers(generator, (order, order), dtype) / (4 * order) + np.eye(order)).astype(dtype)
        for _ in range(batch)
    ]
    full = [np.asfortranarray(np.triu(a) if uplo else np.tril(a)) for a in full]
    x = [numbers(generator, shape, dtype) for _ in range(batch)]
    b = [
        framed(np.asarray(OPERATIONS[t](a) @ v if side == 0 else v @ OPERATIONS[t](a), dtype), 1)
        for a, v in zip(full, x, strict=True)
    ]
    with blas(machine) as run, listed(machine, full) as (of_a, _), listed(machine, b) as (of_b, at_b):
        arguments = [
            flag(side),
            flag(uplo),
            flag(t),
            flag(0),
            *shape,
            dtype.type(3),
            of_a,
            order,
            of_b,
            shape[0] + 1,
            batch,
        ]
        assert run(f"cublas{letter}trsmBatched", *arguments).status == SUCCESS
        for found, wanted in zip(got(machine, at_b, b), x, strict=True):
            assert_close(found, framed(3 * wanted, 1), order)


@pytest.mark.parametrize("letter", LETTERS)
@quickly
@given(n=sizes, columns=st.integers(1, 5), batch=batches, t=trans, pivoted=st.booleans(), seed=seeds)
def test_factored_solved_and_inverted(
    machine: Machine, letter: str, n: int, columns: int, batch: int, t: int, pivoted: bool, seed: int
) -> None:
    """getrf, getrs and getri; without pivots no row is exchanged."""
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    a = [well_made(generator, n, dtype) for _ in range(batch)]
    if not pivoted:
        a = [np.asfortranarray(matrix + 10 * n * np.eye(n, dtype=dtype)) for matrix in a]
    memory = [framed(matrix, 1) for matrix in a]
    b = [np.asfortranarray(numbers(generator, (n, columns), dtype)) for _ in range(batch)]
    inverses = [np.full((n, n), UNTOUCHED, dtype, order="F") for _ in range(batch)]
    pivots, info = np.full(n * batch, 77, np.int32), np.full(batch, 77, np.int32)
    with (
        blas(machine) as run,
        listed(machine, memory) as (of_a, at_a),
        listed(machine, b) as (of_b, at_b),
        listed(machine, inverses) as (of_c, at_c),
        machine.arrays(pivots, info) as (at_pivots, at_info),
    ):
        exchanges = pointer(at_pivots) if pivoted else NONE
        assert (
            run(f"cublas{letter}getrfBatched", n, of_a, n + 1, exchanges, pointer(at_info), batch).status
            == SUCCESS
        )
        np.testing.assert_array_equal(machine.get(at_info, info), 0)
        found = machine.get(at_pivots, pivots).reshape(batch, n)
        for index, factored in enumerate(got(machine, at_a, memory)):
            lower = np.tril(factored[:n], -1) + np.eye(n)
            rows = np.arange(n)
            for i, other in enumerate(found[index] - 1 if pivoted else range(n)):
                rows[[i, other]] = rows[[other, i]]
            assert_close(np.asarray(lower @ np.triu(factored[:n]), dtype), a[index][rows], 40 * n)
            assert np.all(np.isnan(factored[n:]))
            if pivoted:
                assert np.all(np.abs(lower) < 1.5)  # the largest was exchanged
        answer = run(
            f"cublas{letter}getrsBatched", flag(t), n, columns, of_a, n + 1, exchanges, of_b, n, out(4), batch
        )
        assert (answer.status, answer.number()) == (SUCCESS, 0)
        for index, x in enumerate(got(machine, at_b, b)):
            assert_close(np.asarray(OPERATIONS[t](a[index]) @ x, dtype), b[index], 40 * n)
        status = run(
            f"cublas{letter}getriBatched", n, of_a, n + 1, exchanges, of_c, n, pointer(at_info), batch
        ).status
        assert status == SUCCESS
        for index, inverse in enumerate(got(machine, at_c, inverses)):
            assert_close(np.asarray(a[index] @ inverse, dtype), np.eye(n, dtype=dtype), 40 * n)


def test_a_matrix_without_inverse_says_where(machine: Machine) -> None:
    good = np.asfortranarray(np.eye(3))
    bad = np.asfortranarray([[1.0, 2, 3], [2, 4, 6], [1, 1, 1]])
    inverse = np.full((3, 3), 7.0, order="F")
    info, pivots = np.full(2, 77, np.int32), np.zeros(6, np.int32)
    with (
        blas(machine) as run,
        listed(machine, [bad, good]) as (of_a, _),
        listed(machine, [inverse, inverse]) as (of_c, at_c),
        machine.arrays(info, pivots) as (at_info, at_pivots),
    ):
        status = run("cublasDmatinvBatched", 3, of_a, 3, of_c, 3, pointer(at_info), 2).status
        assert status == SUCCESS
        assert machine.get(at_info, info).tolist() == [3, 0]
        np.testing.assert_array_equal(machine.get(at_c[1], inverse), good)
        assert (
            run("cublasDgetrfBatched", 3, of_a, 3, pointer(at_pivots), pointer(at_info), 2).status == SUCCESS
        )
        assert machine.get(at_info, info).tolist() == [3, 0]
        assert (
            run("cublasDgetriBatched", 3, of_a, 3, pointer(at_pivots), of_c, 3, pointer(at_info), 2).status
            == SUCCESS
        )
        assert machine.get(at_info, info).tolist() == [3, 0]


@pytest.mark.parametrize("letter", LETTERS)
@quickly
@given(n=st.integers(1, 32), batch=batches, seed=seeds)
def test_small_matrices_are_inverted(machine: Machine, letter: str, n: int, batch: int, seed: int) -> None:
    """matinv, which leaves A as it is."""
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    a = [well_made(generator, n, dtype) for _ in range(batch)]
    inverses = [np.full((n + 1, n), UNTOUCHED, dtype, order="F") for _ in range(batch)]
    info = np.full(batch, 77, np.int32)
    with (
        blas(machine) as run,
        listed(machine, a) as (of_a, at_a),
        listed(machine, inverses) as (of_c, at_c),
        machine.arrays(info) as (at_info,),
    ):
        assert (
            run(f"cublas{letter}matinvBatched", n, of_a, n, of_c, n + 1, pointer(at_info), batch).status
            == SUCCESS
        )
        for matrix, same, inverse in zip(a, got(machine, at_a, a), got(machine, at_c, inverses), strict=True):
            np.testing.assert_array_equal(same, matrix)
            assert_close(np.asarray(matrix @ inverse[:n], dtype), np.eye(n, dtype=dtype), 40 * n)
            assert np.all(np.isnan(inverse[n:]))
        np.testing.assert_array_equal(machine.get(at_info, info), 0)


@pytest.mark.parametrize("letter", LETTERS)
@quickly
@given(shape=st.tuples(sizes, sizes), batch=batches, seed=seeds)
def test_reflectors(machine: Machine, letter: str, shape: tuple[int, int], batch: int, seed: int) -> None:
    """geqrf: R and the reflectors as LAPACK has them."""
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    a = [np.asfortranarray(numbers(generator, shape, dtype)) for _ in range(batch)]
    memory, taus = [framed(matrix, 1) for matrix in a], [np.zeros(min(shape), dtype) for _ in range(batch)]
    with (
        blas(machine) as run,
        listed(machine, memory) as (of_a, at_a),
        listed(machine, taus) as (of_tau, at_tau),
    ):
        answer = run(f"cublas{letter}geqrfBatched", *shape, of_a, shape[0] + 1, of_tau, out(4), batch)
        assert (answer.status, answer.number()) == (SUCCESS, 0)
        results = list(zip(got(machine, at_a, memory), got(machine, at_tau, taus), strict=True))
    for matrix, (factored, tau) in zip(a, results, strict=True):
        rows, least = shape[0], min(shape)
        q = np.eye(rows, dtype=np.complex128 if dtype.kind == "c" else np.float64)
        for j in range(least):
            v = np.concatenate([np.zeros(j), [1], factored[j + 1 : rows, j]])
            q = q @ (np.eye(rows) - tau[j] * np.outer(v, v.conj()))
        assert_close(np.asarray(q @ np.triu(factored[:rows]), dtype), matrix, 10 * sum(shape))
        assert_close(np.asarray(q.conj().T @ q, dtype), np.eye(rows, dtype=dtype), 10 * sum(shape))
        assert np.all(np.isreal(factored[:rows].diagonal()))


@pytest.mark.parametrize("letter", LETTERS)
@quickly
@given(n=sizes, more=st.integers(0, 9), columns=st.integers(1, 4), batch=batches, seed=seeds)
def test_least_squares(
    machine: Machine, letter: str, n: int, more: int, columns: int, batch: int, seed: int
) -> None:
    """gels: the first rows of B are the solution."""
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    a = [
        np.asfortranarray(np.vstack([well_made(generator, n, dtype), numbers(generator, (more, n), dtype)]))
        for _ in range(batch)
    ]
    b = [np.asfortranarray(numbers(generator, (n + more, columns), dtype)) for _ in range(batch)]
    info = np.full(batch, 77, np.int32)
    with (
        blas(machine) as run,
        listed(machine, a) as (of_a, _),
        listed(machine, b) as (of_b, at_b),
        machine.arrays(info) as (at_info,),
    ):
        answer = run(
            f"cublas{letter}gelsBatched", flag(0), n + more, n, columns, of_a, n + more, of_b, n + more, out(4), pointer(at_info),
            batch,
        )  # fmt: skip
        assert (answer.status, answer.number()) == (SUCCESS, 0)
        np.testing.assert_array_equal(machine.get(at_info, info), 0)
        for matrix, right, x in zip(a, b, got(machine, at_b, b), strict=True):
            wanted = np.linalg.lstsq(matrix.astype(np.complex128), right.astype(np.complex128), rcond=None)[0]
            assert_close(x[:n], wanted.astype(dtype) if dtype.kind == "c" else wanted.real.astype(dtype), 10)


def test_wrong_arguments_of_batches(machine: Machine) -> None:
    with blas(machine) as run:
        assert run("cublasSgetrfBatched", -1, NONE, 1, NONE, NONE, 1).status == INVALID_VALUE
        assert run("cublasSgetrfBatched", 4, NONE, 3, NONE, NONE, 1).status == INVALID_VALUE
        assert run("cublasSmatinvBatched", 33, NONE, 33, NONE, 33, NONE, 1).status == INVALID_VALUE
        answer = run("cublasSgetrsBatched", flag(0), 4, 1, NONE, 3, NONE, NONE, 4, out(4), 1)
        assert (answer.status, int.from_bytes(answer.outputs[0], "little", signed=True)) == (
            INVALID_VALUE,
            -5,
        )
        answer = run("cublasSgelsBatched", flag(0), 2, 3, 1, NONE, 2, NONE, 2, out(4), NONE, 1)
        assert answer.status == NOT_SUPPORTED
        assert run("cublasSgetrfBatched", 4, NONE, 4, NONE, NONE, 0).status == SUCCESS
    assert machine.synchronize() == 0


@pytest.mark.parametrize("is_wide", [False, True])
def test_groups_of_products(machine: Machine, is_wide: bool) -> None:
    """SgemmGroupedBatched: each group is a batch of its own shape; the lists of matrices follow each other."""
    generator, single = np.random.default_rng(4), np.dtype(np.float32)
    groups = [(0, 1, 3, 4, 5, 2), (1, 0, 7, 2, 1, 3)]
    a: list[Array] = []
    b: list[Array] = []
    c: list[Array] = []
    for turned_a, turned_b, rows, width, terms, count in groups:
        for _ in range(count):
            a.append(
                np.asfortranarray(numbers(generator, (terms, rows) if turned_a else (rows, terms), single))
            )
            b.append(
                np.asfortranarray(numbers(generator, (width, terms) if turned_b else (terms, width), single))
            )
            c.append(np.asfortranarray(numbers(generator, (rows, width), single)))
    size = np.int64 if is_wide else np.int32
    ta, tb, m, n, k, counts = zip(*groups, strict=True)
    alpha, beta = np.array([1, 2], single), np.array([0, -1], single)
    lda, ldb = ([array[i].shape[0] for i in (0, 2)] for array in (a, b))

    def ints(values: Any, dtype: type = size) -> Argument:
        return host(np.array(values, dtype))

    with (
        blas(machine, is_wide=is_wide) as run,
        listed(machine, a) as (of_a, _),
        listed(machine, b) as (of_b, _),
        listed(machine, c) as (of_c, at_c),
    ):
        arguments: list[Any] = [
            ints(ta, np.int32), ints(tb, np.int32), ints(m), ints(n), ints(k), host(alpha), of_a, ints(lda), of_b, ints(ldb),
            host(beta), of_c, ints(m), 2, ints(counts),
        ]  # fmt: skip
        assert run("cublasSgemmGroupedBatched", *arguments).status == SUCCESS
        results = got(machine, at_c, c)
        wrong = [*arguments[:2], ints([3, -1]), *arguments[3:]]
        assert run("cublasSgemmGroupedBatched", *wrong).status == INVALID_VALUE
    for index, found in enumerate(results):
        group = 0 if index < 2 else 1
        left, right = OPERATIONS[ta[group]](a[index]), OPERATIONS[tb[group]](b[index])
        assert_close(found, alpha[group] * (left @ right) + beta[group] * c[index], 10)


@pytest.mark.parametrize("suffix", ["", "_64"])
def test_copies_of_vectors_and_matrices(machine: Machine, suffix: str) -> None:
    """cublasSet and GetVector and Matrix, with and without waiting."""
    size = wide if suffix else integer

    def copied(name: str, *arguments: Argument) -> tuple[int, list[bytes]]:
        answer = machine.call(LIBRARY, f"cublas{name}{suffix}", *arguments)
        return answer.status, answer.outputs

    vector = np.arange(12, dtype=np.float64)
    matrix = np.asfortranarray(np.arange(20, dtype=np.float32).reshape(4, 5))
    for late in ("", "Async"):
        ending = [pointer(0)] if late else []
        in_memory, of_matrix = np.full(12, -1.0), np.full((6, 5), -1, np.float32, order="F")
        with machine.arrays(in_memory, of_matrix) as (at, at_matrix):
            status, _ = copied(
                f"SetVector{late}", size(4), size(8), host(vector), size(3), pointer(at), size(2), *ending
            )
            assert status == SUCCESS
            assert machine.synchronize() == 0
            found = machine.get(at, in_memory)
            np.testing.assert_array_equal(found[:8:2], vector[::3])
            np.testing.assert_array_equal(found[1::2], -1)
            status, outputs = copied(
                f"GetVector{late}", size(4), size(8), pointer(at), size(2), out(32), size(1), *ending
            )
            assert status == SUCCESS
            assert machine.synchronize() == 0
            if not late:
                np.testing.assert_array_equal(np.frombuffer(outputs[0]), vector[::3])
            # Three rows of four, in columns that lie further apart there.
            shape = [size(3), size(5), size(4)]
            columns = host(matrix.tobytes(order="F"))
            status, _ = copied(
                f"SetMatrix{late}", *shape, columns, size(4), pointer(at_matrix), size(6), *ending
            )
            assert status == SUCCESS
            assert machine.synchronize() == 0
            found = machine.get(at_matrix, of_matrix)
            np.testing.assert_array_equal(found[:3], matrix[:3])
            np.testing.assert_array_equal(found[3:], -1)
            status, outputs = copied(
                f"GetMatrix{late}", *shape, pointer(at_matrix), size(6), out(60), size(3), *ending
            )
            assert status == SUCCESS
            assert machine.synchronize() == 0
            if not late:
                np.testing.assert_array_equal(
                    np.frombuffer(outputs[0], np.float32).reshape(5, 3).T, matrix[:3]
                )
    assert copied("SetVector", size(4), size(8), host(vector), size(0), NONE, size(1))[0] == INVALID_VALUE
    assert copied("GetMatrix", size(4), size(4), size(8), NONE, size(3), NONE, size(4))[0] == INVALID_VALUE
