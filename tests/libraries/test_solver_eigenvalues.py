"""cuSOLVER's eigenvalues, against numpy and scipy; and what has no spectrum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

from tests.libraries.blas import LETTERS, framed, in_triangle, real
from tests.libraries.cusolver import (
    INVALID_VALUE,
    NONE,
    SIZE,
    SUCCESS,
    UNSET,
    WORK,
    Solver,
    assert_near,
    assert_orthogonal,
    by_type,
    data_type,
    few,
    hermitian,
    infos,
    jacobi,
    matrix,
    positive,
    solver,
)
from tests.libraries.machine import Array, Machine, pointer

sizes = st.sampled_from([0, 1, 2, 7, 30])
seeds = st.integers(0, 99)
ALL, FIRST, IN_PLACE, NO = (ord(letter) for letter in "ASON")


def stored_triangle(full: Array, uplo: int) -> Array:
    """Where the other triangle, and a row below, are what nobody may read."""
    return framed(np.where(in_triangle(len(full), uplo), full, np.array(np.nan, full.dtype)), 1)


def eigenvectors_of(
    solve: Solver, letter: str, way: str, job: int, uplo: int, a: Array, places: list[int]
) -> None:
    """One of the functions for it; ``places`` are those of A, the values and info."""
    order = a.shape[1]
    at, values, told = (pointer(place) for place in places)
    if way in ("Xsyevd", "XsyevBatched"):
        kind, of_w = data_type(a.dtype), data_type(real(a.dtype))
        before: tuple[Any, ...] = (NONE, job, uplo, order, kind, at, len(a), of_w, values, kind)
        batch = (1,) if way == "XsyevBatched" else ()
        solve.run(way, (*before, SIZE, *batch), (*before, WORK, told, *batch))
        return
    name = by_type(letter, way, way.replace("sy", "he"))
    before = (job, uplo, order, at, len(a), values)
    if way == "syevd":
        solve.run(name, (*before, SIZE), (*before, WORK, told))
        return
    batch = (1,) if way == "syevjBatched" else ()
    with jacobi(solve.machine, "Syevj") as settings:
        solve.run(name, (*before, SIZE, settings, *batch), (*before, WORK, told, settings, *batch))


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize("way", ["syevd", "syevj", "syevjBatched", "Xsyevd", "XsyevBatched"])
@few
@given(order=sizes, uplo=st.integers(0, 1), job=st.integers(0, 1), seed=seeds)
def test_eigenvalues_of_hermitian_matrices(
    machine: Machine, letter: str, way: str, order: int, uplo: int, job: int, seed: int
) -> None:
    """Of one triangle; vectors come in the matrix's place."""
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    full = hermitian(generator, order, dtype)
    a, w, info = stored_triangle(full, uplo), np.zeros(order, real(dtype)), infos()
    with solver(machine) as solve, machine.arrays(a, w, info) as places:
        eigenvectors_of(solve, letter, way, job, uplo, a, places)
        vectors, w = machine.get(places[0], a)[:order], machine.get(places[1], w)
        assert machine.get(places[2], info) == [0]
    if order == 0:
        return
    assert_near(w, np.linalg.eigvalsh(full))
    if job:
        assert_orthogonal(vectors)
        assert_near(vectors * w @ vectors.conj().T, full)


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize("is_wide", [False, True])
def test_a_batch_of_eigenvalues(machine: Machine, letter: str, is_wide: bool) -> None:
    """syevjBatched and XsyevBatched: one that is not finite is said to be, the others are found."""
    generator, dtype, order, batch = np.random.default_rng(2), LETTERS[letter], 5, 3
    full = [hermitian(generator, order, dtype) for _ in range(batch)]
    full[1][2, 2] = np.inf
    a, w = np.asfortranarray(np.hstack(full)), np.zeros((order, batch), real(dtype), order="F")
    info = infos(batch)
    with (
        solver(machine) as solve,
        jacobi(machine, "Syevj") as settings,
        machine.arrays(a, w, info) as (at, values, told),
    ):
        if is_wide:
            kind, of_w = data_type(dtype), data_type(real(dtype))
            before: tuple[Any, ...] = (
                NONE,
                1,
                0,
                order,
                kind,
                pointer(at),
                order,
                of_w,
                pointer(values),
                kind,
            )
            solve.run("XsyevBatched", (*before, SIZE, batch), (*before, WORK, pointer(told), batch))
        else:
            before = (1, 0, order, pointer(at), order, pointer(values))
            name = by_type(letter, "syevjBatched", "heevjBatched")
            solve.run(name, (*before, SIZE, settings, batch), (*before, WORK, pointer(told), settings, batch))
        a, w, info = machine.get(at, a), machine.get(values, w), machine.get(told, info)
    assert [bool(one) for one in info] == [False, True, False]
    assert np.isnan(w[:, 1]).all()
    for i in (0, 2):
        vectors = a[:, order * i : order * (i + 1)]
        assert_near(w[:, i], np.linalg.eigvalsh(full[i]))
        assert_near(vectors * w[:, i] @ vectors.conj().T, full[i])


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize("problem", [1, 2, 3])
@pytest.mark.parametrize("way", ["sygvd", "sygvj"])
def test_generalised_eigenvalues(machine: Machine, letter: str, problem: int, way: str) -> None:
    """A · x = w · B · x, A · B · x = w · x and B · A · x = w · x; B becomes its factor."""
    generator, dtype, order, uplo = np.random.default_rng(problem), LETTERS[letter], 7, problem % 2
    full, other = hermitian(generator, order, dtype), positive(generator, order, dtype)
    a, b, w, info = (
        stored_triangle(full, uplo),
        stored_triangle(other, uplo),
        np.zeros(order, real(dtype)),
        infos(),
    )
    with (
        solver(machine) as solve,
        jacobi(machine, "Syevj") as settings,
        machine.arrays(a, b, w, info) as (at, to, values, told),
    ):
        last = (settings,) if way == "sygvj" else ()
        before = (problem, 1, uplo, order, pointer(at), order + 1, pointer(to), order + 1, pointer(values))
        name = by_type(letter, way, way.replace("sy", "he"))
        solve.run(name, (*before, SIZE, *last), (*before, WORK, pointer(told), *last))
        x, w, factor = machine.get(at, a)[:order], machine.get(values, w), machine.get(to, b)[:order]
        assert machine.get(told, info) == [0]
        machine.driver("cuMemsetD8_v2", pointer(to), ("i", 0), ("l", b.nbytes))
        assert solve.call(name, *before, WORK, pointer(told), *last).status == SUCCESS
        assert machine.get(told, info) > order
    assert_near(w, scipy.linalg.eigh(full, other, type=problem, eigvals_only=True).astype(w.dtype), 50)
    sides = {1: (full @ x, other @ x * w), 2: (full @ other @ x, x * w), 3: (other @ full @ x, x * w)}[
        problem
    ]
    assert_near(*sides, 100)
    triangle = np.where(in_triangle(order, uplo), factor, 0)
    assert_near(triangle.conj().T @ triangle if uplo else triangle @ triangle.conj().T, other)


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize("values_are_complex", [False, True])
@few
@given(order=sizes, jobs=st.tuples(*[st.integers(0, 1)] * 2), seed=seeds)
def test_eigenvalues_of_any_matrix(
    machine: Machine, letter: str, values_are_complex: bool, order: int, jobs: tuple[int, int], seed: int
) -> None:
    """Xgeev: of a real matrix the values are complex ones, or all real parts before all imaginary ones."""
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    full, kind = matrix(generator, (order, order), dtype), data_type(dtype)
    is_complex = dtype.kind == "c"
    as_complex = np.result_type(dtype, np.complex64)
    of_w = as_complex if values_are_complex else dtype
    w = np.zeros(order if of_w.kind == "c" else 2 * order, of_w)
    a, info, none = framed(full, 1), infos(), framed(np.zeros((order, order), dtype), 2)
    with solver(machine) as solve, machine.arrays(a, w, none, none, info) as (at, values, left, right, told):
        before = (
            NONE, *jobs, order, kind, pointer(at), order + 1, data_type(of_w), pointer(values), kind, pointer(left), order + 2,
            kind, pointer(right), order + 2, kind,
        )  # fmt: skip
        solve.run("Xgeev", (*before, SIZE), (*before, WORK, pointer(told)))
        w, vl, vr = machine.get(values, w), machine.get(left, none)[:order], machine.get(right, none)[:order]
        assert machine.get(told, info) == [0]
    if of_w.kind != "c":
        w = (w[:order] + 1j * w[order:]).astype(as_complex)
    if order == 0:
        return
    wanted = np.linalg.eigvals(full)
    distances = np.abs(w[:, None] - wanted[None, :])
    assert distances.min(axis=1).max() < (2e-2 if real(dtype) == np.float32 else 1e-8)
    if jobs[1]:
        vectors = vr if is_complex else unpacked(vr, w)
        assert_near(full @ vectors, vectors * w, 10)
    if jobs[0]:
        vectors = vl if is_complex else unpacked(vl, w)
        assert_near(vectors.conj().T @ full, (w * vectors.conj()).T.astype(as_complex), 10)


