"""cuSOLVER's factorisations by reflectors: QR, tridiagonal and bidiagonal matrices, and their orthogonal factors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.libraries.blas import LETTERS, UPPER, framed, real
from tests.libraries.cusolver import (
    INVALID_VALUE,
    NONE,
    SIZE,
    SUCCESS,
    UNSET,
    WORK,
    Solver,
    adjoint_of,
    assert_near,
    assert_orthogonal,
    by_type,
    data_type,
    few,
    hermitian,
    infos,
    matrix,
    solver,
)
from tests.libraries.machine import Array, Machine, pointer

sizes = st.sampled_from([1, 2, 7, 40])
seeds = st.integers(0, 99)


def factor(
    solve: Solver, letter: str, shape: tuple[int, int], at: int, tau: int, told: int, is_wide: bool
) -> None:
    """geqrf, by its own name or by that of all types."""
    before: tuple[object, ...] = (*shape, pointer(at), shape[0] + 1)
    if not is_wide:
        solve.run(f"{letter}geqrf", (*before, SIZE), (*before, pointer(tau), WORK, pointer(told)))
        return
    kind = data_type(LETTERS[letter])
    before = (NONE, *shape, kind, pointer(at), shape[0] + 1, kind, pointer(tau), kind)
    solve.run("Xgeqrf", (*before, SIZE), (*before, WORK, pointer(told)))


@pytest.mark.parametrize("letter", LETTERS)
@few
@given(
    shape=st.tuples(sizes, sizes),
    is_wide=st.booleans(),
    right=st.booleans(),
    turned=st.booleans(),
    seed=seeds,
)
def test_qr(
    machine: Machine, letter: str, shape: tuple[int, int], is_wide: bool, right: bool, turned: bool, seed: int
) -> None:
    """geqrf makes R and reflectors, orgqr the columns of Q, ormqr multiplies with Q from either side."""
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    rows, order = shape[0], min(shape)
    full, other = matrix(generator, shape, dtype), matrix(generator, (rows, rows), dtype)
    a, c, tau, info = framed(full, 1), framed(other, 1), np.zeros(order, dtype), infos()
    with solver(machine) as solve, machine.arrays(a, c, tau, info) as (at, to, reflectors, told):
        factor(solve, letter, shape, at, reflectors, told, is_wide)
        upper = np.triu(machine.get(at, a)[:order])
        trans = adjoint_of(letter) if turned else 0
        before: tuple[object, ...] = (
            int(right),
            trans,
            rows,
            rows,
            order,
            pointer(at),
            rows + 1,
            pointer(reflectors),
            pointer(to),
            rows + 1,
        )
        factored = machine.get(at, a)
        solve.run(by_type(letter, "ormqr", "unmqr"), (*before, SIZE), (*before, WORK, pointer(told)))
        np.testing.assert_array_equal(machine.get(at, a), factored)
        multiplied = machine.get(to, c)
        before = (rows, order, order, pointer(at), rows + 1, pointer(reflectors))
        solve.run(by_type(letter, "orgqr", "ungqr"), (*before, SIZE), (*before, WORK, pointer(told)))
        q = machine.get(at, a)[:rows, :order]
        assert machine.get(told, info) == [0]
    assert_orthogonal(q)
    assert_near(q @ upper, full)
    # The whole Q is what a product with ones makes; its first columns are those of orgqr.
    assert np.isnan(multiplied[rows:]).all()
    kept = multiplied[:rows]
    undone = np.linalg.solve(other.T, kept.T).T if not right else np.linalg.solve(other, kept)
    if np.linalg.cond(other) < 1e3:
        whole = undone.conj().T if turned else undone
        assert_near(whole[:, :order], q, 1e4)


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize("uplo", [0, 1])
@pytest.mark.parametrize("right", [0, 1])
def test_tridiagonal_matrices(machine: Machine, letter: str, uplo: int, right: int) -> None:
    """sytrd, orgtr, ormtr: A = Q · T · Qᴴ."""
    generator, dtype, order = np.random.default_rng(3), LETTERS[letter], 11
    full = hermitian(generator, order, dtype)
    a, c, info = framed(full, 1), matrix(generator, (order, order), dtype), infos()
    d, e = np.zeros(order, real(dtype)), np.zeros(order - 1, real(dtype))
    tau = np.zeros(order - 1, dtype)
    with (
        solver(machine) as solve,
        machine.arrays(a, c, d, e, tau, info) as (at, to, of_d, of_e, reflectors, told),
    ):
        before: tuple[object, ...] = (uplo, order, pointer(at), order + 1)
        with_d = (*before, pointer(of_d), pointer(of_e), pointer(reflectors))
        solve.run(by_type(letter, "sytrd", "hetrd"), (*with_d, SIZE), (*with_d, WORK, pointer(told)))
        d, e = machine.get(of_d, d), machine.get(of_e, e)
        trans = adjoint_of(letter)
        product = (
            right,
            uplo,
            trans,
            order,
            order,
            pointer(at),
            order + 1,
            pointer(reflectors),
            pointer(to),
            order,
        )
        solve.run(by_type(letter, "ormtr", "unmtr"), (*product, SIZE), (*product, WORK, pointer(told)))
        multiplied = machine.get(to, c)
        before = (*before, pointer(reflectors))
        solve.run(by_type(letter, "orgtr", "ungtr"), (*before, SIZE), (*before, WORK, pointer(told)))
        q = machine.get(at, a)[:order]
        assert machine.get(told, info) == [0]
    middle = np.diag(d) + np.diag(e, 1) + np.diag(e, -1)
    assert_orthogonal(q)
    assert_near((q @ middle @ q.conj().T).astype(dtype), full)
    assert_near(multiplied, c @ q.conj().T if right else q.conj().T @ c)


@pytest.mark.parametrize("letter", LETTERS)
def test_bidiagonal_matrices(machine: Machine, letter: str) -> None:
    """gebrd, orgbr: A = Q · B · Pᴴ."""
    generator, dtype, shape = np.random.default_rng(4), LETTERS[letter], (9, 6)
    rows, order = shape
    full = matrix(generator, shape, dtype)
    d, e = np.zeros(order, real(dtype)), np.zeros(order - 1, real(dtype))
    taus, info = np.zeros(order, dtype), infos()
    with (
        solver(machine) as solve,
        machine.arrays(full, d, e, taus, taus, info) as (at, of_d, of_e, left, right, told),
    ):
        do = (
            *shape,
            pointer(at),
            rows,
            pointer(of_d),
            pointer(of_e),
            pointer(left),
            pointer(right),
            WORK,
            pointer(told),
        )
        solve.run(f"{letter}gebrd", (*shape, SIZE), do)
        d, e, factored = machine.get(of_d, d), machine.get(of_e, e), machine.get(at, full)
        found = []
        for side, size, k, reflectors in ((0, (rows, order), order, left), (1, (order, order), rows, right)):
            with machine.arrays(np.asfortranarray(factored[: size[0]])) as (of,):
                before = (side, *size, k, pointer(of), size[0], pointer(reflectors))
                solve.run(by_type(letter, "orgbr", "ungbr"), (*before, SIZE), (*before, WORK, pointer(told)))
                found.append(machine.get(of, np.asfortranarray(factored[: size[0]])))
        assert machine.get(told, info) == [0]
    q, p = found
    assert_orthogonal(q)
    assert_orthogonal(p)
    assert_near((q @ (np.diag(d) + np.diag(e, 1)) @ p).astype(dtype), full)


def test_a_product_with_a_whole_q_of_few_reflectors(machine: Machine) -> None:
    generator, dtype = np.random.default_rng(6), np.dtype(np.float64)
    full, other = matrix(generator, (5, 2), dtype), matrix(generator, (3, 5), dtype)
    tau, info = np.zeros(2, dtype), infos()
    with solver(machine) as solve, machine.arrays(full, other, tau, info) as (at, to, reflectors, told):
        solve.run(
            "Dgeqrf",
            (5, 2, pointer(at), 5, SIZE),
            (5, 2, pointer(at), 5, pointer(reflectors), WORK, pointer(told)),
        )
        before = (1, 0, 3, 5, 2, pointer(at), 5, pointer(reflectors), pointer(to), 3)
        solve.run("Dormqr", (*before, SIZE), (*before, WORK, pointer(told)))
        found = machine.get(to, other)
    q = np.linalg.qr(full, mode="complete")[0]
    assert_near(found, other @ q)


def test_wrong_arguments(machine: Machine) -> None:
    with solver(machine) as solve, machine.arrays(np.eye(4), infos()) as (at, told):
        a, i = pointer(at), pointer(told)
        assert solve.call("Dgeqrf", -1, 4, a, 4, a, WORK, i).status == INVALID_VALUE
        assert solve.call("Dgeqrf", 4, 4, a, 3, a, WORK, i).status == INVALID_VALUE
        assert solve.call("Dgeqrf", 4, 4, a, 4, a, WORK, i, wanted=0).status == INVALID_VALUE
        for m, n, k in ((3, 4, 3), (4, 3, 4), (4, 4, -1)):
            assert solve.call("Dorgqr", m, n, k, a, 4, a, WORK, i).status == INVALID_VALUE
        for side, trans, k, lda, ldc in (
            (2, 0, 4, 4, 4),
            (0, 2, 4, 4, 4),
            (0, 0, 5, 4, 4),
            (0, 0, 4, 3, 4),
            (0, 0, 4, 4, 3),
        ):
            assert (
                solve.call("Dormqr", side, trans, 4, 4, k, a, lda, a, a, ldc, WORK, i).status == INVALID_VALUE
            )
        assert solve.call("Zunmqr", 0, 1, 2, 2, 2, a, 2, a, a, 2, WORK, i).status == INVALID_VALUE
        assert solve.call("Dsytrd", 3, 4, a, 4, a, a, a, WORK, i).status == INVALID_VALUE
        assert solve.call("Dgebrd", 3, 4, a, 4, a, a, a, a, WORK, i).status == INVALID_VALUE
        assert solve.call("Dorgbr", UPPER, 4, 3, 3, a, 4, a, WORK, i).status == INVALID_VALUE
        single, double = 0, 1
        assert (
            solve.call("Xgeqrf", NONE, 4, 4, double, a, 4, single, a, double, WORK, i).status == INVALID_VALUE
        )
        assert machine.get(told, infos()) == [UNSET]
        assert solve.call("Dgeqrf_bufferSize", 4, 4, a, 4, SIZE).status == SUCCESS


def test_q_of_a_matrix_without_columns_is_none(machine: Machine) -> None:
    empty: Array = np.zeros((0, 0))
    info = infos()
    with solver(machine) as solve, machine.arrays(empty, info) as (at, told):
        arguments = (3, 0, pointer(at), 3, pointer(at), WORK, pointer(told))
        assert solve.call("Dgeqrf", *arguments).status == SUCCESS
        assert machine.get(told, info) == [0]
