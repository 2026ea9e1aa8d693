"""MRG32k3a of cuRAND: against NVIDIA's host generators, written down and where they are installed, and computed otherwise."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.libraries.curand import (
    BY_DEFAULT,
    LEGACY,
    LENGTH_NOT_MULTIPLE,
    LIBRARY,
    MRG32K3A,
    OUT_OF_RANGE,
    SEEDED,
    SUCCESS,
    generator,
    numbers,
)
from tests.libraries.machine import Argument, Array, Machine, integer, out, pointer, wide

#: How many subsequences take turns in an order. They are 2^76 words apart.
SUBSEQUENCES: Final = {BY_DEFAULT: 81920, LEGACY: 4096}
FIRST, SECOND = 4294967087, 4294944443
SINGLE: Final[tuple[Argument, ...]] = (("f", 0.0), ("f", 1.0))
DOUBLE: Final[tuple[Argument, ...]] = (("d", 0.0), ("d", 1.0))
#: A function, the arguments behind its count, and the type of its numbers.
FUNCTIONS: Final[tuple[tuple[str, tuple[Argument, ...], type[Any]], ...]] = (
    ("", (), np.uint32),
    ("Uniform", (), np.float32),
    ("UniformDouble", (), np.float64),
    ("Normal", SINGLE, np.float32),
    ("NormalDouble", DOUBLE, np.float64),
    ("LogNormal", SINGLE, np.float32),
    ("LogNormalDouble", DOUBLE, np.float64),
)

#: Written down from `curandCreateGeneratorHost` of cuRAND 10.4.0, which needs no device: the numbers of the first functions at
#: these places, by an order.
PLACES: Final = {
    BY_DEFAULT: (0, 1, 2, 81919, 81920, 81921, 163840, 169999),
    LEGACY: (0, 1, 2, 4095, 4096, 8191, 8192, 19999),
}
SEED: Final = 0x123456789ABCDEF
NVIDIAS: Final[dict[int, tuple[tuple[float, ...], ...]]] = {
    BY_DEFAULT: (
        (2301419841, 305418861, 4096992586, 3549527487, 2186294773, 2876556813, 3113353688, 3507394756),
        (
            0.5358410477638245, 0.07111086696386337, 0.9539054036140442, 0.8264387845993042,
            0.5090364217758179, 0.6697505712509155, 0.7248841524124146, 0.8166289925575256,
        ),
        (
            0.5358410631285008, 0.07111087019140178, 0.9539054209287822, 0.8264387696342783,
            0.5090364193051615, 0.6697505745053921, 0.7248841432157872, 0.8166289787449541,
        ),
        (
            -0.06339018791913986, -1.1152654886245728, -2.0132012367248535, -0.5560461282730103,
            0.41392946243286133, -0.3911454975605011, 0.8013047575950623, -2.048989772796631,
        ),
        (
            -0.06339011301552724, -1.115265468561816, -2.013201039854725, -0.5560458962780098,
            0.41392940404671497, -0.39114546217350454, 0.8013048058573095, -2.048989930227958,
        ),
        (
            0.9385771751403809, 0.32782822847366333, 0.1335604339838028, 0.5734720230102539,
            1.5127503871917725, 0.676281750202179, 2.2284467220306396, 0.12886501848697662,
        ),
    ),
    LEGACY: (
        (2301419841, 305418861, 4096992586, 1749469453, 2186294773, 3425811619, 3113353688, 1606423920),
        (
            0.5358410477638245, 0.07111086696386337, 0.9539054036140442, 0.40733009576797485,
            0.5090364217758179, 0.797633945941925, 0.7248841524124146, 0.37402471899986267,
        ),
        (
            0.5358410631285008, 0.07111087019140178, 0.9539054209287822, 0.4073300988255047,
            0.5090364193051615, 0.797633924452935, 0.7248841432157872, 0.374024715314425,
        ),
        (
            -0.06339018791913986, -1.1152654886245728, -2.0132012367248535, 1.7858836650848389,
            -0.9247187376022339, 0.3951649069786072, 0.8013047575950623, -0.6265078783035278,
        ),
        (
            -0.06339011301552724, -1.115265468561816, -2.013201039854725, 1.7858836251212367,
            -0.9247188736242463, 0.3951645276641672, 0.8013048058573095, -0.6265078552685888,
        ),
        (
            0.9385771751403809, 0.32782822847366333, 0.1335604339838028, 5.964848518371582,
            0.3966429531574249, 1.4846290349960327, 2.2284467220306396, 0.5344549417495728,
        ),
    ),
}  # fmt: skip

quickly = settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
orders = st.sampled_from(list(SUBSEQUENCES))
both_orders: Final = pytest.mark.parametrize("ordering", list(SUBSEQUENCES))
Rows = list[list[int]]


class Recurrence:
    """Three numbers a step, by powers of the matrix of one: as L'Ecuyer wrote it down."""

    def __init__(self, modulus: int, last_row: list[int]) -> None:
        self.modulus = modulus
        self._powers: list[Rows] = [[[0, 1, 0], [0, 0, 1], last_row]]
        while len(self._powers) < 76 + 17:
            last = self._powers[-1]
            columns = [self._apply(last, [row[place] for row in last]) for place in range(3)]
            self._powers.append([[column[place] for column in columns] for place in range(3)])

    def _apply(self, matrix: Rows, state: list[int]) -> list[int]:
        return [sum(a * b for a, b in zip(row, state, strict=True)) % self.modulus for row in matrix]

    def jump(self, state: list[int], count: int) -> list[int]:
        for bit in range(count.bit_length()):
            if count >> bit & 1:
                state = self._apply(self._powers[bit], state)
        return state


