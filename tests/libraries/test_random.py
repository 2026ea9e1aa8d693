"""cuRAND: Philox 4x32-10 against numbers that were published and a second way to compute it; distributions; wrong arguments."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.libraries.curand import (
    LENGTH_NOT_MULTIPLE,
    LIBRARY,
    MRG32K3A,
    NOT_INITIALIZED,
    OUT_OF_RANGE,
    PHILOX,
    SUCCESS,
    TYPE_ERROR,
    XORWOW,
    generator,
    numbers,
)
from tests.libraries.machine import Answer, Argument, Array, Machine, integer, out, pointer, wide

#: Four numbers of a sequence are followed by four of the next.
SEQUENCES: Final = 65536
every_generator: Final = pytest.mark.parametrize("kind", [XORWOW, MRG32K3A, PHILOX])
MEAN, DEVIATION = 3.0, 0.5

quickly = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
seeds = st.integers(0, 2**64 - 1)


def philox(counter: Array, key: tuple[int, int]) -> Array:
    """Ten rounds of Philox 4x32 for rows of four words, as its authors wrote it down."""
    a, b, c, d = (counter[:, column].astype(np.uint64) for column in range(4))
    first, second = (np.uint64(word) for word in key)
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    for _ in range(10):
        left, right = np.uint64(0xD2511F53) * a, np.uint64(0xCD9E8D57) * c
        a, b, c, d = (right >> half) ^ b ^ first, right & low, (left >> half) ^ d ^ second, left & low
        first, second = (first + np.uint64(0x9E3779B9)) & low, (second + np.uint64(0xBB67AE85)) & low
    return np.stack([a, b, c, d], axis=1).astype(np.uint32)


def words(seed: int, position: int, count: int) -> Array:
    """Random words in the order of the generator."""
    groups = np.arange(position // 4, (position + count + 3) // 4, dtype=np.uint64)
    step, sequence = groups // np.uint64(SEQUENCES), groups % np.uint64(SEQUENCES)
    zero = np.zeros_like(groups)
    counter = np.stack([step & np.uint64(0xFFFFFFFF), step >> np.uint64(32), sequence, zero], axis=1)
    found = philox(counter, (seed & 0xFFFFFFFF, seed >> 32)).ravel()
    return found[position % 4 : position % 4 + count]


def pairs_of_words(seed: int, position: int, count: int) -> Array:
    """Rows of two words for each double: four doubles of a sequence take eight words, of two steps.

    An offset counts steps, as NVIDIA's host generators do.
    """
    first_step, turn = divmod(position, 4 * SEQUENCES)
    turns = turn + np.arange(count, dtype=np.uint64)
    cycle, place = turns // np.uint64(4 * SEQUENCES), turns % np.uint64(4 * SEQUENCES)
    step = np.uint64(first_step) + np.uint64(2) * cycle + place % np.uint64(4) // np.uint64(2)
    zero = np.zeros_like(step)
    counter = np.stack(
        [step & np.uint64(0xFFFFFFFF), step >> np.uint64(32), place // np.uint64(4), zero], axis=1
    )
    blocks = philox(counter, (seed & 0xFFFFFFFF, seed >> 32)).reshape(count, 2, 2)
    return blocks[np.arange(count), place % np.uint64(2)]


def uniform_floats(seed: int, position: int, count: int) -> Array:
    scale = np.float32(2.0**-32)
    return words(seed, position, count).astype(np.float32) * scale + scale / np.float32(2)


def uniform_doubles(seed: int, position: int, count: int) -> Array:
    pairs = pairs_of_words(seed, position, count).astype(np.uint64)
    return (pairs[:, 0] ^ (pairs[:, 1] << np.uint64(21))).astype(np.float64) * 2.0**-53 + 2.0**-54


def normal(uniform: Array) -> Array:
    """Box and Muller's, of pairs that begin at an even position."""
    first, second = uniform[0::2].astype(np.float64), uniform[1::2].astype(np.float64)
    distance = np.sqrt(-2 * np.log(first))
    return np.stack(
        [distance * np.sin(2 * np.pi * second), distance * np.cos(2 * np.pi * second)], axis=1
    ).ravel()


