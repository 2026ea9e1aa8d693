"""cuSOLVER's factorisations of systems of equations and what is solved with them, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

from tests.libraries.blas import LETTERS, UPPER, framed, in_triangle
from tests.libraries.cublas import OPERATIONS
from tests.libraries.cusolver import (
    INVALID_VALUE,
    LIBRARY,
    NONE,
    NOT_INITIALIZED,
    NOT_SUPPORTED,
    SIZE,
    SUCCESS,
    UNSET,
    WORK,
    Solver,
    assert_near,
    data_type,
    few,
    hermitian,
    infos,
    matrix,
    positive,
    solver,
)
from tests.libraries.machine import Array, Machine, integer, out, pointer, wide, words

sizes = st.sampled_from([0, 1, 2, 7, 40])
columns = st.sampled_from([0, 1, 3, 300])
seeds = st.integers(0, 99)
triangles = st.integers(0, 1)


def stored_triangle(full: Array, uplo: int, more: int = 1) -> Array:
    """Where the other triangle, and rows below, are what nobody may touch."""
    return framed(np.where(in_triangle(len(full), uplo), full, np.array(np.nan, full.dtype)), more)


def factor_of(memory: Array, order: int, uplo: int) -> Array:
    """L · Lᴴ of what lies in a triangle."""
    triangle = np.where(in_triangle(order, uplo), memory[:order], 0)
    return triangle.conj().T @ triangle if uplo == UPPER else triangle @ triangle.conj().T


@pytest.mark.parametrize("letter", LETTERS)
@few
@given(order=sizes, nrhs=columns, uplo=triangles, seed=seeds)
def test_cholesky(machine: Machine, letter: str, order: int, nrhs: int, uplo: int, seed: int) -> None:
    """potrf, potrs, potri: one triangle is read and written."""
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    full = positive(generator, order, dtype)
    a, x = stored_triangle(full, uplo), matrix(generator, (order, nrhs), dtype)
    b = framed((full @ x).astype(dtype), 2)
    info, lda, ldb = infos(), order + 1, order + 2
    with solver(machine) as solve, machine.arrays(a, b, info) as (at, to, told):
        ask, do = (uplo, order, pointer(at), lda, SIZE), (uplo, order, pointer(at), lda, WORK, pointer(told))
        solve.run(f"{letter}potrf", ask, do)
        factored, said = machine.get(at, a), machine.get(told, info)
        solved = solve.call(
            f"{letter}potrs", uplo, order, nrhs, pointer(at), lda, pointer(to), ldb, pointer(told)
        )
        solution = machine.get(to, b)
        solve.run(f"{letter}potri", ask, do)
        inverted = machine.get(at, a)
        assert machine.get(told, info) == [0]
    assert (int(said[0]), solved.status) == (0, SUCCESS)
    assert_near(factor_of(factored, order, uplo), full)
    assert_near(solution[:order], x)
    keep = in_triangle(order, uplo)
    assert_near(np.where(keep, inverted[:order], 0), np.where(keep, np.linalg.inv(full), 0))
    for memory in (factored, inverted):
        assert np.isnan(memory[:order][~keep]).all()
        assert np.isnan(memory[order:]).all()


@pytest.mark.parametrize("letter", LETTERS)
def test_a_batch_of_cholesky_factors(machine: Machine, letter: str) -> None:
    """potrfBatched and potrsBatched: an info for each factorisation, one for all solutions."""
    generator, dtype, order, nrhs = np.random.default_rng(3), LETTERS[letter], 6, 2
    full = [positive(generator, order, dtype) for _ in range(3)]
    wanted = [matrix(generator, (order, nrhs), dtype) for _ in range(3)]
    broken = full[1].copy(order="F")
    broken[3, 3] = -1
    a, b = [full[0], broken, full[2]], [np.asfortranarray(m @ x) for m, x in zip(full, wanted, strict=True)]
    info, one = infos(3), infos()
    with solver(machine) as solve, machine.arrays(*a, *b, info, one) as addresses:
        lists = [np.frombuffer(words(*addresses[begin : begin + 3]), np.uint64) for begin in (0, 3)]
        with machine.arrays(*lists) as (of_a, of_b):
            factors = (UPPER, order, pointer(of_a), order, pointer(addresses[6]), 3)
            assert solve.call(f"{letter}potrfBatched", *factors).status == SUCCESS
            solutions = (
                UPPER,
                order,
                nrhs,
                pointer(of_a),
                order,
                pointer(of_b),
                order,
                pointer(addresses[7]),
                3,
            )
            assert solve.call(f"{letter}potrsBatched", *solutions).status == SUCCESS
            assert list(machine.get(addresses[6], info)) == [0, 4, 0]
            assert list(machine.get(addresses[7], one)) == [0]
            for i in (0, 2):
                assert_near(machine.get(addresses[3 + i], b[i]), wanted[i])


@pytest.mark.parametrize("letter", LETTERS)
@few
@given(shape=st.tuples(sizes, sizes), seed=seeds, is_wide=st.booleans())
def test_lu(machine: Machine, letter: str, shape: tuple[int, int], seed: int, is_wide: bool) -> None:
    """getrf of any shape, with pivots of 32 or 64 bits."""
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    full = matrix(generator, shape, dtype)
    a, info = framed(full, 1), infos()
    pivots = np.full(max(min(shape), 1), UNSET, np.int64 if is_wide else np.int32)
    with solver(machine) as solve, machine.arrays(a, pivots, info) as (at, rows, told):
        factor(solve, letter, shape, at, rows, told, is_wide)
        factored, exchanged = machine.get(at, a)[: shape[0]], machine.get(rows, pivots)
        assert machine.get(told, info) == [0]
    order = min(shape)
    lower = np.tril(factored[:, :order], -1) + np.eye(shape[0], order)
    for row in range(order):
        other = int(exchanged[row]) - 1
        full[[row, other]] = full[[other, row]]
    assert_near((lower @ np.triu(factored[:order])).astype(dtype), full)
    assert np.abs(lower).max(initial=0) <= (1.5 if dtype.kind == "c" else 1)


def factor(
    solve: Solver, letter: str, shape: tuple[int, int], at: int, rows: int, told: int, is_wide: bool
) -> None:
    """getrf, by its own name or by that of all types."""
    leading = shape[0] + 1
    if not is_wide:
        ask = (*shape, pointer(at), leading, SIZE)
        assert solve.call(f"{letter}getrf_bufferSize", *ask).status == SUCCESS
        do = (*shape, pointer(at), leading, pointer(solve.work), pointer(rows), pointer(told))
        assert solve.call(f"{letter}getrf", *do).status == SUCCESS
        return
    kind = data_type(LETTERS[letter])
    solve.run(
        "Xgetrf",
        (NONE, *shape, kind, pointer(at), leading, kind, SIZE),
        (NONE, *shape, kind, pointer(at), leading, pointer(rows), kind, WORK, pointer(told)),
    )


@pytest.mark.parametrize("letter", LETTERS)
@few
@given(order=sizes, nrhs=columns, trans=st.integers(0, 2), is_wide=st.booleans(), seed=seeds)
def test_systems_by_lu(
    machine: Machine, letter: str, order: int, nrhs: int, trans: int, is_wide: bool, seed: int
) -> None:
    """getrs; 300 columns are more than one part."""
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    full = np.asfortranarray((matrix(generator, (order, order), dtype) + order * np.eye(order)).astype(dtype))
    x = matrix(generator, (order, nrhs), dtype)
    a, b, info = framed(full, 1), framed((OPERATIONS[trans](full) @ x).astype(dtype), 2), infos()
    pivots = np.zeros(max(order, 1), np.int64 if is_wide else np.int32)
    with solver(machine) as solve, machine.arrays(a, b, pivots, info) as (at, to, rows, told):
        factor(solve, letter, (order, order), at, rows, told, is_wide)
        kind = [data_type(dtype)] if is_wide else []
        first = [NONE] if is_wide else []
        solved = solve.call(
            ("X" if is_wide else letter) + "getrs", *first, trans, order, nrhs, *kind, pointer(at), order + 1, pointer(rows),
            *kind, pointer(to), order + 2, pointer(told),
        )  # fmt: skip
        solution = machine.get(to, b)
        assert machine.get(told, info) == [0]
    assert solved.status == SUCCESS
    assert_near(solution[:order], x, 5)
    assert np.isnan(solution[order:]).all()


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize("shape", [(70, 70), (40, 75), (75, 40), (5, 3)])
def test_lu_without_pivots(machine: Machine, letter: str, shape: tuple[int, int]) -> None:
    generator, dtype = np.random.default_rng(1), LETTERS[letter]
    full = np.asfortranarray((matrix(generator, shape, dtype) + 100 * np.eye(*shape)).astype(dtype))
    info, order = infos(), min(shape)
    with solver(machine) as solve, machine.arrays(full, info) as (at, told):
        arguments = (*shape, pointer(at), shape[0], pointer(solve.work), NONE, pointer(told))
        assert solve.call(f"{letter}getrf", *arguments).status == SUCCESS
        factored = machine.get(at, full)
        assert machine.get(told, info) == [0]
    lower = np.tril(factored[:, :order], -1) + np.eye(shape[0], order)
    assert_near((lower @ np.triu(factored[:order])).astype(dtype), full)


@pytest.mark.parametrize("letter", LETTERS)
@few
@given(order=sizes, nrhs=columns, uplo=triangles, seed=seeds)
def test_symmetric_systems(
    machine: Machine, letter: str, order: int, nrhs: int, uplo: int, seed: int
) -> None:
    """sytrf and Xsytrs: pivots of 32 bits become those of 64 bits in the program, as PyTorch does it; and sytri."""
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    half = matrix(generator, (order, order), dtype)
    full = np.asfortranarray(half + half.T + 3 * np.diag(np.arange(order) % 2).astype(dtype))
    x = matrix(generator, (order, nrhs), dtype)
    a, b, info = stored_triangle(full, uplo), framed((full @ x).astype(dtype), 2), infos()
    pivots, lda, kind = np.zeros(max(order, 1), np.int32), order + 1, data_type(dtype)
    with solver(machine) as solve, machine.arrays(a, b, pivots, info) as (at, to, rows, told):
        solve.run(
            f"{letter}sytrf",
            (order, pointer(at), lda, SIZE),
            (uplo, order, pointer(at), lda, pointer(rows), WORK, pointer(told)),
        )
        assert machine.get(told, info) == [0]
        with machine.arrays(machine.get(rows, pivots).astype(np.int64)) as (long_rows,):
            arguments = (
                uplo,
                order,
                nrhs,
                kind,
                pointer(at),
                lda,
                pointer(long_rows),
                kind,
                pointer(to),
                order + 2,
            )
            solve.run("Xsytrs", (*arguments, SIZE), (*arguments, WORK, pointer(told)))
        solution = machine.get(to, b)[:order]
        before = (uplo, order, pointer(at), lda, pointer(rows))
        solve.run(f"{letter}sytri", (*before, SIZE), (*before, WORK, pointer(told)))
        inverted = machine.get(at, a)[:order]
    keep = in_triangle(order, uplo)
    inverse = np.linalg.inv(full) if order else full
    conditioned = float(np.linalg.cond(full)) if order else 1.0
    assert_near(solution, x, conditioned)
    assert_near(np.where(keep, inverted, 0), np.where(keep, inverse, 0), conditioned)
    assert np.isnan(inverted[~keep]).all()


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize("uplo", [0, 1])
def test_triangles(machine: Machine, letter: str, uplo: int) -> None:
    """Xtrtri inverts one, with its diagonal or ones in its place; lauum multiplies it with its adjoint."""
    generator, dtype, order = np.random.default_rng(2), LETTERS[letter], 9
    keep = in_triangle(order, uplo)
    full = np.where(keep, matrix(generator, (order, order), dtype) + 4 * np.eye(order), 0).astype(dtype)
    kind = data_type(dtype)
    for unit in (0, 1):
        a, info = stored_triangle(full, uplo), infos()
        with solver(machine) as solve, machine.arrays(a, info) as (at, told):
            arguments = (uplo, unit, order, kind, pointer(at), order + 1)
            solve.run("Xtrtri", (*arguments, SIZE), (*arguments, WORK, pointer(told)))
            found = machine.get(at, a)[:order]
            assert machine.get(told, info) == [0]
        of = full - np.diag(np.diag(full)) + np.eye(order) if unit else full
        wanted = np.linalg.inv(of)
        if unit:
            np.fill_diagonal(wanted, np.diag(full))
        assert_near(np.where(keep, found, 0).astype(dtype), np.where(keep, wanted, 0))
    # As a factor of Cholesky's, it has a real diagonal.
    full = full - 1j * np.diag(np.diag(full).imag) if dtype.kind == "c" else full
    a, info = stored_triangle(full.astype(dtype), uplo), infos()
    with solver(machine) as solve, machine.arrays(a, info) as (at, told):
        before = (uplo, order, pointer(at), order + 1)
        solve.run(f"{letter}lauum", (*before, SIZE), (*before, WORK, pointer(told)))
        found = machine.get(at, a)[:order]
    wanted = full @ full.conj().T if uplo == UPPER else full.conj().T @ full
    assert_near(np.where(keep, found, 0).astype(dtype), np.where(keep, wanted, 0))


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize("step", [1, 2, -1])
def test_rows_are_exchanged(machine: Machine, letter: str, step: int) -> None:
    """laswp: rows 2 to 4, forward or backward."""
    dtype = LETTERS[letter]
    full = matrix(np.random.default_rng(5), (6, 3), dtype)
    pivots = np.array([9, 5, 3, 6, 4, 4, 1], np.int32)
    wanted = full.copy()
    rows = [2, 3, 4] if step > 0 else [4, 3, 2]
    for row in rows:
        other = int(pivots[1 + (row - 2) * abs(step)])
        wanted[[row - 1, other - 1]] = wanted[[other - 1, row - 1]]
    with solver(machine) as solve, machine.arrays(full, pivots) as (at, those):
        assert solve.call(f"{letter}laswp", 3, pointer(at), 6, 2, 4, pointer(those), step).status == SUCCESS
        found = machine.get(at, full)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("letter", LETTERS)
def test_what_cannot_be_factored_says_where(machine: Machine, letter: str) -> None:
    """info > 0: a minor that is not positive, a pivot that is zero."""
    dtype, order, info = LETTERS[letter], 5, infos()
    indefinite = np.asfortranarray(np.diag([4, 3, -2, 1, 1]).astype(dtype))
    singular = np.asfortranarray(np.diag([4, 3, 0, 1, 0]).astype(dtype))
    pivots = np.zeros(order, np.int32)
    with solver(machine) as solve, machine.arrays(info, pivots) as (told, rows):
        for name, full, wanted, before, after in (
            ("potrf", indefinite, 3, (UPPER, order), (WORK, pointer(told))),
            ("potri", singular, 3, (UPPER, order), (WORK, pointer(told))),
            ("getrf", singular, 3, (order, order), (pointer(solve.work), pointer(rows), pointer(told))),
            ("getrf", singular, 3, (order, order), (pointer(solve.work), NONE, pointer(told))),
            ("sytrf", singular, 5, (UPPER, order), (pointer(rows), WORK, pointer(told))),
        ):  # fmt: skip
            with machine.arrays(full) as (at,):
                assert solve.call(letter + name, *before, pointer(at), order, *after).status == SUCCESS
                assert machine.get(told, info) == [wanted], name


def test_wrong_arguments(machine: Machine) -> None:
    """Each is refused as cuSOLVER does it, and nothing is launched."""
    n, lda = 4, 4
    with (
        solver(machine) as solve,
        machine.arrays(np.eye(4), np.zeros(4, np.int32), infos()) as (at, rows, told),
    ):
        a, p, i = pointer(at), pointer(rows), pointer(told)
        for wrong in ((2, n, a, lda), (0, -1, a, lda), (0, n, a, 3)):
            assert solve.call("Dpotrf", *wrong, WORK, i).status == INVALID_VALUE
            assert solve.call("Dpotrf_bufferSize", *wrong, SIZE).status == INVALID_VALUE
            assert solve.call("Dpotrs", *wrong[:2], 1, *wrong[2:], a, 4, i).status == INVALID_VALUE
        assert solve.call("Dpotrf", 0, n, a, lda, WORK, i, wanted=0).status == INVALID_VALUE
        assert solve.call("Dpotrf_bufferSize", 0, n, a, lda, NONE).status == INVALID_VALUE
        assert solve.call("Dpotrs", 0, n, -1, a, lda, a, 4, i).status == INVALID_VALUE
        assert solve.call("Dpotrs", 0, n, 1, a, lda, a, 3, i).status == INVALID_VALUE
        assert solve.call("DpotrfBatched", 0, n, a, lda, i, -1).status == INVALID_VALUE
        assert solve.call("Dgetrf", -1, n, a, lda, a, p, i).status == INVALID_VALUE
        assert solve.call("Dgetrf", n, n, a, 3, a, p, i).status == INVALID_VALUE
        assert solve.call("Dgetrs", 3, n, 1, a, lda, p, a, 4, i).status == INVALID_VALUE
        assert solve.call("Dlaswp", n, a, lda, 0, 3, p, 1).status == INVALID_VALUE
        assert solve.call("Dsytrf", 0, n, a, lda, NONE, WORK, i).status == NOT_SUPPORTED
        single, double = 0, 1
        assert solve.call("Xpotrf", NONE, 0, n, double, a, lda, single, WORK, i).status == INVALID_VALUE
        assert solve.call("Xpotrf", NONE, 0, n, 2, a, lda, 2, WORK, i).status == INVALID_VALUE
        assert (
            solve.call("Xpotrf", NONE, 0, n, double, a, lda, double, WORK, i, wanted=0).status
            == INVALID_VALUE
        )
        assert solve.call("Xgetrs", NONE, 0, n, 1, double, a, lda, p, single, a, 4, i).status == INVALID_VALUE
        assert machine.get(told, infos()) == [UNSET]
    arguments = (integer(0), integer(n), NONE, integer(lda), NONE)
    assert machine.call(LIBRARY, "cusolverDnDpotrf_bufferSize", NONE, *arguments).status == NOT_INITIALIZED


def test_a_system_equals_that_of_scipy(machine: Machine) -> None:
    """A larger one: blocks of the factorisation are more than one."""
    full = hermitian(np.random.default_rng(8), 260, np.dtype(np.float64))
    pivots, info, right = np.zeros(260, np.int32), infos(), np.asfortranarray(full[:, :2].copy())
    with solver(machine) as solve, machine.arrays(full, right, pivots, info) as (at, to, rows, told):
        solve.call("Dgetrf", 260, 260, pointer(at), 260, pointer(solve.work), pointer(rows), pointer(told))
        wanted, permutation = scipy.linalg.lu_factor(full)
        assert_near(machine.get(at, full), wanted, 20)
        np.testing.assert_array_equal(machine.get(rows, pivots) - 1, permutation)
        arguments = (0, 260, 2, pointer(at), 260, pointer(rows), pointer(to), 260, pointer(told))
        assert solve.call("Dgetrs", *arguments).status == SUCCESS
        assert_near(machine.get(to, right), np.eye(260, 2), 20)


@pytest.mark.parametrize("letters", ["SS", "SH", "SB", "SX", "DD", "DS", "DX", "CC", "CK", "ZZ", "ZC", "ZY"])
@pytest.mark.parametrize("rows", [6, 9])
def test_solvers_of_two_types(machine: Machine, letters: str, rows: int) -> None:
    """gesv and gels: everything is computed in the wider type, as the number of iterations tells."""
    generator, dtype, order, nrhs = np.random.default_rng(4), LETTERS[letters[0]], 6, 2
    square = rows == order
    full, right = matrix(generator, (rows, order), dtype), matrix(generator, (rows, nrhs), dtype)
    b, x, info = framed(right, 1), framed(np.zeros((order, nrhs), dtype), 2), infos()
    pivots = np.zeros(order, np.int32)
    name = letters + ("gesv" if square else "gels")
    with solver(machine) as solve, machine.arrays(full, b, x, pivots, info) as (at, to, into, those, told):
        before: tuple[Any, ...] = (*([] if square else [rows]), order, nrhs, pointer(at), rows)
        before += (*([pointer(those)] if square else []), pointer(to), rows + 1, pointer(into), order + 2)
        asked = solve.call(f"{name}_bufferSize", *before, NONE, out(8))
        assert (asked.status, asked.number() > 0) == (SUCCESS, True)
        after = (pointer(solve.work), wide(asked.number()), out(4), pointer(told))
        done = solve.call(name, *before, *after)
        assert int.from_bytes(done.outputs[0], "little", signed=True) == -1
        solution = machine.get(into, x)
        np.testing.assert_array_equal(machine.get(to, b), b)
        assert machine.get(told, info) == [0]
        wrong = (*before[: 0 if square else 1], -1, *before[1 if square else 2 :])
        assert solve.call(name, *wrong, *after).status == INVALID_VALUE
    wanted = np.linalg.lstsq(full, right)[0]
    assert_near(solution[:order], wanted.astype(dtype), 20)
    assert np.isnan(solution[order:]).all()