def unpacked(vectors: Array, values: Array) -> Array:
    """Pairs of a real matrix: one column has the real parts, the next one the imaginary parts of the first."""
    found = vectors.astype(values.dtype)
    for j in np.nonzero(values.imag > 0)[0]:
        found[:, j] = vectors[:, j] + 1j * vectors[:, j + 1]
        found[:, j + 1] = found[:, j].conj()
    return found


@pytest.mark.parametrize("letter", LETTERS)
def test_what_is_not_finite_has_no_spectrum(machine: Machine, letter: str) -> None:
    """info says that nothing was found, and what is found is no number."""
    dtype, order, info = LETTERS[letter], 4, infos()
    full = hermitian(np.random.default_rng(1), order, dtype)
    full[1, 1] = np.nan
    kind, s = data_type(dtype), np.zeros(order, real(dtype))
    w = np.zeros(2 * order, dtype)
    with solver(machine) as solve, machine.arrays(full, full, s, w, info) as (at, to, values, others, told):
        a, v, i = pointer(at), pointer(to), pointer(told)
        do = (ALL, ALL, order, order, a, order, pointer(values), v, order, v, order, WORK, NONE, i)
        assert solve.call(f"{letter}gesvd", *do).status == SUCCESS
        assert machine.get(told, info) > 0
        assert np.isnan(machine.get(values, s)).all()
        many = (
            NONE,
            0,
            1,
            order,
            kind,
            a,
            order,
            kind,
            pointer(others),
            kind,
            v,
            order,
            kind,
            v,
            order,
            kind,
            WORK,
            i,
        )
        assert solve.call("Xgeev", *many).status == SUCCESS
        assert machine.get(told, info) > 0
        assert np.isnan(machine.get(others, w)[:order]).all()
        assert np.isnan(machine.get(to, full)).all()