def test_the_reference_computes_what_its_authors_published() -> None:
    """The known answers of Random123: counters and keys of zeros, of ones, and of digits of pi."""
    rows = np.array([[0] * 4, [0xFFFFFFFF] * 4, [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]], np.uint64)
    keys = ((0, 0), (0xFFFFFFFF, 0xFFFFFFFF), (0xA4093822, 0x299F31D0))
    answers = (
        [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8],
        [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    )
    for row, key, answer in zip(rows, keys, answers, strict=True):
        assert philox(row[None, :], key)[0].tolist() == answer


@quickly
@given(seed=seeds, offset=st.integers(0, 2**34), count=st.integers(1, 3000))
def test_bits(machine: Machine, seed: int, offset: int, count: int) -> None:
    with generator(machine, seed, offset) as philox_generator:
        result = numbers(machine, philox_generator, "curandGenerate", count, np.uint32)
    np.testing.assert_array_equal(result, words(seed, offset, count))


def test_many_bits_go_through_all_sequences(machine: Machine) -> None:
    count = SEQUENCES * 4 + 1000
    with generator(machine, 7) as philox_generator:
        result = numbers(machine, philox_generator, "curandGenerate", count, np.uint32)
    np.testing.assert_array_equal(result, words(7, 0, count))


@quickly
@given(seed=seeds, offset=st.integers(0, 2**20), count=st.integers(1, 500))
def test_uniform_numbers(machine: Machine, seed: int, offset: int, count: int) -> None:
    with generator(machine, seed, offset) as philox_generator:
        floats = numbers(machine, philox_generator, "curandGenerateUniform", count, np.float32)
    with generator(machine, seed, offset) as philox_generator:
        doubles = numbers(machine, philox_generator, "curandGenerateUniformDouble", count, np.float64)
    np.testing.assert_array_equal(floats, uniform_floats(seed, offset, count))
    np.testing.assert_array_equal(doubles, uniform_doubles(seed, offset, count))


@quickly
@given(seed=seeds, offset=st.integers(0, 1000), count=st.integers(1, 200))
def test_normal_and_log_normal_numbers(machine: Machine, seed: int, offset: int, count: int) -> None:
    offset, count = offset * 2, count * 2
    kinds: tuple[tuple[str, type[Any], str, Array, float], ...] = (
        ("", np.float32, "f", uniform_floats(seed, offset, count), 1e-4),
        ("Double", np.float64, "d", uniform_doubles(seed, offset, count), 1e-12),
    )
    for suffix, dtype, passed, uniform, tolerance in kinds:
        wanted = normal(uniform) * DEVIATION + MEAN
        parameters = ((passed, MEAN), (passed, DEVIATION))
        for name, values in (("Normal", wanted), ("LogNormal", np.exp(wanted))):
            with generator(machine, seed, offset) as philox_generator:
                function = f"curandGenerate{name}{suffix}"
                result = numbers(machine, philox_generator, function, count, dtype, *parameters)
            np.testing.assert_allclose(result, values, rtol=tolerance, atol=tolerance)


def test_bits_after_doubles_are_words_that_no_double_had(machine: Machine) -> None:
    """As NVIDIA's host generators have it: a whole cycle of doubles takes two steps of each sequence."""
    cycle = 4 * SEQUENCES
    with generator(machine, 7) as philox_generator:
        numbers(machine, philox_generator, "curandGenerateUniformDouble", cycle, np.float64)
        after_a_cycle = numbers(machine, philox_generator, "curandGenerate", 8, np.uint32)
    np.testing.assert_array_equal(after_a_cycle, words(7, 2 * cycle, 8))


@every_generator
def test_distributions_are_what_they_are_called(machine: Machine, kind: int) -> None:
    """By Kolmogorov's and Smirnov's test, of one seed."""
    with generator(machine, 42, kind=kind) as made:
        uniform = numbers(machine, made, "curandGenerateUniform", 20_000, np.float32)
        gauss = numbers(machine, made, "curandGenerateNormal", 20_000, np.float32, ("f", 0.0), ("f", 1.0))
    from scipy import stats  # takes most of a second, which each process of a test run would spend

    assert stats.kstest(uniform, "uniform").pvalue > 1e-3
    assert stats.kstest(gauss, "norm").pvalue > 1e-3
    assert uniform.min() > 0
    assert uniform.max() <= 1


def test_several_calls_go_on_with_one_sequence(machine: Machine) -> None:
    with generator(machine, 5) as philox_generator:
        parts = [
            numbers(machine, philox_generator, "curandGenerate", count, np.uint32) for count in (3, 10, 1, 50)
        ]
        np.testing.assert_array_equal(np.concatenate(parts), words(5, 0, 64))
        # A seed begins it anew.
        assert (
            machine.call(LIBRARY, "curandSetPseudoRandomGeneratorSeed", philox_generator, wide(6)).status
            == SUCCESS
        )
        again = numbers(machine, philox_generator, "curandGenerate", 4, np.uint32)
    np.testing.assert_array_equal(again, words(6, 0, 4))


def test_a_generator_of_host_memory_has_the_same_numbers(machine: Machine) -> None:
    made = machine.call(LIBRARY, "curandCreateGeneratorHost", out(8), integer(PHILOX))
    assert made.status == SUCCESS
    host = pointer(made.number())
    answer: Answer = machine.call(LIBRARY, "curandGenerate", host, out(400), wide(100))
    assert answer.status == SUCCESS
    np.testing.assert_array_equal(np.frombuffer(answer.outputs[0], np.uint32), words(0, 0, 100))
    assert machine.call(LIBRARY, "curandDestroyGenerator", host).status == SUCCESS


@every_generator
@pytest.mark.parametrize(
    ("ordering", "status"),
    [(100, SUCCESS), (101, SUCCESS), (103, SUCCESS), (102, OUT_OF_RANGE), (201, OUT_OF_RANGE)],
)
def test_orders(machine: Machine, ordering: int, status: int, kind: int) -> None:
    with generator(machine, kind=kind) as made:
        answer = machine.call(LIBRARY, "curandSetGeneratorOrdering", made, integer(ordering))
    assert answer.status == status


@pytest.mark.parametrize("kind", [141, 142, 202, 204, 7])
def test_a_sequence_that_would_have_to_be_invented_is_refused(machine: Machine, kind: int) -> None:
    assert machine.call(LIBRARY, "curandCreateGenerator", out(8), integer(kind)).status == TYPE_ERROR


@every_generator
def test_wrong_arguments(machine: Machine, kind: int) -> None:
    calls: tuple[tuple[str, tuple[Argument, ...], int], ...] = (
        ("curandGenerateNormal", (pointer(256), wide(3), ("f", 0.0), ("f", 1.0)), LENGTH_NOT_MULTIPLE),
        ("curandGenerateLongLong", (pointer(256), wide(2)), TYPE_ERROR),
        ("curandSetQuasiRandomGeneratorDimensions", (integer(2),), TYPE_ERROR),
        ("curandGeneratePoisson", (pointer(256), wide(2), ("d", 1.0)), TYPE_ERROR),
        ("curandGenerate", (pointer(0), wide(0)), SUCCESS),
    )
    with generator(machine, kind=kind) as made:
        for function, arguments, status in calls:
            assert machine.call(LIBRARY, function, made, *arguments).status == status, function
    assert (
        machine.call(LIBRARY, "curandGenerate", pointer(0), pointer(256), wide(2)).status == NOT_INITIALIZED
    )
    assert machine.synchronize() == 0


def test_the_library_says_its_version(machine: Machine) -> None:
    answer = machine.call(LIBRARY, "curandGetVersion", out(4))
    assert answer.status == SUCCESS
    assert answer.number() // 1000 == 10
    assert machine.call(LIBRARY, "curandGetProperty", integer(3), out(4)).status == OUT_OF_RANGE
