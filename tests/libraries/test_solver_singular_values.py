"""cuSOLVER's singular values, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.libraries.blas import LETTERS, framed, real
from tests.libraries.cusolver import (
    NONE,
    SIZE,
    WORK,
    assert_near,
    assert_orthogonal,
    data_type,
    few,
    infos,
    jacobi,
    matrix,
    solver,
)
from tests.libraries.machine import Array, Machine, both, pointer

sizes = st.sampled_from([0, 1, 2, 7, 30])
seeds = st.integers(0, 99)
ALL, FIRST, IN_PLACE, NO = (ord(letter) for letter in "ASON")


@pytest.mark.parametrize("letter", LETTERS)
@few
@given(shape=st.tuples(sizes, sizes), jobs=st.tuples(*[st.sampled_from([ALL, FIRST, IN_PLACE, NO])] * 2),
       is_wide=st.booleans(), seed=seeds)  # fmt: skip
def test_singular_values(
    machine: Machine, letter: str, shape: tuple[int, int], jobs: tuple[int, int], is_wide: bool, seed: int
) -> None:
    """gesvd: vectors of either side, none, all, or in A's place; only of matrices that are not wider than high."""
    rows, columns = max(shape), min(shape)
    if jobs == (IN_PLACE, IN_PLACE):
        jobs = (IN_PLACE, ALL)
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    full = matrix(generator, (rows, columns), dtype)
    a, s, info = framed(full, 1), np.zeros(columns, real(dtype)), infos()
    u, vt = framed(np.zeros((rows, rows), dtype), 1), framed(np.zeros((columns, columns), dtype), 1)
    with solver(machine) as solve, machine.arrays(a, s, u, vt, info) as (at, values, left, right, told):
        places = pointer(at), pointer(values), pointer(left), pointer(right)
        if is_wide:
            kind, of_s = data_type(dtype), data_type(real(dtype))
            before: tuple[Any, ...] = (
                NONE, *jobs, rows, columns, kind, places[0], rows + 1, of_s, places[1], kind, places[2], rows + 1, kind,
                places[3], columns + 1, kind,
            )  # fmt: skip
            solve.run("Xgesvd", (*before, SIZE), (*before, WORK, pointer(told)))
        else:
            before = (
                *jobs, rows, columns, places[0], rows + 1, places[1], places[2], rows + 1, places[3], columns + 1,
            )  # fmt: skip
            solve.run(f"{letter}gesvd", (rows, columns, SIZE), (*before, WORK, NONE, pointer(told)))
        assert machine.get(told, info) == [0]
        s, u, vt, a = (machine.get(*found) for found in ((values, s), (left, u), (right, vt), (at, a)))
    if columns == 0:
        return
    assert_near(s, np.linalg.svd(full, compute_uv=False).astype(s.dtype))
    u = {ALL: u[:rows], FIRST: u[:rows, :columns], IN_PLACE: a[:rows]}.get(jobs[0], u[:0])
    vt = {ALL: vt[:columns], FIRST: vt[:columns], IN_PLACE: a[:columns]}.get(jobs[1], vt[:0])
    if len(u):
        assert_orthogonal(u)
        # What the values say of the vectors of one side.
        assert_near(
            u[:, :columns].conj().T @ full @ full.conj().T @ u[:, :columns], np.diag(s**2).astype(dtype), 4
        )
    if len(vt):
        assert_orthogonal(vt)
        assert_near(vt @ full.conj().T @ full @ vt.conj().T, np.diag(s**2).astype(dtype), 4)
    if len(u) and len(vt):
        assert_near(u[:, :columns] * s @ vt, full)


def check_svd(full: Array, s: Array, u: Array, v: Array) -> None:
    """A = U · diag(S) · Vᴴ with as many vectors as there are."""
    order = min(full.shape)
    assert_near(s, np.linalg.svd(full, compute_uv=False).astype(s.dtype))
    assert_orthogonal(u)
    assert_orthogonal(v)
    assert_near(u[:, :order] * s @ v[:, :order].conj().T, full)


