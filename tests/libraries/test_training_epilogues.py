"""Epilogues of training, against numpy: what ReLU and GELU leave, their gradients, and those of biases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import ml_dtypes
import numpy as np
import pytest

from tests.libraries.cublas import INVALID_VALUE, NOT_SUPPORTED, SUCCESS, random
from tests.libraries.cublaslt import (
    AUXILIARY,
    AUXILIARY_LARGEST,
    AUXILIARY_LEADING,
    AUXILIARY_SCALE,
    AUXILIARY_STRIDE,
    AUXILIARY_TYPE,
    BATCH,
    BGRAD,
    BGRADA,
    BGRADB,
    BIAS,
    BIAS_STRIDE,
    BIAS_TYPE,
    DGELU,
    DRELU,
    EPILOGUE,
    GELU,
    GELU_AUX,
    LEADING,
    ORDER,
    RELU,
    RELU_AUX,
    SINGLE,
    STRIDE,
    TRANSPOSE_A,
    TRANSPOSE_B,
    WITH_BIAS,
    Product,
    Shape,
    product_of,
    turned_shapes,
)
from tests.libraries.machine import DATA_TYPES, Array, Machine, host

HALF, BFLOAT = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
E4M3: Final = np.dtype(ml_dtypes.float8_e4m3fn)
#: More than one tile in both directions; the rows fill up no byte of a mask.
M, N, K = 140, 150, 24
TRAINING: Final = {
    "RELU_AUX": RELU_AUX,
    "RELU_AUX_BIAS": RELU_AUX | WITH_BIAS,
    "DRELU": DRELU,
    "DRELU_BGRAD": DRELU | BGRAD,
    "GELU_AUX": GELU_AUX,
    "GELU_AUX_BIAS": GELU_AUX | WITH_BIAS,
    "DGELU": DGELU,
    "DGELU_BGRAD": DGELU | BGRAD,
    "BGRADA": BGRADA,
    "BGRADB": BGRADB,
}
#: The type of the matrices, and of a bias or its gradient.
TYPES: Final = [(SINGLE, SINGLE), (HALF, HALF), (BFLOAT, BFLOAT), (HALF, SINGLE), (BFLOAT, SINGLE)]
TOLERANCE: Final = {SINGLE: 1e-5, HALF: 2e-3, BFLOAT: 2e-2}
ONE, TWO = host(np.ones(1, SINGLE)), host(np.full(1, 2, SINGLE))
#: What lies between the columns of an auxiliary matrix, and an address that nobody reads.
FILLER, NOWHERE = 7, 4096


class Room(NamedTuple):
    """How an auxiliary matrix lies: in bits, or in elements."""

    leading: int
    stride: int


MASK, ARGUMENTS = Room(256, 256 * N + 128), Room(152, 152 * N + 8)


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_slope(x: Array) -> Array:
    t = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t**2) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)


def exact(generator: np.random.Generator, *shape: int) -> Array:
    """Numbers that every type has, and whose products are added up without rounding."""
    return generator.integers(-2, 3, shape) / 8


def columns(matrices: Array, dtype: np.dtype[Any]) -> Array:
    """Batches one behind the other, each in column order."""
    return np.ascontiguousarray(matrices.transpose(0, 2, 1)).astype(dtype)


def spread(matrices: Array, leading: int, stride: int) -> Array:
    """The same, where columns and batches lie so far apart."""
    batch, rows, count = matrices.shape
    made = np.full((batch, stride), FILLER).astype(matrices.dtype)
    for memory, matrix in zip(made, matrices, strict=True):
        memory[: leading * count].reshape(count, leading)[:, :rows] = matrix.T
    return made


def check_same(found: Array, wanted: Array) -> None:
    np.testing.assert_array_equal(found.astype(np.float64), wanted.astype(np.float64))


def gathered(memory: Array, leading: int, rows: int) -> Array:
    """The matrices in it. Nothing else has changed."""
    found = np.stack([one[: leading * N].reshape(N, leading)[:, :rows].T for one in memory])
    check_same(spread(found, leading, memory.shape[1]), memory)
    return found


def packed(mask: Array) -> Array:
    """A bit for each row: the first one is the lowest of a byte."""
    return np.packbits(mask, axis=1, bitorder="little")


def unpacked(found: Array) -> Array:
    return np.unpackbits(found, axis=1, bitorder="little")[:, :M] == 1


@contextmanager
def described(machine: Machine, epilogue: int, dtype: np.dtype[Any], batch: int) -> Iterator[Product]:
    """A product of matrices as `columns` has them, with an epilogue that does not know its memory yet."""
    sizes = {"a": (M, K), "b": (K, N), "c": (M, N), "d": (M, N)}
    with product_of(machine, {name: Shape(dtype, *size, size[0]) for name, size in sizes.items()}) as run:
        for name, (rows, count) in sizes.items():
            run.set_layout(name, BATCH, np.array(batch, np.int32))
            run.set_layout(name, STRIDE, np.array(rows * count, np.int64))
        run.set(EPILOGUE, np.array(epilogue, np.uint32))
        yield run


def set_auxiliary(run: Product, address: int, room: Room) -> None:
    run.set(AUXILIARY, np.array(address, np.uint64))
    run.set(AUXILIARY_LEADING, np.array(room.leading, np.int64))
    run.set(AUXILIARY_STRIDE, np.array(room.stride, np.int64))


def set_vector(run: Product, address: int, dtype: np.dtype[Any], stride: int) -> None:
    run.set(BIAS, np.array(address, np.uint64))
    run.set(BIAS_STRIDE, np.array(stride, np.int64))
    run.set(BIAS_TYPE, np.array(DATA_TYPES[dtype], np.int32))


def check_close(found: Array, wanted: Array, dtype: np.dtype[Any]) -> None:
    tolerance = TOLERANCE[dtype]
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("dtype", "of_vector"), TYPES)
@pytest.mark.parametrize("name", TRAINING)
def test_an_epilogue_of_training(
    machine: Machine, name: str, dtype: np.dtype[Any], of_vector: np.dtype[Any], batch: int
) -> None:
    epilogue, generator = TRAINING[name], np.random.default_rng(7)
    a, b, c = (exact(generator, batch, *shape) for shape in ((M, K), (K, N), (M, N)))
    bias, arguments = exact(generator, batch, M), generator.uniform(-3, 3, (batch, M, N)).astype(dtype)
    mask = generator.integers(0, 2, (batch, M, N)) == 1
    z = 2 * a @ b + 0.5 * c + (bias[:, :, None] if epilogue & WITH_BIAS else 0)
    results = {
        RELU_AUX: lambda: np.maximum(z, 0),
        GELU_AUX: lambda: gelu(z),
        DRELU: lambda: np.where(mask, z, 0),
        DGELU: lambda: z * gelu_slope(arguments.astype(np.float64)),
    }
    d = results.get(epilogue & ~(WITH_BIAS | BGRAD), lambda: z)()
    sums = {BGRADA: a.sum(2), BGRADB: b.sum(1)}.get(epilogue, d.sum(2))

    reads = epilogue & ~BGRAD in {DRELU, DGELU}
    has_mask, length = epilogue & ~(WITH_BIAS | BGRAD) in {RELU_AUX, DRELU}, N if epilogue == BGRADB else M
    room = MASK if has_mask else ARGUMENTS
    auxiliary = (
        spread(packed(mask & reads), MASK.leading // 8, MASK.stride // 8)
        if has_mask
        else spread(arguments if reads else np.zeros_like(arguments), *ARGUMENTS)
    )
    vector = np.full((batch, length + 8), FILLER).astype(of_vector)
    if epilogue & WITH_BIAS:
        vector[:, :length] = bias
    memory = [columns(one, dtype) for one in (a, b, c, np.zeros_like(z))]
    with (
        described(machine, epilogue, dtype, batch) as run,
        machine.arrays(*memory, vector, auxiliary) as (at_a, at_b, at_c, at_d, at_vector, at_auxiliary),
    ):
        set_vector(run, at_vector, of_vector, vector.shape[1])
        set_auxiliary(run, at_auxiliary, room)
        assert run.heuristic() == SUCCESS
        assert run.multiply(TWO, {"a": at_a, "b": at_b, "c": at_c, "d": at_d}, beta=0.5) == SUCCESS
        found = machine.get(at_d, memory[3]).transpose(0, 2, 1)
        found_vector = machine.get(at_vector, vector)
        found_auxiliary = machine.get(at_auxiliary, auxiliary)
    check_close(found, d, dtype)
    if epilogue & (BGRAD | BGRADA | BGRADB):
        check_close(found_vector[:, :length], sums, max(dtype, of_vector, key=TOLERANCE.__getitem__))
        check_same(found_vector[:, length:], vector[:, length:])
    else:
        check_same(found_vector, vector)
    if epilogue & ~WITH_BIAS == RELU_AUX:
        stored = unpacked(gathered(found_auxiliary, MASK.leading // 8, -(-M // 8)))
        np.testing.assert_array_equal(stored, z >= 0)
    elif epilogue & ~WITH_BIAS == GELU_AUX:
        check_close(gathered(found_auxiliary, ARGUMENTS.leading, M), z, dtype)
    else:
        check_same(found_auxiliary, auxiliary)


@pytest.mark.parametrize("turned", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("epilogue", [BGRADA, BGRADB])
def test_operands_that_are_transposed_are_added_up_along_the_terms(
    machine: Machine, epilogue: int, turned: tuple[int, int]
) -> None:
    generator = np.random.default_rng(8)
    a, b = (
        random(generator, size[::-1] if turn else size, SINGLE)
        for size, turn in zip(((M, K), (K, N)), turned, strict=True)
    )
    left, right = (one.T if turn else one for one, turn in zip((a, b), turned, strict=True))
    d, vector = np.zeros((M, N), SINGLE, order="F"), np.zeros(N if epilogue == BGRADB else M, SINGLE)
    shapes = {
        name: Shape(SINGLE, *one.shape, len(one)) for name, one in {"a": a, "b": b, "c": d, "d": d}.items()
    }
    with (
        product_of(machine, shapes) as run,
        machine.arrays(a, b, d, vector) as (at_a, at_b, at_d, at_vector),
    ):
        for attribute, turn in zip((TRANSPOSE_A, TRANSPOSE_B), turned, strict=True):
            run.set(attribute, np.array(turn, np.int32))
        run.set(EPILOGUE, np.array(epilogue, np.uint32))
        run.set(BIAS, np.array(at_vector, np.uint64))
        assert run.multiply(ONE, {"a": at_a, "b": at_b, "c": at_d, "d": at_d}) == SUCCESS
        found, sums = machine.get(at_d, d), machine.get(at_vector, vector)
    np.testing.assert_allclose(found, left @ right, rtol=1e-4, atol=1e-4)
    wanted = left.sum(1) if epilogue == BGRADA else right.sum(0)
    np.testing.assert_allclose(sums, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("epilogue", [BGRADA, BGRADB])
def test_the_gradient_of_a_bias_may_lie_at_any_of_its_elements(
    machine: Machine, epilogue: int, offset: int
) -> None:
    """Beside a worker it is made where kernels write 16 bytes at once, and moved."""
    generator, length = np.random.default_rng(9), N if epilogue == BGRADB else M
    a, b = exact(generator, 1, M, K), exact(generator, 1, K, N)
    vector = np.full(length + 2, FILLER, SINGLE)
    memory = [columns(one, SINGLE) for one in (a, b, np.zeros((1, M, N)))]
    with (
        described(machine, epilogue, SINGLE, 1) as run,
        machine.arrays(*memory, vector) as (at_a, at_b, at_d, at_vector),
    ):
        set_vector(run, at_vector + 4 * offset, SINGLE, 0)
        assert run.multiply(ONE, {"a": at_a, "b": at_b, "c": at_d, "d": at_d}) == SUCCESS
        found = machine.get(at_vector, vector)
    vector[offset : offset + length] = a[0].sum(1) if epilogue == BGRADA else b[0].sum(0)
    np.testing.assert_array_equal(found, vector)


def test_a_gradient_of_several_batches_may_have_one_mask(machine: Machine) -> None:
    generator = np.random.default_rng(10)
    a, b = exact(generator, 2, M, K), exact(generator, 2, K, N)
    mask = generator.integers(0, 2, (1, M, N)) == 1
    auxiliary = spread(packed(mask), MASK.leading // 8, MASK.stride // 8)
    memory = [columns(one, SINGLE) for one in (a, b, np.zeros((2, M, N)))]
    with (
        described(machine, DRELU, SINGLE, 2) as run,
        machine.arrays(*memory, auxiliary) as (at_a, at_b, at_d, at_auxiliary),
    ):
        set_auxiliary(run, at_auxiliary, Room(MASK.leading, 0))
        assert run.multiply(ONE, {"a": at_a, "b": at_b, "c": at_d, "d": at_d}) == SUCCESS
        found = machine.get(at_d, memory[2]).transpose(0, 2, 1)
    check_close(found, np.where(mask, a @ b, 0), SINGLE)


def test_the_slope_of_gelu_is_known_at_infinity(machine: Machine) -> None:
    arguments = np.zeros((1, M, N), HALF)
    arguments[:, 0::3], arguments[:, 1::3] = np.inf, -np.inf
    memory = [
        columns(one, HALF) for one in (np.ones((1, M, K)), np.ones((1, K, N)), np.zeros((1, M, N)), arguments)
    ]
    with (
        described(machine, DGELU, HALF, 1) as run,
        machine.arrays(*memory) as (at_a, at_b, at_d, at_auxiliary),
    ):
        set_auxiliary(run, at_auxiliary, Room(M, 0))  # a distance that is no multiple of 8, as XLA gives one
        assert run.multiply(ONE, {"a": at_a, "b": at_b, "c": at_d, "d": at_d}) == SUCCESS
        found = machine.get(at_d, memory[2])[0, 0]
    np.testing.assert_array_equal(found[:3], [K, 0, K / 2])


def test_arguments_of_fp8_have_a_scale_and_a_largest_one(machine: Machine) -> None:
    m, n, k = 144, 160, 32
    generator = np.random.default_rng(11)
    a, b = (generator.integers(-4, 5, (rows, k)).astype(E4M3) for rows in (m, n))
    exact_sums = b.astype(np.float64) @ a.astype(np.float64).T
    d, arguments = np.zeros((n, m), E4M3), np.zeros((n, 160), E4M3)
    largest, scale = np.full(1, np.nan, SINGLE), np.full(1, 0.25, SINGLE)
    with (
        product_of(machine, turned_shapes(m, n, k, E4M3, E4M3, E4M3, HALF)) as run,
        machine.arrays(a, b, d, arguments, largest, scale) as (
            at_a, at_b, at_d, at_arguments, at_largest, at_scale,
        ),
    ):  # fmt: skip
        run.set(TRANSPOSE_A, np.array(1, np.int32))
        run.set(EPILOGUE, np.array(GELU_AUX, np.uint32))
        set_auxiliary(run, at_arguments, Room(160, 0))
        run.set(AUXILIARY_TYPE, np.array(DATA_TYPES[E4M3], np.int32))
        run.set(AUXILIARY_SCALE, np.array(at_scale, np.uint64))
        run.set(AUXILIARY_LARGEST, np.array(at_largest, np.uint64))
        assert run.heuristic() == SUCCESS
        assert run.multiply(ONE, {"a": at_a, "b": at_b, "c": 0, "d": at_d}) == SUCCESS
        found, kept = machine.get(at_d, d), machine.get(at_arguments, arguments)
        assert machine.get(at_largest, largest)[0] == np.abs(exact_sums).max()
    wanted = np.clip(exact_sums / 4, -448, 448).astype(E4M3)
    np.testing.assert_array_equal(kept[:, :m].astype(SINGLE), wanted.astype(SINGLE))
    np.testing.assert_array_equal(kept[:, m:].astype(SINGLE), 0)
    np.testing.assert_allclose(
        found.astype(np.float64), np.clip(gelu(exact_sums), -448, 448), rtol=0.07, atol=0.02
    )


class Setting(NamedTuple):
    """An attribute that is wrong or missing, and the statuses of the question and of the product."""

    epilogue: int
    attribute: int
    value: np.generic
    question: int
    product: int
    batch: int = 1


#: What is missing is asked for when the product is computed: programs ask how before they know where.
WRONG: Final = {
    "no mask": Setting(RELU_AUX, AUXILIARY, np.uint64(0), SUCCESS, INVALID_VALUE),
    "no arguments": Setting(DGELU, AUXILIARY, np.uint64(0), SUCCESS, INVALID_VALUE),
    "no distance": Setting(GELU_AUX, AUXILIARY_LEADING, np.int64(0), SUCCESS, INVALID_VALUE),
    "too short a distance of masks": Setting(
        DRELU, AUXILIARY_LEADING, np.int64(128), INVALID_VALUE, INVALID_VALUE
    ),
    "too short a distance of arguments": Setting(
        GELU_AUX, AUXILIARY_LEADING, np.int64(136), INVALID_VALUE, INVALID_VALUE
    ),
    "a distance of masks within 16 bytes": Setting(
        RELU_AUX, AUXILIARY_LEADING, np.int64(264), INVALID_VALUE, INVALID_VALUE
    ),
    "a stride of masks within 16 bytes": Setting(
        RELU_AUX, AUXILIARY_STRIDE, np.int64(256 * N + 8), INVALID_VALUE, INVALID_VALUE, 2
    ),
    "all batches in one mask": Setting(RELU_AUX, AUXILIARY_STRIDE, np.int64(0), SUCCESS, NOT_SUPPORTED, 2),
    "no place for sums": Setting(BGRADA, BIAS, np.uint64(0), SUCCESS, INVALID_VALUE),
    "no place for a gradient": Setting(DRELU | BGRAD, BIAS, np.uint64(0), SUCCESS, INVALID_VALUE),
    "all batches in one gradient": Setting(BGRADB, BIAS_STRIDE, np.int64(0), SUCCESS, NOT_SUPPORTED, 2),
    "arguments of another type": Setting(
        GELU_AUX, AUXILIARY_TYPE, np.int32(DATA_TYPES[HALF]), INVALID_VALUE, INVALID_VALUE
    ),
    "arguments of no type": Setting(DGELU, AUXILIARY_TYPE, np.int32(999), INVALID_VALUE, INVALID_VALUE),
    "a scale of wide arguments": Setting(
        GELU_AUX, AUXILIARY_SCALE, np.uint64(NOWHERE), NOT_SUPPORTED, NOT_SUPPORTED
    ),
    "the largest bit of a mask": Setting(
        RELU_AUX, AUXILIARY_LARGEST, np.uint64(NOWHERE), NOT_SUPPORTED, NOT_SUPPORTED
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_or_missing_has_its_status(machine: Machine, name: str) -> None:
    wrong = WRONG[name]
    with described(machine, wrong.epilogue, SINGLE, wrong.batch) as run:
        set_auxiliary(run, NOWHERE, MASK if wrong.epilogue & ~BGRAD in {RELU_AUX, DRELU} else ARGUMENTS)
        set_vector(run, NOWHERE, SINGLE, M + N)
        assert run.heuristic() == SUCCESS
        run.set(wrong.attribute, np.array(wrong.value))
        assert run.heuristic() == wrong.question
        assert run.multiply(ONE, dict.fromkeys("abcd", NOWHERE)) == wrong.product
    assert machine.synchronize() == 0


@pytest.mark.parametrize(
    "epilogue", [0, 8, 16, 64, 128, RELU | GELU, RELU | BGRAD, DRELU | WITH_BIAS, BGRADA | BGRADB]
)
def test_other_combinations_are_no_epilogues(machine: Machine, epilogue: int) -> None:
    with described(machine, epilogue, SINGLE, 1) as run:
        set_auxiliary(run, NOWHERE, MASK)
        set_vector(run, NOWHERE, SINGLE, 0)
        assert run.heuristic() == NOT_SUPPORTED
        assert run.multiply(ONE, dict.fromkeys("abcd", NOWHERE)) == NOT_SUPPORTED


@pytest.mark.parametrize("epilogue", [RELU_AUX, DGELU, BGRADA])
def test_complex_numbers_have_no_training(machine: Machine, epilogue: int) -> None:
    complex_numbers = np.dtype(np.complex64)
    shapes = {name: Shape(complex_numbers, 8, 8, 8) for name in "abcd"}
    with product_of(machine, shapes, scalar=complex_numbers) as run:
        assert run.heuristic() == SUCCESS
        run.set(EPILOGUE, np.array(epilogue, np.uint32))
        assert run.heuristic() == NOT_SUPPORTED


@pytest.mark.parametrize("name", TRAINING)
def test_an_auxiliary_matrix_has_the_columns_of_d_together(machine: Machine, name: str) -> None:
    epilogue = TRAINING[name]
    with described(machine, epilogue, SINGLE, 1) as run:
        run.set_layout("d", ORDER, np.array(1, np.int32))
        run.set_layout("d", LEADING, np.array(N, np.int64))
        assert run.heuristic() == (SUCCESS if epilogue in {BGRADA, BGRADB} else NOT_SUPPORTED)


@pytest.mark.parametrize("name", TRAINING)
def test_nothing_is_added_up_beside_a_product_of_fp8(machine: Machine, name: str) -> None:
    epilogue = TRAINING[name]
    with product_of(machine, turned_shapes(32, 32, 32, E4M3, E4M3, SINGLE, SINGLE)) as run:
        run.set(TRANSPOSE_A, np.array(1, np.int32))
        run.set(EPILOGUE, np.array(epilogue, np.uint32))
        adds_up = epilogue & (BGRAD | BGRADA | BGRADB) != 0
        assert run.heuristic() == (NOT_SUPPORTED if adds_up else SUCCESS)