class Reference:
    """Numbers of single subsequences, from 1 to 4294967087."""

    def __init__(self) -> None:
        self._first = Recurrence(FIRST, [-810728, 1403580, 0])
        self._second = Recurrence(SECOND, [-1370589, 0, 527612])

    def numbers(self, seed: int, subsequence: int, row: int, count: int) -> list[int]:
        low, high = (seed & 0xFFFFFFFF) ^ 0x55555555, (seed >> 32) ^ 0xAAAAAAAA
        if seed == 0:
            low = high = 1
        before = (subsequence << 76) + row
        first = self._first.jump([12345 * word % FIRST for word in (low, high, low)], before)
        second = self._second.jump([12345 * word % SECOND for word in (high, low, high)], before)
        found = []
        for _ in range(count):
            first, second = self._first.jump(first, 1), self._second.jump(second, 1)
            found.append((first[2] - second[2] - 1) % FIRST + 1)
        return found

    def words(self, seed: int, subsequence: int, row: int, count: int) -> list[int]:
        """As `curandGenerate` has them."""
        return [stretched(number) for number in self.numbers(seed, subsequence, row, count)]


def stretched(number: int) -> int:
    return int(number * 1.000000048662) & 0xFFFFFFFF


def compare(found: Array, wanted: Array, name: str) -> None:
    """Equal, but where logarithms and sines are computed."""
    tolerance = 0.0
    if "Normal" in name:
        tolerance = 2e-6 if found.dtype == np.float32 else 1e-14
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference()


@both_orders
def test_the_numbers_are_nvidias(machine: Machine, ordering: int) -> None:
    places = list(PLACES[ordering])
    count = places[-1] + 1
    for (name, arguments, dtype), wanted in zip(FUNCTIONS, NVIDIAS[ordering], strict=False):
        with generator(machine, SEED, kind=MRG32K3A, ordering=ordering) as mrg:
            found = numbers(machine, mrg, f"curandGenerate{name}", count, dtype, *arguments)
        compare(found[places], np.array(wanted, dtype), name)


def test_a_far_offset(machine: Machine) -> None:
    with generator(machine, SEED, 123456789012345, kind=MRG32K3A) as mrg:
        found = numbers(machine, mrg, "curandGenerate", 5000, np.uint32)
    assert found[[0, 1, 4999]].tolist() == [877466982, 3342905339, 2446679139]


