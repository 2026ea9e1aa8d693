"""XORWOW, cuRAND's default generator: against numbers of NVIDIA's host generators, and against a second way to compute it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.libraries.curand import (
    DEFAULT,
    LENGTH_NOT_MULTIPLE,
    LIBRARY,
    OUT_OF_RANGE,
    SUCCESS,
    XORWOW,
    generator,
    numbers,
)
from tests.libraries.machine import Argument, Array, Machine, integer, out, pointer, wide

#: They take turns, and are 2^67 words apart.
SUBSEQUENCES: Final = 4096
MASK: Final = 0xFFFFFFFF
STANDARD: Final[tuple[tuple[Argument, ...], ...]] = ((("f", 0.0), ("f", 1.0)), (("d", 0.0), ("d", 1.0)))

#: Written down from `curandCreateGeneratorHost` of cuRAND 10.3.10, which needs no device: seed, offset, function and its
#: arguments, type, how many, and the numbers at `PLACES`.
PLACES: Final = (0, 1, 2, 4095, 4096, 8191, 8192, 19999)
SEED: Final = 0x123456789ABCDEF
NVIDIAS: Final[tuple[tuple[str, tuple[Argument, ...], type[Any], tuple[float, ...]], ...]] = (
    (
        "",
        (),
        np.uint32,
        (440680976, 1832686709, 326211306, 48819421, 1070377272, 589465562, 2893829380, 4049136752),
    ),
    (
        "Uniform",
        (),
        np.float32,
        (
            0.10260403156280518, 0.42670562863349915, 0.07595198601484299, 0.011366656981408596,
            0.24921663105487823, 0.13724564015865326, 0.6737721562385559, 0.942763090133667,
        ),
    ),
    (
        "UniformDouble",
        (),
        np.float64,
        (
            0.24921667066706915, 0.26400457110561487, 0.7649464703979139, 0.1372456432503914,
            0.9156028742169444, 0.5315113615629097, 0.6700818120132921, 0.5838946471661033,
        ),
    ),
    (
        "Normal",
        STANDARD[0],
        np.float32,
        (
            2.133927345275879, 0.010503250174224377, 1.3000643253326416, 0.30787327885627747,
            -0.004721950739622116, 1.9470081329345703, -0.4494658410549164, -1.5095787048339844,
        ),
    ),
    (
        "NormalDouble",
        STANDARD[1],
        np.float64,
        (
            -0.8431271581060347, 1.4380548634878358, 1.611455406132589, 1.893254343622532,
            -0.8706177273664742, -1.9540434784003227, 0.8020136380294446, 0.6693613433632566,
        ),
    ),
)  # fmt: skip

quickly = settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


class Reference:
    """Words of single subsequences, by powers of the matrix of a step: a column is an integer of 160 bits."""

    def __init__(self) -> None:
        self._powers = [[self._step(1 << bit) for bit in range(160)]]
        while len(self._powers) < 67 + 12:
            last = self._powers[-1]
            self._powers.append([self._apply(last, column) for column in last])

    @staticmethod
    def _step(bits: int) -> int:
        first, last = bits & MASK, bits >> 128
        t = first ^ (first >> 2)
        return bits >> 32 | ((last ^ (last << 4) ^ t ^ (t << 1)) & MASK) << 128

    @staticmethod
    def _apply(columns: list[int], bits: int) -> int:
        total = 0
        while bits:
            total ^= columns[(bits & -bits).bit_length() - 1]
            bits &= bits - 1
        return total

    def _jump(self, bits: int, count: int, exponent: int) -> int:
        for bit in range(count.bit_length()):
            if count >> bit & 1:
                bits = self._apply(self._powers[exponent + bit], bits)
        return bits

    def words(self, seed: int, subsequence: int, row: int, count: int) -> list[int]:
        low = 1099087573 * ((seed & MASK) ^ 0xAAD26B49) & MASK
        high = 2591861531 * ((seed >> 32) ^ 0xF7DCEFDD) & MASK
        first = (
            (123456789 + low) & MASK,
            362436069 ^ low,
            (521288629 + high) & MASK,
            88675123 ^ high,
            (5783321 + low) & MASK,
        )
        bits = self._jump(sum(word << 32 * place for place, word in enumerate(first)), subsequence, 67)
        bits = self._jump(bits, row, 0)
        counter = 6615241 + high + low + 362437 * row
        found = []
        for _ in range(count):
            bits, counter = self._step(bits), counter + 362437
            found.append(((bits >> 128) + counter) & MASK)
        return found


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference()


@pytest.mark.parametrize("kind", [DEFAULT, XORWOW])
def test_the_numbers_are_nvidias(machine: Machine, kind: int) -> None:
    for name, arguments, dtype, wanted in NVIDIAS:
        with generator(machine, SEED, kind=kind) as xorwow:
            found = numbers(machine, xorwow, f"curandGenerate{name}", 20_000, dtype, *arguments)
        tolerance = 1e-6 if dtype is np.float32 else 1e-14
        np.testing.assert_allclose(found[list(PLACES)], wanted, rtol=tolerance, atol=tolerance)


def test_a_far_offset(machine: Machine) -> None:
    with generator(machine, SEED, 123456789012345, kind=XORWOW) as xorwow:
        found = numbers(machine, xorwow, "curandGenerate", 5000, np.uint32)
    assert found[[0, 1, 4999]].tolist() == [1464700995, 117606174, 1779320126]


@quickly
@given(
    seed=st.integers(0, 2**64 - 1),
    offset=st.integers(0, 2**63),
    count=st.integers(1, 3 * SUBSEQUENCES),
    place=st.integers(0, 3 * SUBSEQUENCES - 1),
)
def test_bits(machine: Machine, reference: Reference, seed: int, offset: int, count: int, place: int) -> None:
    with generator(machine, seed, offset, kind=XORWOW) as xorwow:
        found = numbers(machine, xorwow, "curandGenerate", count, np.uint32)
    for number in {0, place % count, count - 1}:
        row, subsequence = divmod(offset + number, SUBSEQUENCES)
        assert found[number] == reference.words(seed, subsequence, row, 1)[0]


def test_more_than_a_part(machine: Machine, reference: Reference) -> None:
    """What is computed in pieces side by side."""
    count = 2**20 + 12_345
    with generator(machine, 7, 100, kind=XORWOW) as xorwow:
        found = numbers(machine, xorwow, "curandGenerate", count, np.uint32)
    for subsequence in (0, 99, 100, 4095):
        first = 0 if subsequence >= 100 else 1
        mine = found[(subsequence - 100) % SUBSEQUENCES :: SUBSEQUENCES]
        assert mine.tolist() == reference.words(7, subsequence, first, len(mine))


@quickly
@given(
    counts=st.lists(st.integers(0, 6000).map(lambda half: 2 * half), min_size=1, max_size=4),
    which=st.integers(0, len(NVIDIAS) - 1),
)
def test_several_calls_go_on_with_one_sequence(machine: Machine, counts: list[int], which: int) -> None:
    name, arguments, dtype, _ = NVIDIAS[which]
    function = f"curandGenerate{name}"
    with generator(machine, 5, 1000, kind=XORWOW) as xorwow:
        parts = [numbers(machine, xorwow, function, count, dtype, *arguments) for count in counts]
    with generator(machine, 5, 1000, kind=XORWOW) as xorwow:
        whole = numbers(machine, xorwow, function, sum(counts), dtype, *arguments)
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_kinds_that_follow_each_other_as_nvidias_do(machine: Machine, reference: Reference) -> None:
    """Ten doubles of two words leave the other subsequences where they were, and the first ten go on with their third."""
    with generator(machine, 7, kind=XORWOW) as xorwow:
        numbers(machine, xorwow, "curandGenerateUniformDouble", 10, np.float64)
        found = numbers(machine, xorwow, "curandGenerate", SUBSEQUENCES, np.uint32)
    assert found[0] == reference.words(7, 10, 0, 1)[0]
    assert found[SUBSEQUENCES - 11] == reference.words(7, 4095, 0, 1)[0]
    assert found[SUBSEQUENCES - 10 :].tolist() == [reference.words(7, n, 2, 1)[0] for n in range(10)]


@quickly
@given(
    calls=st.lists(
        st.tuples(st.sampled_from([("", np.uint32), ("UniformDouble", np.float64)]), st.integers(1, 5000)),
        min_size=2,
        max_size=5,
    )
)
def test_no_word_is_used_twice(machine: Machine, calls: list[tuple[tuple[str, Any], int]]) -> None:
    """A double's lowest bits are those of its first word; the second word's lowest is above them."""
    seen: list[Array] = []
    with generator(machine, 3, kind=XORWOW) as xorwow:
        for (name, dtype), count in calls:
            found = numbers(machine, xorwow, f"curandGenerate{name}", count, dtype)
            if dtype is np.float64:
                bits = ((found - 2.0**-54) * 2.0**53).astype(np.uint64)
                seen.append((bits & np.uint64(0x1FFFFF)).astype(np.uint32))
            else:
                seen.append(found & np.uint32(0x1FFFFF))
    # Two words have the same 21 bits by chance; a run of them has not.
    runs = [tuple(part[at : at + 3].tolist()) for part in seen for at in range(len(part) - 2)]
    assert len(set(runs)) == len(runs)


def test_a_generator_of_host_memory_has_the_same_numbers(machine: Machine) -> None:
    made = machine.call(LIBRARY, "curandCreateGeneratorHost", out(8), integer(DEFAULT))
    assert made.status == SUCCESS
    host = pointer(made.number())
    first = machine.call(LIBRARY, "curandGenerate", host, out(400), wide(100))
    second = machine.call(LIBRARY, "curandGenerate", host, out(400), wide(100))
    with generator(machine, kind=DEFAULT) as device:
        wanted = numbers(machine, device, "curandGenerate", 200, np.uint32)
    for (start, end), answer in zip(pairwise((0, 100, 200)), (first, second), strict=True):
        assert answer.status == SUCCESS
        np.testing.assert_array_equal(np.frombuffer(answer.outputs[0], np.uint32), wanted[start:end])
    assert machine.call(LIBRARY, "curandDestroyGenerator", host).status == SUCCESS


def test_what_is_refused(machine: Machine) -> None:
    with generator(machine, kind=XORWOW) as xorwow:
        odd = machine.call(LIBRARY, "curandGenerateNormal", xorwow, pointer(256), wide(3), *STANDARD[0])
        assert odd.status == LENGTH_NOT_MULTIPLE
        seeded_one_by_one = machine.call(LIBRARY, "curandSetGeneratorOrdering", xorwow, integer(102))
        assert seeded_one_by_one.status == OUT_OF_RANGE
