"""Products of fp8 whose operands have a factor for each row, or for each block, against numpy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest
from gpupool.client.software_gpu import COMPUTE_CAPABILITY

from tests.libraries.conftest import WAYS, machines
from tests.libraries.cublas import INVALID_VALUE, NOT_SUPPORTED, SUCCESS
from tests.libraries.cublaslt import (
    BATCH,
    COMPUTE_32F,
    SCALE_A,
    SCALE_B,
    SCALE_MODE_A,
    SCALE_MODE_B,
    SINGLE,
    TRANSPOSE_A,
    Product,
    Shape,
    product_of,
    turned_shapes,
)
from tests.libraries.machine import Array, Machine, host

#: cublasLtMatmulMatrixScale_t.
TENSOR, VEC16, VEC32, OUTER, VEC128, BLOCK128 = range(6)
E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
BFLOAT: Final = np.dtype(ml_dtypes.bfloat16)
#: What only devices of compute capability 9.0 have.
OF_HOPPER: Final = [(OUTER, OUTER), (VEC128, VEC128), (VEC128, BLOCK128), (BLOCK128, VEC128)]
N: Final = 48
#: Of factors of 8 bits: how much larger the number is than its exponent of 2, and the one that is no number.
BIAS_OF_EXPONENTS, NO_NUMBER = 127, 255
ONE: Final = host(np.ones(1, SINGLE))
#: An address that nobody reads.
NOWHERE: Final = 4096


@pytest.fixture(scope="module", params=WAYS)
def hopper(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A program on a device of compute capability 9.0."""
    yield from machines(request.param, tmp_path_factory.mktemp("hopper"), **{COMPUTE_CAPABILITY: "9.0"})


