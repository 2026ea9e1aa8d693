"""cuRAND's quasi-random numbers: Sobol's of one dimension, against SciPy's and against some of NVIDIA's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.libraries.curand import (
    LIBRARY,
    OUT_OF_RANGE,
    SOBOL32,
    SOBOL64,
    SUCCESS,
    TYPE_ERROR,
    numbers,
    signed,
)
from tests.libraries.machine import Argument, Array, Machine, integer, out, pointer, wide

MEAN, DEVIATION = 3.0, 0.5
#: The function of words and their type, by a generator.
WORDS: Final[dict[int, tuple[str, type[Any]]]] = {
    SOBOL32: ("curandGenerate", np.uint32),
    SOBOL64: ("curandGenerateLongLong", np.uint64),
}
both: Final = pytest.mark.parametrize("kind", list(WORDS))

#: Written down from `curandCreateGeneratorHost` of cuRAND 10.3.5: numbers 0, 1, 2 and 5 of a mean of 0 and a deviation of 1.
NVIDIAS: Final[dict[int, dict[str, tuple[float, ...]]]] = {
    SOBOL32: {
        "Uniform": (1.1641532e-10, 0.5, 0.75, 0.875),
        "UniformDouble": (2.0**-32, 0.5 + 2.0**-32, 0.75 + 2.0**-32, 0.875 + 2.0**-32),
        "Normal": (-6.3379574, 0.0, 0.67448974, 1.1503494),
        "NormalDouble": (-6.33795775, 2.91809937e-10, 0.674489751, 1.15034938),
    },
    SOBOL64: {
        "Uniform": (1.1641532e-10, 0.5, 0.75, 0.875),
        "UniformDouble": (2.0**-54, 0.5, 0.75, 0.875),
        "Normal": (-6.3379574, 0.0, 0.67448974, 1.1503494),
        "NormalDouble": (-8.29236108, 0.0, 0.674489750, 1.15034938),
    },
}

quickly = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@contextmanager
def quasi(machine: Machine, kind: int, offset: int = 0) -> Iterator[Argument]:
    """A generator on the device."""
    made = machine.call(LIBRARY, "curandCreateGenerator", out(8), integer(kind))
    assert made.status == SUCCESS
    argument = pointer(made.number())
    try:
        if offset:
            offered = machine.call(LIBRARY, "curandSetGeneratorOffset", argument, wide(signed(offset)))
            assert offered.status == SUCCESS
        yield argument
    finally:
        assert machine.call(LIBRARY, "curandDestroyGenerator", argument).status == SUCCESS


def made(machine: Machine, kind: int, offset: int, count: int, function: str, dtype: type[Any]) -> Array:
    passed = "d" if "Double" in function else "f"
    more = [(passed, MEAN), (passed, DEVIATION)] if "Normal" in function else []
    with quasi(machine, kind, offset) as of:
        return numbers(machine, of, f"curandGenerate{function}", count, dtype, *more)


def words(machine: Machine, kind: int, offset: int, count: int) -> Array:
    function, dtype = WORDS[kind]
    with quasi(machine, kind, offset) as of:
        return numbers(machine, of, function, count, dtype)


def scipys(bits: int, first: int, count: int) -> Array:
    """SciPy's numbers. It makes a power of 2 of them, and of 64 bits it can't leave some out."""
    from scipy.stats import qmc  # takes most of a second, which each process of a test run would spend

    made: Array = qmc.Sobol(1, scramble=False, bits=bits).random_base2((first + count).bit_length())
    return made[first : first + count, 0]


@both
@quickly
@given(offset=st.integers(0, 2**18), count=st.integers(1, 3000))
def test_the_words_are_scipys(machine: Machine, kind: int, offset: int, count: int) -> None:
    bits = 32 if kind == SOBOL32 else 64
    found = words(machine, kind, offset, count).astype(np.float64) * 2.0**-bits
    np.testing.assert_array_equal(found, scipys(bits, offset, count))


@both
@pytest.mark.parametrize("offset", [0, 2**32 - 3, 2**63])
def test_more_than_a_part_by_the_definition(machine: Machine, kind: int, offset: int) -> None:
    """Each number's bits in Gray's code, the last one first. They repeat after all words."""
    count, bits = 2**16 + 100, 32 if kind == SOBOL32 else 64
    found = words(machine, kind, offset, count)
    for place in (0, 1, 2, 3, 2**16 - 1, 2**16, count - 1):
        number = (offset + place) % 2**bits
        assert found[place] == int(f"{number ^ number >> 1:0{bits}b}"[::-1], 2)


@both
@pytest.mark.parametrize("name", ["Uniform", "UniformDouble", "Normal", "NormalDouble"])
def test_numbers_are_nvidias(machine: Machine, kind: int, name: str) -> None:
    dtype: type[Any] = np.float64 if "Double" in name else np.float32
    found = made(machine, kind, 0, 6, name, dtype)[[0, 1, 2, 5]].astype(np.float64)
    if "Normal" in name:
        found = (found - MEAN) / DEVIATION
    tolerance = 1e-6 if dtype is np.float32 else 1e-8
    np.testing.assert_allclose(found, NVIDIAS[kind][name], rtol=tolerance, atol=tolerance / 10)


@both
@quickly
@given(offset=st.one_of(st.integers(0, 2**20), st.integers(0, 2**64 - 1)), count=st.integers(1, 300))
def test_values_of_words(machine: Machine, kind: int, offset: int, count: int) -> None:
    from scipy import special

    bits = words(machine, kind, offset, count)
    top = bits.astype(np.uint64) >> np.uint64(0 if kind == SOBOL32 else 32)
    single = top.astype(np.float32) * np.float32(2**-32) + np.float32(2**-33)
    double = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54
    centred = double
    if kind == SOBOL32:
        double, centred = ((bits + np.float64(1 - shift)) * 2.0**-32 for shift in (0, 0.5))
    np.testing.assert_array_equal(made(machine, kind, offset, count, "Uniform", np.float32), single)
    np.testing.assert_array_equal(made(machine, kind, offset, count, "UniformDouble", np.float64), double)
    for suffix, dtype, uniform, tolerance in (
        ("", np.float32, top * 2.0**-32 + 2.0**-33, 1e-5),
        ("Double", np.float64, centred, 1e-9),
    ):
        normal = special.ndtri(uniform) * DEVIATION + MEAN
        for name, wanted in (("Normal", normal), ("LogNormal", np.exp(normal))):
            found = made(machine, kind, offset, count, name + suffix, dtype)
            np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@both
def test_several_calls_go_on_and_an_offset_begins_anew(machine: Machine, kind: int) -> None:
    function, dtype = WORDS[kind]
    wanted = words(machine, kind, 0, 20)
    with quasi(machine, kind) as of:
        parts = [numbers(machine, of, function, 3, dtype)]
        uniform = numbers(machine, of, "curandGenerateUniform", 4, np.float32)
        # Neither of these moves it.
        for setting, value in (
            ("curandSetQuasiRandomGeneratorDimensions", 1),
            ("curandSetGeneratorOrdering", 201),
        ):
            assert machine.call(LIBRARY, setting, of, integer(value)).status == SUCCESS
        parts.append(numbers(machine, of, function, 5, dtype))
        assert machine.call(LIBRARY, "curandSetGeneratorOffset", of, wide(2)).status == SUCCESS
        again = numbers(machine, of, function, 4, dtype)
    np.testing.assert_array_equal(np.concatenate(parts), np.concatenate([wanted[:3], wanted[7:12]]))
    np.testing.assert_array_equal(again, wanted[2:6])
    np.testing.assert_array_equal(uniform, made(machine, kind, 3, 4, "Uniform", np.float32))


@both
def test_a_generator_of_host_memory_has_the_same_numbers(machine: Machine, kind: int) -> None:
    function, dtype = WORDS[kind]
    created = machine.call(LIBRARY, "curandCreateGeneratorHost", out(8), integer(kind))
    assert created.status == SUCCESS
    of = pointer(created.number())
    answer = machine.call(LIBRARY, function, of, out(100 * np.dtype(dtype).itemsize), wide(100))
    assert answer.status == SUCCESS
    np.testing.assert_array_equal(np.frombuffer(answer.outputs[0], dtype), words(machine, kind, 0, 100))
    assert machine.call(LIBRARY, "curandDestroyGenerator", of).status == SUCCESS


def test_the_default_one_is_of_32_bits(machine: Machine) -> None:
    by_default = 200
    with quasi(machine, by_default) as of:
        found = numbers(machine, of, "curandGenerate", 9, np.uint32)
    np.testing.assert_array_equal(found, words(machine, SOBOL32, 0, 9))


@both
def test_what_is_refused(machine: Machine, kind: int) -> None:
    other = SOBOL64 if kind == SOBOL32 else SOBOL32
    calls: tuple[tuple[str, tuple[Argument, ...], int], ...] = (
        (WORDS[other][0], (pointer(256), wide(2)), TYPE_ERROR),
        ("curandSetPseudoRandomGeneratorSeed", (wide(1),), TYPE_ERROR),
        ("curandSetGeneratorOrdering", (integer(100),), OUT_OF_RANGE),
        ("curandSetQuasiRandomGeneratorDimensions", (integer(0),), OUT_OF_RANGE),
        ("curandSetQuasiRandomGeneratorDimensions", (integer(2),), OUT_OF_RANGE),
        ("curandSetQuasiRandomGeneratorDimensions", (integer(20_001),), OUT_OF_RANGE),
    )
    with quasi(machine, kind) as of:
        for function, arguments, status in calls:
            assert machine.call(LIBRARY, function, of, *arguments).status == status, function
        odd = numbers(machine, of, "curandGenerateNormal", 3, np.float32, ("f", 0.0), ("f", 1.0))
    assert np.isfinite(odd).all()
    assert machine.synchronize() == 0