@pytest.mark.parametrize("letter", LETTERS)
@few
@given(
    shape=st.tuples(*[st.sampled_from([1, 2, 7, 30])] * 2),
    econ=st.integers(0, 1),
    polar=st.booleans(),
    seed=seeds,
)
def test_singular_values_of_any_shape(
    machine: Machine, letter: str, shape: tuple[int, int], econ: int, polar: bool, seed: int
) -> None:
    """gesvdj and Xgesvdp give V, not its adjoint."""
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    full, (rows, columns) = matrix(generator, shape, dtype), shape
    order = min(shape)
    a, s, info = framed(full, 1), np.zeros(order, real(dtype)), infos()
    u = framed(np.zeros((rows, order if econ else rows), dtype), 1)
    v = framed(np.zeros((columns, order if econ else columns), dtype), 1)
    with (
        solver(machine) as solve,
        jacobi(machine, "Gesvdj") as settings,
        machine.arrays(a, s, u, v, info) as (at, values, left, right, told),
    ):
        if polar:
            kind, of_s = data_type(dtype), data_type(real(dtype))
            before: tuple[Any, ...] = (
                NONE, 1, econ, rows, columns, kind, pointer(at), rows + 1, of_s, pointer(values), kind, pointer(left), rows + 1,
                kind, pointer(right), columns + 1, kind,
            )  # fmt: skip
            done = solve.run("Xgesvdp", (*before, SIZE), (*before, WORK, pointer(told), both(np.ones(1))))
            assert np.frombuffer(done.outputs[0])[0] == 0
        else:
            before = (
                1, econ, rows, columns, pointer(at), rows + 1, pointer(values), pointer(left), rows + 1, pointer(right),
                columns + 1,
            )  # fmt: skip
            solve.run(f"{letter}gesvdj", (*before, SIZE, settings), (*before, WORK, pointer(told), settings))
        assert machine.get(told, info) == [0]
        s, u, v = machine.get(values, s), machine.get(left, u), machine.get(right, v)
    assert np.isnan(u[rows:]).all()
    assert np.isnan(v[columns:]).all()
    check_svd(full, s, u[:rows], v[:columns])


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (32, 32)])
def test_a_batch_of_singular_values(machine: Machine, letter: str, shape: tuple[int, int]) -> None:
    """gesvdjBatched: all vectors, one matrix behind the other."""
    generator, dtype, batch, (rows, columns) = np.random.default_rng(7), LETTERS[letter], 3, shape
    order = min(shape)
    full = [matrix(generator, shape, dtype) for _ in range(batch)]
    a = np.asfortranarray(np.hstack(full))
    s, info = np.zeros((order, batch), real(dtype), order="F"), infos(batch)
    u, v = (np.zeros((size, size * batch), dtype, order="F") for size in shape)
    with (
        solver(machine) as solve,
        jacobi(machine, "Gesvdj") as settings,
        machine.arrays(a, s, u, v, info) as (at, values, left, right, told),
    ):
        before = (
            1,
            rows,
            columns,
            pointer(at),
            rows,
            pointer(values),
            pointer(left),
            rows,
            pointer(right),
            columns,
        )
        do = (*before, WORK, pointer(told), settings, batch)
        solve.run(f"{letter}gesvdjBatched", (*before, SIZE, settings, batch), do)
        assert list(machine.get(told, info)) == [0] * batch
        s, u, v = machine.get(values, s), machine.get(left, u), machine.get(right, v)
    for i, one in enumerate(full):
        check_svd(one, s[:, i], u[:, rows * i : rows * (i + 1)], v[:, columns * i : columns * (i + 1)])


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize("rank", [1, 3, 4])
def test_the_largest_singular_values_of_a_batch(machine: Machine, letter: str, rank: int) -> None:
    """gesvdaStridedBatched: matrices with gaps between, and the norm of what is left out in host memory."""
    generator, dtype, batch, (rows, columns) = np.random.default_rng(9), LETTERS[letter], 2, (6, 4)
    full = [matrix(generator, (rows, columns), dtype) for _ in range(batch)]
    a = np.asfortranarray(np.hstack([np.hstack([one, np.zeros((rows, 1), dtype)]) for one in full]))
    s, info = np.zeros((columns, batch), real(dtype), order="F"), infos(batch)
    u, v = (np.zeros((size, rank * batch), dtype, order="F") for size in (rows, columns))
    with solver(machine) as solve, machine.arrays(a, s, u, v, info) as (at, values, left, right, told):
        before = (
            1, rank, rows, columns, pointer(at), rows, ("l", rows * (columns + 1)), pointer(values), ("l", columns),
            pointer(left), rows, ("l", rows * rank), pointer(right), columns, ("l", columns * rank),
        )  # fmt: skip
        name = f"{letter}gesvdaStridedBatched"
        done = solve.run(
            name, (*before, SIZE, batch), (*before, WORK, pointer(told), both(np.full(batch, -1.0)), batch)
        )
        assert list(machine.get(told, info)) == [0] * batch
        s, u, v = machine.get(values, s), machine.get(left, u), machine.get(right, v)
    residuals = np.frombuffer(done.outputs[0])
    for i, one in enumerate(full):
        wanted = np.linalg.svd(one, compute_uv=False)
        assert_near(s[:rank, i], wanted[:rank].astype(s.dtype))
        assert (s[rank:, i] == 0).all()
        kept = u[:, rank * i : rank * (i + 1)] * s[:rank, i] @ v[:, rank * i : rank * (i + 1)].conj().T
        assert abs(np.linalg.norm(one - kept) - residuals[i]) < 1e-4
        assert residuals[i] == pytest.approx(np.linalg.norm(wanted[rank:]), abs=1e-4)