@quickly
@given(
    seed=st.one_of(st.just(0), st.integers(0, 2**64 - 1)),
    offset=st.integers(0, 2**63),
    count=st.integers(1, 10_000),
    place=st.integers(0, 9999),
    ordering=orders,
)
def test_bits(
    machine: Machine, reference: Reference, seed: int, offset: int, count: int, place: int, ordering: int
) -> None:
    with generator(machine, seed, offset, MRG32K3A, ordering) as mrg:
        found = numbers(machine, mrg, "curandGenerate", count, np.uint32)
    for number in {0, place % count, count - 1}:
        row, subsequence = divmod(offset + number, SUBSEQUENCES[ordering])
        assert found[number] == reference.words(seed, subsequence, row, 1)[0]


@quickly
@given(seed=st.integers(0, 2**64 - 1), offset=st.integers(0, 2**40), count=st.integers(1, 100))
def test_a_double_takes_one_word(
    machine: Machine, reference: Reference, seed: int, offset: int, count: int
) -> None:
    with generator(machine, seed, offset, MRG32K3A) as mrg:
        doubles = numbers(machine, mrg, "curandGenerateUniformDouble", count, np.float64)
    with generator(machine, seed, offset, MRG32K3A) as mrg:
        floats = numbers(machine, mrg, "curandGenerateUniform", count, np.float32)
    places = (divmod(offset + number, SUBSEQUENCES[BY_DEFAULT]) for number in range(count))
    wanted = np.array([reference.numbers(seed, subsequence, row, 1)[0] for row, subsequence in places])
    np.testing.assert_array_equal(doubles, wanted * (1 / FIRST))
    np.testing.assert_array_equal(floats, (wanted * (1 / FIRST)).astype(np.float32))


def test_a_seed_that_makes_all_states_zero(machine: Machine) -> None:
    """Then each number is the largest: as bits it would be 2^32, and is 0 on NVIDIA's host."""
    with generator(machine, 0xAAAAAAAA55555555, kind=MRG32K3A) as mrg:
        bits = numbers(machine, mrg, "curandGenerate", 3, np.uint32)
        uniform = numbers(machine, mrg, "curandGenerateUniform", 3, np.float32)
    assert bits.tolist() == [0, 0, 0]
    assert uniform.tolist() == [1, 1, 1]


def test_more_than_a_part(machine: Machine, reference: Reference) -> None:
    """What is computed in pieces side by side."""
    with generator(machine, 7, 100, kind=MRG32K3A) as mrg:
        found = numbers(machine, mrg, "curandGenerate", 2**20 + 12_345, np.uint32)
    whole = SUBSEQUENCES[BY_DEFAULT]
    for subsequence in (0, 99, 100, 81919):
        first = 0 if subsequence >= 100 else 1
        mine = found[(subsequence - 100) % whole :: whole]
        assert mine.tolist() == reference.words(7, subsequence, first, len(mine))


@quickly
@given(
    counts=st.lists(st.integers(0, 6000).map(lambda half: 2 * half), min_size=1, max_size=4),
    which=st.sampled_from(FUNCTIONS),
    ordering=orders,
)
def test_several_calls_go_on_with_one_sequence(
    machine: Machine, counts: list[int], which: tuple[str, tuple[Argument, ...], type[Any]], ordering: int
) -> None:
    name, arguments, dtype = which
    function = f"curandGenerate{name}"
    with generator(machine, 5, 1000, MRG32K3A, ordering) as mrg:
        parts = [numbers(machine, mrg, function, count, dtype, *arguments) for count in counts]
    with generator(machine, 5, 1000, MRG32K3A, ordering) as mrg:
        whole = numbers(machine, mrg, function, sum(counts), dtype, *arguments)
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize(
    ("name", "count", "arguments", "row"), [("UniformDouble", 10, (), 1), ("NormalDouble", 20, DOUBLE, 2)]
)
def test_kinds_that_follow_each_other_as_nvidias_do(
    machine: Machine, reference: Reference, name: str, count: int, arguments: tuple[Argument, ...], row: int
) -> None:
    """What ten subsequences have given leaves the others where they were."""
    whole = SUBSEQUENCES[LEGACY]
    with generator(machine, 7, kind=MRG32K3A, ordering=LEGACY) as mrg:
        numbers(machine, mrg, f"curandGenerate{name}", count, np.float64, *arguments)
        found = numbers(machine, mrg, "curandGenerate", whole, np.uint32)
    assert found[0] == reference.words(7, 10, 0, 1)[0]
    assert found[whole - 11] == reference.words(7, whole - 1, 0, 1)[0]
    assert found[whole - 10 :].tolist() == [reference.words(7, n, row, 1)[0] for n in range(10)]