def test_wrong_arguments(machine: Machine) -> None:
    with solver(machine) as solve, machine.arrays(np.eye(4), infos()) as (at, told):
        a, i = pointer(at), pointer(told)

        def of(name: str, *arguments: Any, wanted: int = 1) -> int:
            return solve.call(name, *arguments, wanted=wanted).status

        for u, vt, m, n, lda, ldu, ldvt in (
            (ord("X"), NO, 4, 4, 4, 4, 4), (IN_PLACE, IN_PLACE, 4, 4, 4, 4, 4), (NO, NO, 3, 4, 4, 4, 4),
            (NO, NO, 4, 4, 3, 4, 4), (ALL, NO, 4, 4, 4, 3, 4), (NO, ALL, 4, 4, 4, 4, 3), (NO, NO, -1, -1, 4, 4, 4),
        ):  # fmt: skip
            assert of("Dgesvd", u, vt, m, n, a, lda, a, a, ldu, a, ldvt, WORK, NONE, i) == INVALID_VALUE
        assert of("Dgesvd_bufferSize", 3, 4, SIZE) == INVALID_VALUE
        with jacobi(machine, "Gesvdj") as settings:
            for job, econ, ldu, ldv in ((2, 0, 4, 4), (1, 0, 3, 4), (1, 1, 4, 3)):
                wrong = (job, econ, 4, 4, a, 4, a, a, ldu, a, ldv, WORK, i, settings)
                assert of("Dgesvdj", *wrong) == INVALID_VALUE
            large = (0, 33, 33, a, 33, a, a, 33, a, 33, WORK, i, settings, 1)
            assert of("DgesvdjBatched", *large) == INVALID_VALUE
        for rank in (0, 5):
            arguments = (
                0,
                rank,
                4,
                4,
                a,
                4,
                ("l", 16),
                a,
                ("l", 4),
                a,
                4,
                ("l", 16),
                a,
                4,
                ("l", 16),
                WORK,
                i,
                NONE,
                1,
            )
            assert of("DgesvdaStridedBatched", *arguments) == INVALID_VALUE
        for job, uplo, n, lda in ((2, 0, 4, 4), (0, 2, 4, 4), (0, 0, -1, 4), (0, 0, 4, 3)):
            assert of("Dsyevd", job, uplo, n, a, lda, a, WORK, i) == INVALID_VALUE
            assert of("Dsygvd", 1, job, uplo, n, a, lda, a, 4, a, WORK, i) == INVALID_VALUE
        assert of("Dsygvd", 4, 0, 0, 4, a, 4, a, 4, a, WORK, i) == INVALID_VALUE
        assert of("Dsyevd", 0, 0, 4, a, 4, a, WORK, i, wanted=0) == INVALID_VALUE
        single, double, of_complex = 0, 1, 4
        assert of("Xsyevd", NONE, 0, 0, 4, double, a, 4, single, a, double, WORK, i) == INVALID_VALUE
        assert (
            of("Xsyevd", NONE, 0, 0, 4, of_complex, a, 4, of_complex, a, of_complex, WORK, i) == INVALID_VALUE
        )
        one = (NONE, 0, 0, 4, double, a, 4, of_complex, a, double, a, 4, double, a, 4, double, WORK, i)
        assert of("Xgeev", *one) == INVALID_VALUE
        assert machine.get(told, infos()) == [UNSET]
