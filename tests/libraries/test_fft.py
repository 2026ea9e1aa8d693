"""cuFFT against scipy.fft: lengths, dimensions, layouts, kinds of numbers, in place and not, wrong arguments."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pytest
import scipy.fft
from gpupool.client.child_environment import software_gpu_environment
from gpupool.client.native import native_directory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.libraries.conftest import _machine
from tests.libraries.machine import Answer, Argument, Array, Machine, host, integer, out, pointer, wide

LIBRARY: Final = "libcufft.so.12"
SUCCESS, INVALID_PLAN, INVALID_TYPE, INVALID_VALUE, INVALID_SIZE, NOT_SUPPORTED = 0, 1, 3, 4, 8, 16
FORWARD, INVERSE = -1, 1
ILLEGAL_ADDRESS = 700


@dataclass(frozen=True)
class Kind:
    """What a plan's type means: the numbers before and after, and how it is executed."""

    number: int
    execute: str
    before: type[Any]
    after: type[Any]
    tolerance: float

    @property
    def is_complex(self) -> bool:
        return np.dtype(self.before).kind == np.dtype(self.after).kind


KINDS: Final = {
    "C2C": Kind(0x29, "cufftExecC2C", np.complex64, np.complex64, 1e-6),
    "R2C": Kind(0x2A, "cufftExecR2C", np.float32, np.complex64, 1e-6),
    "C2R": Kind(0x2C, "cufftExecC2R", np.complex64, np.float32, 1e-6),
    "Z2Z": Kind(0x69, "cufftExecZ2Z", np.complex128, np.complex128, 1e-14),
    "D2Z": Kind(0x6A, "cufftExecD2Z", np.float64, np.complex128, 1e-14),
    "Z2D": Kind(0x6C, "cufftExecZ2D", np.complex128, np.float64, 1e-14),
}
COMPLEX: Final = ("C2C", "Z2Z")
#: Powers of small primes, products of them, primes with a stage of their own, and primes that have none.
LENGTHS: Final = (
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    13,
    16,
    30,
    31,
    37,
    49,
    64,
    97,
    100,
    121,
    127,
    128,
    243,
    512,
    625,
    1000,
    1009,
    1024,
)

quickly = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
kinds = st.sampled_from(sorted(KINDS))
lengths = st.sampled_from(LENGTHS)
directions = st.sampled_from([FORWARD, INVERSE])


def call(machine: Machine, function: str, *arguments: Argument) -> Answer:
    return machine.call(LIBRARY, function, *arguments)


@contextmanager
def plan(machine: Machine, function: str, *arguments: Argument) -> Iterator[Argument]:
    """A plan that a function like cufftPlan1d makes."""
    made = call(machine, function, out(4), *arguments)
    assert made.status == SUCCESS
    handle = integer(made.number())
    try:
        yield handle
    finally:
        assert call(machine, "cufftDestroy", handle).status == SUCCESS


def execute(machine: Machine, handle: Argument, kind: Kind, source: int, target: int, direction: int) -> int:
    more = [integer(direction)] if kind.is_complex else []
    return call(machine, kind.execute, handle, pointer(source), pointer(target), *more).status


def random(generator: np.random.Generator, shape: Sequence[int], dtype: type[Any]) -> Array:
    numbers = generator.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        numbers = numbers + 1j * generator.standard_normal(shape)
    return numbers.astype(dtype)


