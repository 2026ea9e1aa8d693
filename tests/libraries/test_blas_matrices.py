"""Levels 2 and 3 of cuBLAS against numpy. What a form does not store is NaN in memory: it is neither read nor written."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.libraries.blas import (
    LEFT,
    LETTERS,
    LOWER,
    UNTOUCHED,
    UPPER,
    Blas,
    assert_close,
    blas,
    flag,
    framed,
    in_triangle,
    numbers,
    quickly,
    real,
    spread,
    stored,
)
from tests.libraries.cublas import DEVICE, HOST, INVALID_VALUE, OPERATIONS, SUCCESS
from tests.libraries.machine import Array, Machine, pointer

sizes = st.sampled_from([1, 2, 5, 33, 150])
increments = st.sampled_from([1, 2, -1, -3])
trans = st.integers(0, 2)
two = st.integers(0, 1)
ways = st.tuples(st.sampled_from([HOST, DEVICE]), st.booleans())
seeds = st.integers(0, 99)
#: The letters in functions' names of the forms of a stored triangle.
FORMS: Final = {"full": "y", "band": "b", "packed": "p"}


def op(number: int, matrix: Array) -> Array:
    return np.asarray(OPERATIONS[number](matrix))


def symmetric(generator: np.random.Generator, order: int, dtype: np.dtype[Any], *, hermitian: bool) -> Array:
    half = numbers(generator, (order, order), dtype)
    return half + (half.conj().T if hermitian else half.T)


def banded(matrix: Array, band: int) -> Array:
    rows, columns = np.indices(matrix.shape)
    return np.where(np.abs(rows - columns) <= band, matrix, matrix.dtype.type(0))


def after(run: Blas, name: str, arrays: list[Array], arguments: list[Any]) -> list[Array]:
    """The memory of arrays after a function; ``arguments`` name them by ("at", index)."""
    with run.machine.arrays(*arrays) as addresses:
        placed = [
            pointer(addresses[argument[1]])
            if isinstance(argument, tuple) and argument[0] == "at"
            else argument
            for argument in arguments
        ]
        assert run(name, *placed).status == SUCCESS
        return [run.machine.get(address, array) for address, array in zip(addresses, arrays, strict=True)]


def at(index: int) -> tuple[str, int]:
    return ("at", index)


@pytest.mark.parametrize("letter", LETTERS)
@quickly
@given(shape=st.tuples(sizes, sizes), band=st.none() | st.tuples(st.integers(0, 4), st.integers(0, 4)), t=trans,
       incs=st.tuples(increments, increments), beta=st.sampled_from([0, 0.5]), way=ways, seed=seeds)  # fmt: skip
def test_a_matrix_by_a_vector(
    machine: Machine, letter: str, shape: tuple[int, int], band: tuple[int, int] | None, t: int, incs: tuple[int, int],
    beta: float, way: tuple[int, bool], seed: int,
) -> None:  # fmt: skip
    """gemv and gbmv."""
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    m, n = shape
    full = numbers(generator, shape, dtype)
    memory, extra = framed(full, 2), []
    if band is not None:
        below, above = band
        memory = np.full((below + above + 2, n), UNTOUCHED, dtype, order="F")
        rows, columns = np.indices(shape)
        there = (rows - columns <= below) & (columns - rows <= above)
        full = np.where(there, full, dtype.type(0))
        for i, j in zip(*np.nonzero(there), strict=True):
            memory[above + i - j, j] = full[i, j]
        extra = [below, above]
    x, y = numbers(generator, m if t else n, dtype), numbers(generator, n if t else m, dtype)
    alpha = dtype.type(1.5)
    name = f"cublas{letter}{'gemv' if band is None else 'gbmv'}_v2"
    # Nothing is read where beta is 0.
    before = np.full(len(y), UNTOUCHED, dtype) if beta == 0 else y
    arrays = [memory, spread(x, incs[0]), spread(before, incs[1])]
    with blas(machine, way[0], is_wide=way[1]) as run:
        arguments = [
            flag(t),
            m,
            n,
            *extra,
            alpha,
            at(0),
            len(memory),
            at(1),
            incs[0],
            dtype.type(beta),
            at(2),
            incs[1],
        ]
        found = after(run, name, arrays, arguments)
    wanted = alpha * (op(t, full) @ x) + (dtype.type(beta) * y if beta != 0 else 0)
    assert_close(found[2], spread(wanted.astype(dtype), incs[1]), m + n)
    np.testing.assert_array_equal(found[0], memory)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("letter", "hermitian"), [("S", False), ("D", False), ("C", True), ("Z", True), ("Z", False)]
)
@quickly
@given(
    n=sizes, uplo=two, band=st.integers(0, 5), incs=st.tuples(increments, increments), way=ways, seed=seeds
)
def test_a_symmetric_matrix_by_a_vector(
    machine: Machine, form: str, letter: str, hermitian: bool, n: int, uplo: int, band: int, incs: tuple[int, int],
    way: tuple[int, bool], seed: int,
) -> None:  # fmt: skip
    """symv, sbmv and spmv; hemv, hbmv and hpmv."""
    if letter == "Z" and not hermitian and form != "full":
        return  # there is no such function
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    full = symmetric(generator, n, dtype, hermitian=hermitian)
    if form == "band":
        full = banded(full, band)
    x, y = numbers(generator, n, dtype), numbers(generator, n, dtype)
    memory, leading = stored(full, form, uplo, band, 1)
    middle = {"full": "ym" if not hermitian else "em", "band": "bm", "packed": "pm"}[form]
    name = f"cublas{letter}{'h' if hermitian else 's'}{middle}v_v2"
    alpha, beta = dtype.type(2), dtype.type(-0.5)
    with blas(machine, way[0], is_wide=way[1]) as run:
        sizes_of = [n, band] if form == "band" else [n]
        arguments = [flag(uplo), *sizes_of, alpha, at(0), *leading, at(1), incs[0], beta, at(2), incs[1]]
        found = after(run, name, [memory, spread(x, incs[0]), spread(y, incs[1])], arguments)
    assert_close(found[2], spread(alpha * (full @ x) + beta * y, incs[1]), n)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("letter", LETTERS)
@quickly
@given(n=sizes, uplo=two, t=trans, unit=two, band=st.integers(0, 5), inc=increments, way=ways, seed=seeds)
def test_a_triangle_and_a_vector(
    machine: Machine, form: str, letter: str, n: int, uplo: int, t: int, unit: int, band: int, inc: int,
    way: tuple[int, bool], seed: int,
) -> None:  # fmt: skip
    """trmv, tbmv and tpmv make what trsv, tbsv and tpsv take apart."""
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    # Of few and small numbers beside the diagonal, so that solutions stay small.
    full = (numbers(generator, (n, n), dtype) / dtype.type(4 * n) + 2 * np.eye(n)).astype(dtype)
    full = np.where(in_triangle(n, uplo, band if form == "band" else None), full, dtype.type(0))
    if unit:
        np.fill_diagonal(full, 1)
    x = numbers(generator, n, dtype)
    in_memory = full.copy()
    if unit:
        np.fill_diagonal(in_memory, UNTOUCHED)
    memory, leading = stored(in_memory, form, uplo, band, 1)
    letters = {"full": "r", "band": "b", "packed": "p"}[form]
    sizes_of = [n, band] if form == "band" else [n]
    arguments = [flag(uplo), flag(t), flag(unit), *sizes_of, at(0), *leading, at(1), inc]
    product = (op(t, full) @ x).astype(dtype)
    with blas(machine, way[0], is_wide=way[1]) as run:
        made = after(run, f"cublas{letter}t{letters}mv_v2", [memory, spread(x, inc)], arguments)
        solved = after(run, f"cublas{letter}t{letters}sv_v2", [memory, spread(product, inc)], arguments)
    assert_close(made[1], spread(product, inc), n)
    assert_close(solved[1], spread(x, inc), n)


@pytest.mark.parametrize(
    ("letter", "kind"), [("S", ""), ("D", ""), ("C", "u"), ("Z", "u"), ("C", "c"), ("Z", "c")]
)
@quickly
@given(shape=st.tuples(sizes, sizes), incs=st.tuples(increments, increments), way=ways, seed=seeds)
def test_an_outer_product(
    machine: Machine,
    letter: str,
    kind: str,
    shape: tuple[int, int],
    incs: tuple[int, int],
    way: tuple[int, bool],
    seed: int,
) -> None:
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    x, y = (numbers(generator, size, dtype) for size in shape)
    a, alpha = numbers(generator, shape, dtype), dtype.type(-2)
    memory = framed(a, 3)
    with blas(machine, way[0], is_wide=way[1]) as run:
        arguments = [*shape, alpha, at(0), incs[0], at(1), incs[1], at(2), len(memory)]
        arrays = [spread(x, incs[0]), spread(y, incs[1]), memory]
        found = after(run, f"cublas{letter}ger{kind}_v2", arrays, arguments)
    assert_close(found[2], framed(a + alpha * np.outer(x, y.conj() if kind == "c" else y), 3), 4)


@pytest.mark.parametrize("form", ["full", "packed"])
@pytest.mark.parametrize(
    ("letter", "hermitian"), [("S", False), ("D", False), ("C", True), ("Z", True), ("Z", False)]
)
@quickly
@given(n=sizes, uplo=two, incs=st.tuples(increments, increments), way=ways, seed=seeds)
def test_an_update_by_vectors(
    machine: Machine, form: str, letter: str, hermitian: bool, n: int, uplo: int, incs: tuple[int, int],
    way: tuple[int, bool], seed: int,
) -> None:  # fmt: skip
    """syr, spr, her and hpr; syr2, spr2, her2 and hpr2: of one triangle."""
    if letter == "Z" and not hermitian and form == "packed":
        return  # there is no such function
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    x, y = numbers(generator, n, dtype), numbers(generator, n, dtype)
    full = symmetric(generator, n, dtype, hermitian=hermitian)
    memory, leading = stored(full, form, uplo, 0, 2)
    stem = (
        f"cublas{letter}{'h' if hermitian else 's'}"
        + {"full": "er" if hermitian else "yr", "packed": "pr"}[form]
    )
    alpha = dtype.type(0.5 + 1j) if dtype.kind == "c" else dtype.type(0.5)
    single = real(dtype).type(-2) if hermitian else alpha
    turned = np.conj if hermitian else np.asarray
    with blas(machine, way[0], is_wide=way[1]) as run:
        one = after(
            run,
            f"{stem}_v2",
            [spread(x, incs[0]), memory],
            [flag(uplo), n, single, at(0), incs[0], at(1), *leading],
        )
        arguments = [flag(uplo), n, alpha, at(0), incs[0], at(1), incs[1], at(2), *leading]
        both = after(run, f"{stem}2_v2", [spread(x, incs[0]), spread(y, incs[1]), memory], arguments)
    assert_close(one[1], stored(full + single * np.outer(x, turned(x)), form, uplo, 0, 2)[0], 4)
    product = alpha * np.outer(x, turned(y)) + turned(alpha) * np.outer(y, turned(x))
    assert_close(both[2], stored(full + product, form, uplo, 0, 2)[0], 4)


@pytest.mark.parametrize(
    ("letter", "hermitian"),
    [("S", False), ("D", False), ("C", False), ("Z", False), ("C", True), ("Z", True)],
)
@quickly
@given(shape=st.tuples(sizes, sizes), side=two, uplo=two, way=ways, seed=seeds)
def test_a_symmetric_matrix_by_a_matrix(
    machine: Machine,
    letter: str,
    hermitian: bool,
    shape: tuple[int, int],
    side: int,
    uplo: int,
    way: tuple[int, bool],
    seed: int,
) -> None:
    """symm and hemm."""
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    full = symmetric(generator, shape[side], dtype, hermitian=hermitian)
    memory, leading = stored(full, "full", uplo, 0, 1)
    b, c = numbers(generator, shape, dtype), numbers(generator, shape, dtype)
    alpha, beta = dtype.type(0.5), dtype.type(2)
    arrays = [memory, framed(b, 2), framed(c, 3)]
    with blas(machine, way[0], is_wide=way[1]) as run:
        arguments = [
            flag(side),
            flag(uplo),
            *shape,
            alpha,
            at(0),
            *leading,
            at(1),
            len(arrays[1]),
            beta,
            at(2),
            len(arrays[2]),
        ]
        found = after(run, f"cublas{letter}{'he' if hermitian else 'sy'}mm_v2", arrays, arguments)
    assert_close(found[2], framed(alpha * (full @ b if side == LEFT else b @ full) + beta * c, 3), sum(shape))


@pytest.mark.parametrize(
    ("letter", "hermitian"),
    [("S", False), ("D", False), ("C", False), ("Z", False), ("C", True), ("Z", True)],
)
@quickly
@given(shape=st.tuples(sizes, sizes), uplo=two, turned=st.booleans(), way=ways, seed=seeds)
def test_an_update_by_matrices(
    machine: Machine,
    letter: str,
    hermitian: bool,
    shape: tuple[int, int],
    uplo: int,
    turned: bool,
    way: tuple[int, bool],
    seed: int,
) -> None:
    """syrk, syrkx and syr2k; herk, herkx and her2k: of one triangle."""
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    n, k = shape
    t = 0 if not turned else 2 if hermitian else 1
    a, b = (numbers(generator, (k, n) if turned else (n, k), dtype) for _ in range(2))
    full = symmetric(generator, n, dtype, hermitian=hermitian)
    memory, leading = stored(full, "full", uplo, 0, 2)
    stem = f"cublas{letter}{'her' if hermitian else 'syr'}"
    alpha = dtype.type(0.5 - 1j) if dtype.kind == "c" else dtype.type(0.5)
    beta = (real(dtype) if hermitian else dtype).type(2)
    kept = full.copy()
    left, right = op(t, a), op(t, b)
    other = np.conj if hermitian else np.asarray
    single = real(dtype).type(-1) if hermitian else alpha
    arrays = [framed(a, 1), framed(b, 2), memory]
    sides = [at(0), len(arrays[0]), at(1), len(arrays[1])]
    with blas(machine, way[0], is_wide=way[1]) as run:
        one = after(
            run, f"{stem}k_v2", arrays, [flag(uplo), flag(t), n, k, single, *sides[:2], beta, at(2), *leading]
        )
        whole = [flag(uplo), flag(t), n, k, alpha, *sides, beta, at(2), *leading]
        mixed = after(run, f"{stem}kx", arrays, whole)
        both = after(run, f"{stem}2k_v2", arrays, whole)

    def wanted(product: Array) -> Array:
        result = (product + beta * kept).astype(dtype)
        if hermitian:
            np.fill_diagonal(result, result.diagonal().real)
        return stored(result, "full", uplo, 0, 2)[0]

    scale = 4 * k + 4
    assert_close(one[2], wanted(single * (left @ other(left).T)), scale)
    assert_close(mixed[2], wanted(alpha * (left @ other(right).T)), scale)
    product = alpha * (left @ other(right).T)
    assert_close(both[2], wanted(product + other(product).T), scale)


@pytest.mark.parametrize("letter", LETTERS)
@quickly
@given(
    shape=st.tuples(sizes, sizes),
    side=two,
    uplo=two,
    t=trans,
    unit=two,
    in_place=st.booleans(),
    way=ways,
    seed=seeds,
)
def test_a_triangle_by_a_matrix(
    machine: Machine, letter: str, shape: tuple[int, int], side: int, uplo: int, t: int, unit: int, in_place: bool,
    way: tuple[int, bool], seed: int,
) -> None:  # fmt: skip
    """trmm makes what trsm takes apart."""
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    order = shape[side]
    full = (numbers(generator, (order, order), dtype) / dtype.type(4 * order) + 2 * np.eye(order)).astype(
        dtype
    )
    full = np.where(in_triangle(order, uplo), full, dtype.type(0))
    if unit:
        np.fill_diagonal(full, 1)
    in_memory = full.copy()
    if unit:
        np.fill_diagonal(in_memory, UNTOUCHED)
    memory, leading = stored(in_memory, "full", uplo, 0, 1)
    b, alpha = numbers(generator, shape, dtype), dtype.type(2)
    product = (op(t, full) @ b if side == LEFT else b @ op(t, full)).astype(dtype)
    flags = [flag(side), flag(uplo), flag(t), flag(unit), *shape]
    arrays = [memory, framed(b, 2), np.full((shape[0] + 2, shape[1]), UNTOUCHED, dtype, order="F")]
    target = 1 if in_place else 2
    with blas(machine, way[0], is_wide=way[1]) as run:
        arguments = [*flags, alpha, at(0), *leading, at(1), len(arrays[1]), at(target), len(arrays[2])]
        made = after(run, f"cublas{letter}trmm_v2", arrays, arguments)
        arguments = [*flags, alpha, at(0), *leading, at(1), len(arrays[1])]
        solved = after(run, f"cublas{letter}trsm_v2", [memory, framed(product, 2)], arguments)
    assert_close(made[target], framed(alpha * product, 2), order)
    assert_close(solved[1], framed(alpha * b, 2), order)


def test_large_triangles_are_many_parts(machine: Machine) -> None:
    generator, double = np.random.default_rng(5), np.dtype(np.float64)
    full = np.tril(generator.standard_normal((700, 700)) / 700 + np.eye(700))
    b = np.asfortranarray(generator.standard_normal((700, 900)))
    arguments = [flag(0), flag(LOWER), flag(0), flag(0), 700, 900, double.type(1), at(0), 700, at(1), 700]
    with blas(machine) as run:
        made = after(run, "cublasDtrmm_v2", [np.asfortranarray(full), b], [*arguments, at(1), 700])[1]
        solved = after(run, "cublasDtrsm_v2", [np.asfortranarray(full), made], arguments)[1]
    np.testing.assert_allclose(made, full @ b, atol=1e-12)
    np.testing.assert_allclose(solved, b, atol=1e-11)


@pytest.mark.parametrize("letter", LETTERS)
@quickly
@given(
    shape=st.tuples(sizes, sizes),
    ts=st.tuples(trans, trans),
    beta=st.sampled_from([0, 0.5]),
    way=ways,
    seed=seeds,
)
def test_a_sum_of_matrices(
    machine: Machine,
    letter: str,
    shape: tuple[int, int],
    ts: tuple[int, int],
    beta: float,
    way: tuple[int, bool],
    seed: int,
) -> None:
    """geam; B is not read where beta is 0."""
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    a, b = (numbers(generator, shape if t == 0 else shape[::-1], dtype) for t in ts)
    alpha = dtype.type(3)
    wanted = alpha * op(ts[0], a) + (dtype.type(beta) * op(ts[1], b) if beta != 0 else 0)
    in_memory = b if beta != 0 else np.full_like(b, UNTOUCHED)
    arrays = [
        framed(a, 1),
        framed(in_memory, 2),
        np.full((shape[0] + 1, shape[1]), UNTOUCHED, dtype, order="F"),
    ]
    with blas(machine, way[0], is_wide=way[1]) as run:
        arguments = [flag(ts[0]), flag(ts[1]), *shape, alpha, at(0), len(arrays[0]), dtype.type(beta), at(1), len(arrays[1]),
                     at(2), len(arrays[2])]  # fmt: skip
        found = after(run, f"cublas{letter}geam", arrays, arguments)
    assert_close(found[2], framed(wanted.astype(dtype), 1))


@pytest.mark.parametrize("letter", LETTERS)
@quickly
@given(shape=st.tuples(sizes, sizes), side=two, inc=increments, way=ways, seed=seeds)
def test_a_diagonal_by_a_matrix(
    machine: Machine,
    letter: str,
    shape: tuple[int, int],
    side: int,
    inc: int,
    way: tuple[int, bool],
    seed: int,
) -> None:
    """dgmm."""
    generator, dtype = np.random.default_rng(seed), LETTERS[letter]
    a, x = numbers(generator, shape, dtype), numbers(generator, shape[side], dtype)
    arrays = [framed(a, 1), spread(x, inc), np.full(shape, UNTOUCHED, dtype, order="F")]
    with blas(machine, way[0], is_wide=way[1]) as run:
        arguments = [flag(side), *shape, at(0), len(arrays[0]), at(1), inc, at(2), shape[0]]
        found = after(run, f"cublas{letter}dgmm", arrays, arguments)
    assert_close(found[2], x[:, None] * a if side == LEFT else a * x)


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize("uplo", [LOWER, UPPER])
def test_triangles_are_packed_and_unpacked(machine: Machine, letter: str, uplo: int) -> None:
    full = numbers(np.random.default_rng(2), (9, 9), LETTERS[letter])
    packed, _ = stored(full, "packed", uplo, 0)
    whole, _ = stored(full, "full", uplo, 0, 1)
    with blas(machine) as run:
        made = after(
            run, f"cublas{letter}trttp", [whole, np.zeros_like(packed)], [flag(uplo), 9, at(0), 10, at(1)]
        )
        back = after(
            run,
            f"cublas{letter}tpttr",
            [packed, np.full_like(whole, UNTOUCHED)],
            [flag(uplo), 9, at(0), at(1), 10],
        )
    np.testing.assert_array_equal(made[1], packed)
    np.testing.assert_array_equal(back[1], whole)


ONE: Final = np.float32(1)
NONE: Final = pointer(0)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        # What is right with 4 × 4 matrices; then an argument's place and a wrong value.
        ("Sgemv_v2", [flag(0), 4, 4, ONE, NONE, 4, NONE, 1, ONE, NONE, 1],
         [(0, flag(3)), (1, -1), (2, -1), (3, NONE), (5, 3), (7, 0), (8, NONE), (10, 0)]),
        ("Ssymv_v2", [flag(0), 4, ONE, NONE, 4, NONE, 1, ONE, NONE, 1], [(0, flag(2)), (1, -1), (4, 3), (6, 0), (9, 0)]),
        ("Ssbmv_v2", [flag(0), 4, 2, ONE, NONE, 3, NONE, 1, ONE, NONE, 1], [(2, -1), (5, 2)]),
        ("Strsv_v2", [flag(0), flag(0), flag(0), 4, NONE, 4, NONE, 1],
         [(0, flag(2)), (1, flag(3)), (2, flag(2)), (5, 3), (7, 0)]),
        ("Sger_v2", [4, 4, ONE, NONE, 1, NONE, 1, NONE, 4], [(0, -1), (2, NONE), (4, 0), (6, 0), (8, 3)]),
        ("Ssymm_v2", [flag(0), flag(0), 4, 4, ONE, NONE, 4, NONE, 4, ONE, NONE, 4],
         [(0, flag(2)), (1, flag(2)), (6, 3), (8, 3), (11, 3), (9, NONE)]),
        ("Ssyrk_v2", [flag(0), flag(0), 4, 2, ONE, NONE, 4, ONE, NONE, 4], [(1, flag(3)), (2, -1), (3, -1), (6, 3), (9, 3)]),
        ("Strsm_v2", [flag(0), flag(0), flag(0), flag(0), 4, 4, ONE, NONE, 4, NONE, 4],
         [(0, flag(2)), (3, flag(2)), (4, -1), (6, NONE), (8, 3), (10, 3)]),
        ("Sgeam", [flag(0), flag(0), 4, 4, ONE, NONE, 4, ONE, NONE, 4, NONE, 4],
         [(0, flag(3)), (6, 3), (9, 3), (11, 3), (7, NONE)]),
        ("Sdgmm", [flag(0), 4, 4, NONE, 4, NONE, 1, NONE, 4], [(0, flag(2)), (4, 3), (8, 3)]),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_refused_before_anything_is_submitted(
    machine: Machine, name: str, right: list[Any], wrong: list[tuple[int, Any]]
) -> None:
    with blas(machine) as run:
        for place, value in wrong:
            assert run(f"cublas{name}", *right[:place], value, *right[place + 1 :]).status == INVALID_VALUE, (
                place
            )
    assert machine.synchronize() == 0


def test_complex_symmetry_and_conjugation_do_not_mix(machine: Machine) -> None:
    one, single = np.complex64(1), np.float32(1)
    with blas(machine) as run:
        assert (
            run("cublasCsyrk_v2", flag(0), flag(2), 4, 2, one, NONE, 4, one, NONE, 4).status == INVALID_VALUE
        )
        assert (
            run("cublasCherk_v2", flag(0), flag(1), 4, 2, single, NONE, 4, single, NONE, 4).status
            == INVALID_VALUE
        )


def test_nothing_is_nothing(machine: Machine) -> None:
    with blas(machine) as run:
        assert run("cublasSgemv_v2", flag(0), 0, 4, ONE, NONE, 1, NONE, 1, ONE, NONE, 1).status == SUCCESS
        assert run("cublasSsyr_v2", flag(0), 0, ONE, NONE, 1, NONE, 1).status == SUCCESS
        assert (
            run("cublasStrsm_v2", flag(0), flag(0), flag(0), flag(0), 4, 0, ONE, NONE, 4, NONE, 4).status
            == SUCCESS
        )
    assert machine.synchronize() == 0


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Sgemv_v2", [flag(0), 64, 64, ONE, at(0), 64, at(0), 1, ONE, at(0), 1]),
        ("Sger_v2", [4, 4, ONE, pointer(64), 1, at(0), 1, at(0), 4]),
        ("Strsv_v2", [flag(0), flag(0), flag(0), 20, at(0), 20, at(0), 1]),
        ("Ssyrk_v2", [flag(0), flag(0), 4, 4, ONE, at(0), 4, ONE, at(0), 1 << 20]),
        ("Sgbmv_v2", [flag(0), 4, 4, 1, 1, ONE, at(0), 1 << 20, at(0), 1, ONE, at(0), 1]),
        ("Saxpy_v2", [4, ONE, at(0), 1 << 20, at(0), 1]),
        ("Saxpy_v2", [4, ONE, at(0), 1, at(0), -(1 << 20)]),
        ("SgetrfBatched", [4, at(0), 4, pointer(0), pointer(0), 1]),
    ],
)
def test_memory_that_is_not_there_is_an_illegal_address(
    lone_machine: Machine, name: str, arguments: list[Any]
) -> None:
    """As with any kernel: the call succeeds, and what follows says it."""
    array = np.zeros(256, np.float32)
    with blas(lone_machine) as run, lone_machine.arrays(array) as (address,):
        placed = [
            pointer(address) if isinstance(argument, tuple) and argument == at(0) else argument
            for argument in arguments
        ]
        assert run(f"cublas{name}", *placed).status == SUCCESS
        assert lone_machine.synchronize() == 700  # CUDA_ERROR_ILLEGAL_ADDRESS