def blocks(size: int, width: int) -> int:
    return -(-size // width)


@dataclass(frozen=True, slots=True)
class Factors:
    """The factors of an operand: a matrix, of which each number is for so many rows and terms."""

    mode: int
    numbers: Array
    rows: int
    terms: int

    @staticmethod
    def drawn(generator: np.random.Generator, mode: int, outers: int, terms: int) -> Factors:
        height = {BLOCK128: 128}.get(mode, 1)
        width = {VEC32: 32, OUTER: terms}.get(mode, 128)
        shape = (blocks(outers, height), blocks(terms, width))
        numbers = (
            2.0 ** generator.integers(-3, 4, shape) if mode == VEC32 else generator.uniform(0.5, 2, shape)
        )
        return Factors(mode, numbers.astype(SINGLE), height, width)

    def applied(self, operand: Array) -> Array:
        """Each row of the operand by its factors."""
        spread = self.numbers.repeat(self.rows, axis=0).repeat(self.terms, axis=1)
        return operand.astype(np.float64) * spread[: operand.shape[0], : operand.shape[1]]

    def stored(self) -> Array:
        """As they lie in memory, where what only fills up is no number."""
        rows, columns = self.numbers.shape
        if self.mode in {OUTER, VEC128}:
            return np.ascontiguousarray(self.numbers.T)
        if self.mode == BLOCK128:
            filled = np.full((rows, 4 * blocks(columns, 4)), np.nan, SINGLE)
            filled[:, :columns] = self.numbers
            return filled
        tiles, fours = blocks(rows, 128), blocks(columns, 4)
        bits = np.full((tiles * 128, fours * 4), NO_NUMBER, np.uint8)
        bits[:rows, :columns] = np.log2(self.numbers) + BIAS_OF_EXPONENTS
        return np.ascontiguousarray(bits.reshape(tiles, 4, 32, fours, 4).transpose(0, 3, 2, 1, 4))


@contextmanager
def scaled(
    machine: Machine, shapes: dict[str, Shape], modes: tuple[int, int], factors: tuple[int, int],
    compute: int = COMPUTE_32F, turned: int = 1,
) -> Iterator[Product]:  # fmt: skip
    """A product whose operands have factors at these addresses."""
    with product_of(machine, shapes, compute) as run:
        run.set(TRANSPOSE_A, np.array(turned, np.int32))
        for attribute, mode in zip((SCALE_MODE_A, SCALE_MODE_B), modes, strict=True):
            run.set(attribute, np.array(mode, np.int32))
        for attribute, address in zip((SCALE_A, SCALE_B), factors, strict=True):
            run.set(attribute, np.array(address, np.uint64))
        yield run


def drawn(generator: np.random.Generator, rows: int, terms: int, dtype: np.dtype[Any]) -> Array:
    """Rows of numbers that every type of 8 bits has."""
    return (generator.integers(-4, 5, (rows, terms)) / 4).astype(dtype)


def multiplied(machine: Machine, a: Array, b: Array, left: Factors, right: Factors, like: Array) -> Array:
    """Every row of A with every row of B, in the shape and type of ``like``: rows are those of B."""
    shapes = turned_shapes(len(a), len(b), a.shape[1], a.dtype, b.dtype, like.dtype, like.dtype)
    arrays = (a, b, like, left.stored(), right.stored())
    with machine.arrays(*arrays) as (at_a, at_b, at_d, at_left, at_right):
        with scaled(machine, shapes, (left.mode, right.mode), (at_left, at_right)) as run:
            assert run.heuristic() == SUCCESS
            addresses = {"a": at_a, "b": at_b, "c": at_d, "d": at_d}
            assert run.multiply(ONE, addresses) == SUCCESS
        return machine.get(at_d, like)


def check_product(
    machine: Machine, modes: tuple[int, int], m: int, k: int, dtypes: tuple[np.dtype[Any], np.dtype[Any]],
    like: np.dtype[Any] = SINGLE,
) -> None:  # fmt: skip
    generator = np.random.default_rng(m + k)
    a, b = drawn(generator, m, k, dtypes[0]), drawn(generator, N, k, dtypes[1])
    left, right = Factors.drawn(generator, modes[0], m, k), Factors.drawn(generator, modes[1], N, k)
    found = multiplied(machine, a, b, left, right, np.full((N, m), np.nan, like))
    tolerance = 1e-5 if like == SINGLE else 1e-2
    np.testing.assert_allclose(
        found.astype(np.float64),
        right.applied(b) @ left.applied(a).T,
        rtol=tolerance,
        atol=tolerance * np.sqrt(k),
    )


@pytest.mark.parametrize("k", [128, 640, 544])
@pytest.mark.parametrize("m", [16, 144])
@pytest.mark.parametrize("modes", OF_HOPPER)
def test_rows_and_blocks_of_128_terms_have_factors(
    hopper: Machine, modes: tuple[int, int], m: int, k: int
) -> None:
    check_product(hopper, modes, m, k, (E4M3, E4M3))


@pytest.mark.parametrize("k", [128, 640, 544])
@pytest.mark.parametrize("m", [16, 144])
def test_blocks_of_32_terms_have_factors_of_8_bits(machine: Machine, m: int, k: int) -> None:
    check_product(machine, (VEC32, VEC32), m, k, (E4M3, E4M3))


@pytest.mark.parametrize("dtypes", [(E5M2, E4M3), (E4M3, E5M2)])
def test_one_operand_may_have_the_wide_range_and_the_result_be_narrow(
    hopper: Machine, dtypes: tuple[np.dtype[Any], np.dtype[Any]]
) -> None:
    check_product(hopper, (VEC128, VEC128), 16, 160, dtypes, BFLOAT)


def check_rows(machine: Machine, modes: tuple[int, int], place: tuple[int, int], rows: range) -> None:
    """The factor of A at a place of its matrix is that of these rows."""
    m, k = 144, 160
    generator = np.random.default_rng(9)
    # No number is 0, so that no row of results can stay as it was.
    a, b = (np.abs(drawn(generator, count, k, E4M3).astype(SINGLE)) + 0.25 for count in (m, N))
    left, right = Factors.drawn(generator, modes[0], m, k), Factors.drawn(generator, modes[1], N, k)
    numbers = left.numbers.copy()
    numbers[place] *= 2
    changed = Factors(left.mode, numbers, left.rows, left.terms)
    before, after = (
        multiplied(machine, a.astype(E4M3), b.astype(E4M3), factors, right, np.zeros((N, m), SINGLE))
        for factors in (left, changed)
    )
    np.testing.assert_array_equal(np.flatnonzero((before != after).any(axis=0)), list(rows))


@pytest.mark.parametrize(
    ("modes", "place", "rows"),
    [
        ((OUTER, OUTER), (5, 0), range(5, 6)),
        ((VEC128, VEC128), (140, 1), range(140, 141)),
        ((BLOCK128, VEC128), (1, 1), range(128, 144)),
    ],
)
def test_a_factor_is_that_of_its_rows_alone(
    hopper: Machine, modes: tuple[int, int], place: tuple[int, int], rows: range
) -> None:
    check_rows(hopper, modes, place, rows)


def test_a_factor_of_8_bits_is_that_of_its_row_alone(machine: Machine) -> None:
    check_rows(machine, (VEC32, VEC32), (33, 4), range(33, 34))


def answers(
    machine: Machine, modes: tuple[int, int], *, m: int = 16, factors: tuple[int, int] = (NOWHERE, NOWHERE),
    dtypes: tuple[np.dtype[Any], np.dtype[Any]] = (E4M3, E4M3), d: np.dtype[Any] = SINGLE, batch: int = 1,
    turned: int = 1, compute: int = COMPUTE_32F,
) -> set[int]:  # fmt: skip
    """The statuses of the question for a product, and of the product, which is not computed."""
    c = d if d not in {E4M3, E5M2} else BFLOAT
    shapes = turned_shapes(m, N, 128, *dtypes, d, c)
    if turned == 0:
        shapes["a"] = Shape(dtypes[0], m, 128, m)
    with scaled(machine, shapes, modes, factors, compute, turned) as run:
        for name in shapes:
            run.set_layout(name, BATCH, np.array(batch, np.int32))
        return {run.heuristic(), run.multiply(ONE, dict.fromkeys(shapes, 0))}


@pytest.mark.parametrize(
    "modes",
    [(BLOCK128, BLOCK128), (OUTER, VEC128), (TENSOR, OUTER), (VEC128, TENSOR), (VEC32, VEC32), (VEC16, VEC16),
     (6, 6), (-1, 0)],
)  # fmt: skip
def test_a_pair_that_hopper_does_not_have_is_not_supported(hopper: Machine, modes: tuple[int, int]) -> None:
    assert answers(hopper, modes) == {NOT_SUPPORTED}


@pytest.mark.parametrize("modes", [*OF_HOPPER, (VEC16, VEC16), (VEC32, TENSOR), (VEC16, VEC32)])
def test_a_pair_that_another_device_does_not_have_is_not_supported(
    machine: Machine, modes: tuple[int, int]
) -> None:
    assert answers(machine, modes) == {NOT_SUPPORTED}


@pytest.mark.parametrize(
    "wrong",
    [
        {"m": 18},  # no multiple of 4
        {"d": E4M3},
        {"batch": 2},
        {"turned": 0},
        {"dtypes": (E5M2, E5M2)},
        {"dtypes": (BFLOAT, BFLOAT)},
        {"compute": 77},
    ],
)
def test_what_a_product_with_factors_of_blocks_cannot_be(hopper: Machine, wrong: dict[str, Any]) -> None:
    assert answers(hopper, (VEC128, VEC128), **wrong) == {NOT_SUPPORTED}


#: Addresses that factors do not have.
MISPLACED: Final = [(0, NOWHERE), (NOWHERE, 0), (NOWHERE + 4, NOWHERE), (NOWHERE, NOWHERE + 8)]


@pytest.mark.parametrize("factors", MISPLACED)
def test_factors_of_blocks_lie_at_multiples_of_16_bytes(hopper: Machine, factors: tuple[int, int]) -> None:
    assert answers(hopper, (VEC128, BLOCK128), factors=factors) == {INVALID_VALUE}


@pytest.mark.parametrize("factors", MISPLACED)
def test_factors_of_8_bits_lie_at_multiples_of_16_bytes(machine: Machine, factors: tuple[int, int]) -> None:
    assert answers(machine, (VEC32, VEC32), factors=factors) == {INVALID_VALUE}


@pytest.mark.parametrize("factors", MISPLACED)
def test_factors_of_rows_lie_anywhere(hopper: Machine, factors: tuple[int, int]) -> None:
    """They are read one by one."""
    shapes = turned_shapes(16, N, 128, E4M3, E4M3, SINGLE, SINGLE)
    with scaled(hopper, shapes, (OUTER, OUTER), factors) as run:
        assert run.heuristic() == (INVALID_VALUE if 0 in factors else SUCCESS)


def test_one_factor_may_be_named_after_the_question(machine: Machine) -> None:
    """XLA asks how to compute a product before it knows where the factors lie."""
    shapes = turned_shapes(16, N, 128, E4M3, E4M3, SINGLE, SINGLE)
    with scaled(machine, shapes, (TENSOR, TENSOR), (0, 0)) as run:
        assert run.heuristic() == SUCCESS