def stored_shape(shape: Sequence[int], dtype: type[Any], kind: Kind) -> tuple[int, ...]:
    """Of the numbers of one side: complex ones of real numbers are half as many, and one."""
    halved = not kind.is_complex and np.dtype(dtype).kind == "c"
    return (*shape[:-1], shape[-1] // 2 + 1) if halved else tuple(shape)


def expected(kind: Kind, source: Array, shape: Sequence[int], direction: int) -> Array:
    """The transform over the last dimensions, without a factor, computed in double precision."""
    axes = tuple(range(-len(shape), 0))
    if not kind.is_complex:
        direction = FORWARD if np.dtype(kind.after).kind == "c" else INVERSE
    exact = source.astype(np.complex128 if source.dtype.kind == "c" else np.float64)
    if kind.is_complex:
        transform = scipy.fft.fftn if direction == FORWARD else scipy.fft.ifftn
        result = transform(exact, axes=axes)
    elif direction == FORWARD:
        result = scipy.fft.rfftn(exact, axes=axes)
    else:
        result = scipy.fft.irfftn(exact, shape, axes=axes)
    return np.asarray(result * (math.prod(shape) if direction == INVERSE else 1))


def assert_close(result: Array, wanted: Array, tolerance: float, numbers: int) -> None:
    difference = np.linalg.norm((result - wanted).ravel())
    assert difference <= tolerance * max(math.log2(numbers), 1) * np.linalg.norm(wanted.ravel())


def check_basic(
    machine: Machine,
    handle: Argument,
    kind: Kind,
    shape: Sequence[int],
    batch: int,
    direction: int,
    seed: int,
) -> None:
    """A plan without an advanced layout, from one place to another."""
    source = random(
        np.random.default_rng(seed), (batch, *stored_shape(shape, kind.before, kind)), kind.before
    )
    target = np.zeros((batch, *stored_shape(shape, kind.after, kind)), kind.after)
    with machine.arrays(source, target) as (at_source, at_target):
        assert execute(machine, handle, kind, at_source, at_target, direction) == SUCCESS
        result = machine.get(at_target, target)
    assert_close(result, expected(kind, source, shape, direction), kind.tolerance, math.prod(shape))


def check_in_place(
    machine: Machine,
    handle: Argument,
    kind: Kind,
    shape: Sequence[int],
    batch: int,
    direction: int,
    seed: int,
) -> None:
    """The same in one place: rows of real numbers are as long as those of the complex ones."""
    generator = np.random.default_rng(seed)
    source = random(generator, (batch, *stored_shape(shape, kind.before, kind)), kind.before)
    if kind.is_complex:
        room = source.copy()
    else:
        room = np.zeros(
            (batch, *shape[:-1], shape[-1] // 2 + 1),
            kind.after if kind.before in (np.float32, np.float64) else kind.before,
        )
        view = room if source.dtype.kind == "c" else room.view(kind.before)
        view[..., : source.shape[-1]] = source
    with machine.arrays(room) as (address,):
        assert execute(machine, handle, kind, address, address, direction) == SUCCESS
        result = machine.get(address, room).view(kind.after)
    wanted = expected(kind, source, shape, direction)
    assert_close(result[..., : wanted.shape[-1]], wanted, kind.tolerance, math.prod(shape))


@pytest.mark.parametrize("name", KINDS)
@quickly
@given(
    length=lengths,
    batch=st.integers(1, 20),
    direction=directions,
    in_place=st.booleans(),
    seed=st.integers(0, 99),
)
def test_lines_of_any_length(
    machine: Machine, name: str, length: int, batch: int, direction: int, in_place: bool, seed: int
) -> None:
    kind, check = KINDS[name], check_in_place if in_place else check_basic
    with plan(machine, "cufftPlan1d", integer(length), integer(kind.number), integer(batch)) as handle:
        check(machine, handle, kind, (length,), batch, direction, seed)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("length", [2053, 4096, 6561, 10007, 44100, 65536, 65537])
def test_a_long_line(machine: Machine, name: str, length: int) -> None:
    """Longer than several lines at once would stay in a cache."""
    kind = KINDS[name]
    with plan(machine, "cufftPlan1d", integer(length), integer(kind.number), integer(2)) as handle:
        check_basic(machine, handle, kind, (length,), 2, INVERSE, 1)
        check_in_place(machine, handle, kind, (length,), 2, FORWARD, 2)


def test_a_very_long_line(machine: Machine) -> None:
    kind, length = KINDS["C2C"], 1 << 20
    with plan(machine, "cufftPlan1d", integer(length), integer(kind.number), integer(1)) as handle:
        check_basic(machine, handle, kind, (length,), 1, FORWARD, 3)


@pytest.mark.parametrize("name", KINDS)
@quickly
@given(
    shape=st.lists(st.sampled_from([1, 2, 3, 5, 8, 12, 17, 37]), min_size=2, max_size=3),
    batch=st.integers(1, 3),
    direction=directions,
    in_place=st.booleans(),
    seed=st.integers(0, 99),
)
def test_several_dimensions(
    machine: Machine, name: str, shape: list[int], batch: int, direction: int, in_place: bool, seed: int
) -> None:
    kind, check = KINDS[name], check_in_place if in_place else check_basic
    many = (integer(len(shape)), host(np.array(shape, np.int32)), pointer(0), integer(1), integer(0), pointer(0), integer(1),
            integer(0), integer(kind.number), integer(batch))  # fmt: skip
    with plan(machine, "cufftPlanMany", *many) as handle:
        check(machine, handle, kind, shape, batch, direction, seed)


@pytest.mark.parametrize("shape", [(24, 30), (6, 10, 14)])
def test_two_and_three_dimensions_have_functions_of_their_own(
    machine: Machine, shape: tuple[int, ...]
) -> None:
    function = f"cufftPlan{len(shape)}d"
    for name in ("C2C", "D2Z"):
        kind = KINDS[name]
        with plan(machine, function, *(integer(n) for n in shape), integer(kind.number)) as handle:
            check_basic(machine, handle, kind, shape, 1, FORWARD, 4)


@st.composite
def layouts(draw: st.DrawFn, shape: tuple[int, ...], batch: int) -> tuple[list[int], int, int]:
    """Sizes that hold the shape, a stride and a distance: batches lie one behind another, or between each other."""
    embed = [n + draw(st.integers(0, 2)) for n in shape]
    if draw(st.booleans()):
        stride = batch + draw(st.integers(0, 1))
        return embed, stride, 1
    stride = draw(st.integers(1, 3))
    return embed, stride, math.prod(embed) * stride + draw(st.integers(0, 3))


def places(shape: Sequence[int], batch: int, layout: tuple[list[int], int, int]) -> Array:
    """Where each number lies, as the documentation of advanced data layouts says."""
    embed, stride, distance = layout
    indices = np.indices((batch, *shape))
    at = indices[1]
    for dimension in range(1, len(shape)):
        at = at * embed[dimension] + indices[dimension + 1]
    return np.asarray(at * stride + indices[0] * distance)


@pytest.mark.parametrize("wide_sizes", [False, True], ids=["int", "long"])
@quickly
@given(data=st.data(), name=kinds, shape=st.lists(st.sampled_from([1, 2, 5, 9, 16]), min_size=1, max_size=3),
       batch=st.integers(1, 10), direction=directions, seed=st.integers(0, 99))  # fmt: skip
def test_advanced_layouts(
    machine: Machine,
    wide_sizes: bool,
    data: st.DataObject,
    name: str,
    shape: list[int],
    batch: int,
    direction: int,
    seed: int,
) -> None:
    """What lies between the numbers is not touched."""
    kind = KINDS[name]
    before, after = stored_shape(shape, kind.before, kind), stored_shape(shape, kind.after, kind)
    source_layout, target_layout = data.draw(layouts(before, batch)), data.draw(layouts(after, batch))
    from_places, to_places = places(before, batch, source_layout), places(after, batch, target_layout)
    numbers = random(np.random.default_rng(seed), (batch, *before), kind.before)
    source, target = np.zeros(from_places.max() + 1, kind.before), np.full(to_places.max() + 1, 7, kind.after)
    source[from_places] = numbers
    one, kind_of_array = (wide, np.int64) if wide_sizes else (integer, np.int32)

    def layout(of: tuple[list[int], int, int]) -> tuple[Argument, ...]:
        return host(np.array(of[0], kind_of_array)), one(of[1]), one(of[2])

    made = call(machine, "cufftCreate", out(4))
    handle = integer(made.number())
    try:
        answer = call(
            machine, "cufftMakePlanMany64" if wide_sizes else "cufftMakePlanMany", handle, integer(len(shape)),
            host(np.array(shape, kind_of_array)), *layout(source_layout), *layout(target_layout), integer(kind.number),
            one(batch), out(8),
        )  # fmt: skip
        assert (answer.status, answer.number()) == (SUCCESS, 0)
        with machine.arrays(source, target) as (at_source, at_target):
            assert execute(machine, handle, kind, at_source, at_target, direction) == SUCCESS
            result = machine.get(at_target, target)
    finally:
        call(machine, "cufftDestroy", handle)
    assert_close(
        result[to_places], expected(kind, numbers, shape, direction), kind.tolerance, math.prod(shape)
    )
    between = np.ones(result.size, bool)
    between[to_places] = False
    assert np.all(result[between] == 7)


#: cudaDataType of real and complex numbers of each precision.
REAL_16, COMPLEX_16, REAL_32, COMPLEX_32, REAL_64, COMPLEX_64, COMPLEX_BF16 = 2, 6, 0, 4, 1, 5, 15


def make_of_types(machine: Machine, handle: Argument, length: int, types: tuple[int, int, int]) -> Answer:
    n = host(np.array([length], np.int64))
    return call(
        machine, "cufftXtMakePlanMany", handle, integer(1), n, pointer(0), wide(1), wide(0), integer(types[0]), pointer(0),
        wide(1), wide(0), integer(types[1]), wide(3), out(8), integer(types[2]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("types", "before", "after", "tolerance"),
    [
        ((COMPLEX_16, COMPLEX_16, COMPLEX_16), np.complex64, np.complex64, 1e-3),
        ((REAL_16, COMPLEX_16, COMPLEX_16), np.float32, np.complex64, 1e-3),
        ((COMPLEX_16, REAL_16, COMPLEX_16), np.complex64, np.float32, 1e-3),
        ((COMPLEX_32, COMPLEX_32, COMPLEX_32), np.complex64, np.complex64, 1e-6),
        ((REAL_64, COMPLEX_64, COMPLEX_64), np.float64, np.complex128, 1e-14),
    ],
)
def test_a_plan_of_types(
    machine: Machine, types: tuple[int, int, int], before: type[Any], after: type[Any], tolerance: float
) -> None:
    """Halves too, which are computed in single precision."""
    length, kind = 64, Kind(0, "", before, after, tolerance)
    source = random(np.random.default_rng(5), (3, *stored_shape((length,), before, kind)), before) / 8
    half = COMPLEX_16 in types

    def in_memory(array: Array) -> Array:
        parts = array.view(array.real.dtype)
        return parts.astype(np.float16) if half else parts

    stored = in_memory(source)
    source = stored.astype(np.float32 if half else stored.dtype).view(before)
    target = in_memory(np.zeros((3, *stored_shape((length,), after, kind)), after))
    handle = integer(call(machine, "cufftCreate", out(4)).number())
    assert make_of_types(machine, handle, length, types).status == SUCCESS
    with machine.arrays(stored, target) as (at_source, at_target):
        assert (
            call(
                machine, "cufftXtExec", handle, pointer(at_source), pointer(at_target), integer(FORWARD)
            ).status
            == SUCCESS
        )
        result = machine.get(at_target, target).astype(np.dtype(after).type(0).real.dtype).view(after)
    assert call(machine, "cufftDestroy", handle).status == SUCCESS
    assert_close(result, expected(kind, source, (length,), FORWARD), tolerance, length)


@pytest.mark.parametrize(
    "types", [(COMPLEX_BF16, COMPLEX_BF16, COMPLEX_BF16), (REAL_32, REAL_32, COMPLEX_32), (COMPLEX_32, COMPLEX_64, COMPLEX_64)]
)  # fmt: skip
def test_types_that_no_transform_has(machine: Machine, types: tuple[int, int, int]) -> None:
    handle = integer(call(machine, "cufftCreate", out(4)).number())
    assert make_of_types(machine, handle, 64, types).status == INVALID_TYPE
    call(machine, "cufftDestroy", handle)


def test_the_stream_of_a_plan_orders_its_transforms(machine: Machine) -> None:
    kind = KINDS["C2C"]
    source = random(np.random.default_rng(6), (1, 256), kind.before)
    stream = machine.driver("cuStreamCreate", out(8), integer(1)).number()
    with (
        plan(machine, "cufftPlan1d", integer(256), integer(kind.number), integer(1)) as handle,
        machine.arrays(source, source) as (there, back),
    ):
        assert call(machine, "cufftSetStream", handle, pointer(stream)).status == SUCCESS
        assert execute(machine, handle, kind, there, back, FORWARD) == SUCCESS
        assert execute(machine, handle, kind, back, there, INVERSE) == SUCCESS
        assert machine.driver("cuStreamSynchronize", pointer(stream)).status == 0
        result = machine.get(there, source)
    machine.driver("cuStreamDestroy_v2", pointer(stream))
    assert_close(result, source * 256, kind.tolerance, 256)


def test_few_transforms_need_a_work_area(machine: Machine) -> None:
    """Only few long lines of complex numbers, and it is as large as they are."""
    for length, number, batch, size in (
        (1000, 0x29, 4, 0), (1 << 18, 0x29, 2, 8 << 19), (1 << 18, 0x69, 1, 16 << 18), (1 << 18, 0x29, 64, 0),
        (65537, 0x29, 1, 0), (1 << 18, 0x2A, 1, 0),
    ):  # fmt: skip
        described = (integer(length), integer(number), integer(batch))
        estimate = call(machine, "cufftEstimate1d", *described, out(8))
        assert (estimate.status, estimate.number()) == (SUCCESS, size)
        with plan(machine, "cufftPlan1d", *described) as handle:
            answer = call(machine, "cufftGetSize", handle, out(8))
            assert (answer.status, answer.number()) == (SUCCESS, size)


@pytest.mark.parametrize("work", ["own", "given", "none"])
@pytest.mark.parametrize("name", COMPLEX)
@pytest.mark.parametrize("length", [1 << 16, 5**4 * 7 * 2**4, 2 * 43 * 1000])
def test_a_work_area_makes_no_difference(machine: Machine, name: str, length: int, work: str) -> None:
    """One that the plan allocates, one that the program gives, as PyTorch does, and none at all."""
    kind, batch = KINDS[name], 2
    handle = integer(call(machine, "cufftCreate", out(4)).number())
    if work != "own":
        assert call(machine, "cufftSetAutoAllocation", handle, integer(0)).status == SUCCESS
    made = call(
        machine, "cufftMakePlan1d", handle, integer(length), integer(kind.number), integer(batch), out(8)
    )
    assert made.status == SUCCESS
    with machine.arrays(np.zeros(max(made.number(), 1), np.uint8)) as (area,):
        if work == "given":
            assert call(machine, "cufftSetWorkArea", handle, pointer(area)).status == SUCCESS
        check_basic(machine, handle, kind, (length,), batch, FORWARD, 7)
        check_in_place(machine, handle, kind, (length,), batch, INVERSE, 8)
    assert call(machine, "cufftDestroy", handle).status == SUCCESS


@pytest.mark.parametrize(
    ("length", "number", "batch", "status"),
    [
        (0, 0x29, 1, INVALID_SIZE),
        (-4, 0x29, 1, INVALID_SIZE),
        (4, 0x29, 0, INVALID_SIZE),
        (4, 0x28, 1, INVALID_TYPE),
    ],
)
def test_a_plan_that_cannot_be_made(
    machine: Machine, length: int, number: int, batch: int, status: int
) -> None:
    assert (
        call(machine, "cufftPlan1d", out(4), integer(length), integer(number), integer(batch)).status
        == status
    )
    assert (
        call(machine, "cufftPlan1d", pointer(0), integer(4), integer(0x29), integer(1)).status
        == INVALID_VALUE
    )


@pytest.mark.parametrize("rank", [0, 4])
def test_dimensions_that_no_transform_has(machine: Machine, rank: int) -> None:
    arguments = (host(np.full(4, 2, np.int32)), pointer(0), integer(1), integer(1), pointer(0), integer(1), integer(1),
                 integer(0x29), integer(1))  # fmt: skip
    assert call(machine, "cufftPlanMany", out(4), integer(rank), *arguments).status == INVALID_VALUE


def test_a_plan_is_made_once_and_is_gone_when_it_is_destroyed(machine: Machine) -> None:
    handle = integer(call(machine, "cufftCreate", out(4)).number())
    kind = KINDS["C2C"]
    assert execute(machine, handle, kind, 256, 256, FORWARD) == INVALID_PLAN
    make = (integer(8), integer(0x29), integer(1), out(8))
    assert call(machine, "cufftMakePlan1d", handle, *make).status == SUCCESS
    assert call(machine, "cufftMakePlan1d", handle, *make).status == INVALID_PLAN
    assert call(machine, "cufftDestroy", handle).status == SUCCESS
    assert call(machine, "cufftDestroy", handle).status == INVALID_PLAN
    assert execute(machine, handle, kind, 256, 256, FORWARD) == INVALID_PLAN


def test_wrong_arguments_of_an_execution(machine: Machine) -> None:
    with plan(machine, "cufftPlan1d", integer(8), integer(0x29), integer(1)) as handle:
        assert execute(machine, handle, KINDS["R2C"], 256, 256, FORWARD) == INVALID_TYPE
        assert execute(machine, handle, KINDS["C2C"], 0, 256, FORWARD) == INVALID_VALUE
        assert execute(machine, handle, KINDS["C2C"], 256, 0, FORWARD) == INVALID_VALUE
        assert execute(machine, handle, KINDS["C2C"], 256, 256, 0) == INVALID_VALUE
    assert machine.synchronize() == 0


@pytest.mark.parametrize("name", ["libcufft.so.11", "libcufft.so.12"])
def test_several_gpus_and_callbacks_are_not_supported(machine: Machine, name: str) -> None:
    for function in ("cufftXtExecDescriptor", "cufftXtSetGPUs", "cufftXtSetCallback"):
        assert machine.call(name, function, integer(1), integer(1), pointer(0)).status == NOT_SUPPORTED
    version = machine.call(name, "cufftGetVersion", out(4))
    assert version.status == SUCCESS
    assert version.number() // 1000 == int(name.rpartition(".")[2])


def test_memory_that_is_none_ends_the_session_and_not_the_process() -> None:
    """As the illegal address of a kernel does."""
    if not (native_directory() / "libraries" / LIBRARY).exists():
        pytest.skip("the native parts are not built (make build)")
    with contextmanager(_machine)(software_gpu_environment(native_directory(), os.environ)) as machine:
        small = machine.put(np.zeros(8, np.complex64))
        made = call(machine, "cufftPlan1d", out(4), integer(1024), integer(0x29), integer(64))
        handle = integer(made.number())
        assert execute(machine, handle, KINDS["C2C"], 4096, small, FORWARD) == SUCCESS
        assert machine.synchronize() == ILLEGAL_ADDRESS