def test_a_generator_of_host_memory_has_the_same_numbers(machine: Machine) -> None:
    made = machine.call(LIBRARY, "curandCreateGeneratorHost", out(8), integer(MRG32K3A))
    assert made.status == SUCCESS
    host = pointer(made.number())
    answer = machine.call(LIBRARY, "curandGenerate", host, out(400), wide(100))
    with generator(machine, kind=MRG32K3A) as device:
        wanted = numbers(machine, device, "curandGenerate", 100, np.uint32)
    assert answer.status == SUCCESS
    np.testing.assert_array_equal(np.frombuffer(answer.outputs[0], np.uint32), wanted)
    assert machine.call(LIBRARY, "curandDestroyGenerator", host).status == SUCCESS


def test_what_is_refused(machine: Machine) -> None:
    with generator(machine, kind=MRG32K3A) as mrg:
        odd = machine.call(LIBRARY, "curandGenerateNormal", mrg, pointer(256), wide(3), *SINGLE)
        assert odd.status == LENGTH_NOT_MULTIPLE
        seeded_one_by_one = machine.call(LIBRARY, "curandSetGeneratorOrdering", mrg, integer(SEEDED))
        assert seeded_one_by_one.status == OUT_OF_RANGE


class Nvidias:
    """NVIDIA's own library in this process. Its host generators need no device."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))

    def call(self, function: str, *arguments: Any) -> None:
        assert getattr(self._library, function)(*arguments) == SUCCESS, function

    def numbers(
        self,
        seed: int,
        offset: int,
        ordering: int,
        count: int,
        name: str,
        dtype: type[Any],
        arguments: tuple[Argument, ...],
    ) -> Array:
        mrg, found = ctypes.c_void_p(), np.zeros(count, dtype)
        types = {"f": ctypes.c_float, "d": ctypes.c_double}
        self.call("curandCreateGeneratorHost", ctypes.byref(mrg), MRG32K3A)
        self.call("curandSetPseudoRandomGeneratorSeed", mrg, ctypes.c_ulonglong(seed))
        self.call("curandSetGeneratorOffset", mrg, ctypes.c_ulonglong(offset))
        self.call("curandSetGeneratorOrdering", mrg, ordering)
        more = [types[kind](value) for kind, value in arguments]
        into = ctypes.c_void_p(found.ctypes.data)
        self.call(f"curandGenerate{name}", mrg, into, ctypes.c_size_t(count), *more)
        self.call("curandDestroyGenerator", mrg)
        return found


@pytest.fixture(scope="module")
def nvidias() -> Nvidias:
    """Of a wheel such as nvidia-curand."""
    package = importlib.util.find_spec("nvidia")
    folders = (package.submodule_search_locations or []) if package else []
    libraries = [found for folder in folders for found in sorted(Path(folder).glob(f"*/lib/{LIBRARY}"))]
    if not libraries:
        pytest.skip("NVIDIA's cuRAND is not installed (pip install nvidia-curand)")
    return Nvidias(libraries[0])


@both_orders
@pytest.mark.parametrize(("name", "arguments", "dtype"), FUNCTIONS)
def test_all_numbers_are_those_of_nvidias_library(
    machine: Machine,
    nvidias: Nvidias,
    ordering: int,
    name: str,
    arguments: tuple[Argument, ...],
    dtype: type[Any],
) -> None:
    whole = SUBSEQUENCES[ordering]
    for seed, offset in ((0, 0), (SEED, 5 * whole), (2**64 - 1, whole << 40)):
        count = 2 * whole + 1000
        with generator(machine, seed, offset, MRG32K3A, ordering) as mrg:
            found = numbers(machine, mrg, f"curandGenerate{name}", count, dtype, *arguments)
        compare(found, nvidias.numbers(seed, offset, ordering, count, name, dtype, arguments), name)
