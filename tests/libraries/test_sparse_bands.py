"""Systems with bands of cuSPARSE (gtsv2 and its kin), against numpy."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.libraries.cusparse import (
    ILLEGAL_ADDRESS,
    INVALID_VALUE,
    SUCCESS,
    Cusparse,
    close,
    cusparse,
    quickly,
)
from tests.libraries.machine import Argument, Array, Machine, integer, out, pointer

LETTERS: Final = {"S": np.float32, "D": np.float64, "C": np.complex64, "Z": np.complex128}
letters = st.sampled_from(sorted(LETTERS))
seeds = st.integers(0, 99)


def some(generator: np.random.Generator, letter: str, *shape: int) -> Array:
    values = generator.standard_normal(shape)
    if letter in "CZ":
        values = values + 1j * generator.standard_normal(shape)
    return values.astype(LETTERS[letter])


def bands(generator: np.random.Generator, letter: str, m: int, width: int, dominant: bool) -> Array:
    """The diagonals of a matrix from below to above, [diagonal, row]; what lies outside the matrix is no number.

    Where the main diagonal doesn't dominate, a solution is right only if rows are exchanged.
    """
    made = some(generator, letter, 2 * width + 1, m)
    made[width] = made[width] / 100 if not dominant else made[width] + 9
    for beside in range(1, width + 1):
        made[width - beside, :beside] = np.nan
        made[width + beside, max(m - beside, 0) :] = np.nan
    return made


def dense(diagonals: Array) -> Array:
    """The matrix, in the wide type."""
    count, m = diagonals.shape
    wide = np.zeros((m, m), np.complex128 if diagonals.dtype.kind == "c" else np.float64)
    for number, values in enumerate(diagonals):
        beside = number - count // 2
        for row in range(max(0, -beside), m - max(0, beside)):
            wide[row, row + beside] = values[row]
    return wide


def run(of: Cusparse, name: str, *arguments: Argument) -> int:
    """Asks for the buffer's size, and calls; the first status that is no success."""
    asked = of(f"{name}_bufferSizeExt", *arguments, out(8))
    if asked.status != SUCCESS:
        return asked.status
    buffer = of.put(np.zeros(max(asked.number(), 1), np.uint8))
    return of(name, *arguments, pointer(buffer)).status


def pointers(of: Cusparse, diagonals: list[Array]) -> list[Argument]:
    return [pointer(of.put(np.ascontiguousarray(values))) for values in diagonals]


def solved(diagonals: Array, sides: Array) -> Any:
    wide = dense(diagonals)
    return np.linalg.solve(wide, sides.astype(wide.dtype))


@pytest.mark.parametrize("function", ["gtsv2", "gtsv2_nopivot"])
@given(letter=letters, m=st.integers(3, 40), n=st.integers(0, 9), beyond=st.integers(0, 3), seed=seeds)
@quickly
def test_one_matrix_and_several_columns(
    machine: Machine, function: str, letter: str, m: int, n: int, beyond: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    diagonals = bands(generator, letter, m, 1, dominant=function == "gtsv2_nopivot")
    b = np.asfortranarray(some(generator, letter, m + beyond, n))
    with cusparse(machine) as of:
        at_b = of.put(b)
        arguments = [
            integer(m),
            integer(n),
            *pointers(of, list(diagonals)),
            pointer(at_b),
            integer(m + beyond),
        ]
        assert run(of, f"cusparse{letter}{function}", *arguments) == SUCCESS
        result = of.get(at_b, b)
    # The condition of such matrices is a few hundred.
    wanted = solved(diagonals, b[:m])
    scale = 1 + np.abs(wanted).max(initial=0)
    close(result[:m] / scale.astype(b.real.dtype), (wanted / scale).astype(b.dtype))
    np.testing.assert_array_equal(result[m:], b[m:])


@given(letter=letters, m=st.integers(3, 20), batch=st.integers(0, 7), beyond=st.integers(0, 3), seed=seeds)
@quickly
def test_systems_one_after_the_other(
    machine: Machine, letter: str, m: int, batch: int, beyond: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    systems = [bands(generator, letter, m, 1, dominant=True) for _ in range(batch)]
    x = some(generator, letter, batch, m + beyond)
    laid = np.full((3, batch, m + beyond), 5, LETTERS[letter])
    for number, system in enumerate(systems):
        laid[:, number, :m] = system
    with cusparse(machine) as of:
        at_x = of.put(x)
        arguments = [
            integer(m),
            *pointers(of, list(laid)),
            pointer(at_x),
            integer(batch),
            integer(m + beyond),
        ]
        assert run(of, f"cusparse{letter}gtsv2StridedBatch", *arguments) == SUCCESS
        result = of.get(at_x, x)
    for number, system in enumerate(systems):
        close(result[number, :m], solved(system, x[number, :m]).astype(x.dtype))
    np.testing.assert_array_equal(result[:, m:], x[:, m:])


@pytest.mark.parametrize(
    ("function", "width", "algorithm"), [("gtsv", 1, 0), ("gtsv", 1, 1), ("gtsv", 1, 2), ("gpsv", 2, 0)]
)
@given(letter=letters, m=st.integers(1, 20), batch=st.integers(0, 9), seed=seeds)
@quickly
def test_systems_that_are_interleaved(
    machine: Machine, function: str, width: int, algorithm: int, letter: str, m: int, batch: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    systems = [bands(generator, letter, m, width, dominant=True) for _ in range(batch)]
    x = some(generator, letter, m, batch)
    laid = np.stack(systems, 2) if systems else np.zeros((2 * width + 1, m, 0), LETTERS[letter])
    with cusparse(machine) as of:
        at_x = of.put(x)
        arguments = [integer(algorithm), integer(m), *pointers(of, list(laid)), pointer(at_x), integer(batch)]
        assert run(of, f"cusparse{letter}{function}InterleavedBatch", *arguments) == SUCCESS
        result = of.get(at_x, x)
    for number, system in enumerate(systems):
        close(result[:, number], solved(system, x[:, number]).astype(x.dtype))


def test_more_than_one_part_has(machine: Machine) -> None:
    generator = np.random.default_rng(3)
    m, n = 3000, 60
    diagonals = bands(generator, "D", m, 1, dominant=True)
    b = np.asfortranarray(some(generator, "D", m, n))
    with cusparse(machine) as of:
        at_b = of.put(b)
        arguments = [integer(m), integer(n), *pointers(of, list(diagonals)), pointer(at_b), integer(m)]
        assert run(of, "cusparseDgtsv2", *arguments) == SUCCESS
        result = of.get(at_b, b)
    below, main, above = (values[:, None] for values in np.nan_to_num(diagonals))
    product = main * result
    product[1:] += below[1:] * result[:-1]
    product[:-1] += above[:-1] * result[1:]
    np.testing.assert_allclose(product, b, rtol=1e-9, atol=1e-9)


def test_wrong_arguments(machine: Machine) -> None:
    with cusparse(machine) as of:
        place = pointer(of.put(np.ones(64, np.float32)))
        three, none = [place] * 3, pointer(0)

        def columns(m: int, n: int, ldb: int, diagonals: list[Argument] = three) -> int:
            return run(of, "cusparseSgtsv2", integer(m), integer(n), *diagonals, place, integer(ldb))

        def strided(m: int, batch: int, stride: int) -> int:
            return run(
                of, "cusparseSgtsv2StridedBatch", integer(m), *three, place, integer(batch), integer(stride)
            )

        def interleaved(algorithm: int, m: int, function: str = "gtsv") -> int:
            diagonals = three if function == "gtsv" else [place] * 5
            arguments = [integer(algorithm), integer(m), *diagonals, place, integer(1)]
            return run(of, f"cusparseS{function}InterleavedBatch", *arguments)

        assert columns(4, 2, 4) == SUCCESS
        assert columns(2, 2, 4) == INVALID_VALUE
        assert columns(4, -1, 4) == INVALID_VALUE
        assert columns(4, 2, 3) == INVALID_VALUE
        assert columns(4, 2, 4, [place, none, place]) == INVALID_VALUE
        assert strided(4, 2, 4) == SUCCESS
        assert strided(4, 2, 3) == INVALID_VALUE
        assert strided(2, 2, 4) == INVALID_VALUE
        assert interleaved(3, 4) == INVALID_VALUE
        assert interleaved(1, 4, "gpsv") == INVALID_VALUE
        asked = of("cusparseSgtsv2_bufferSizeExt", integer(4), integer(2), *three, place, integer(4), none)
        assert asked.status == INVALID_VALUE


def test_a_diagonal_outside_the_devices_memory_is_an_illegal_address(lone_machine: Machine) -> None:
    with cusparse(lone_machine) as of:
        place = pointer(of.put(np.ones(64, np.float32)))
        arguments = [integer(4), integer(2), place, pointer(0x1000), place, place, integer(4)]
        assert run(of, "cusparseSgtsv2", *arguments) == SUCCESS
        assert lone_machine.synchronize() == ILLEGAL_ADDRESS
