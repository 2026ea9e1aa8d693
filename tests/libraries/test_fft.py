"""cuFFT against scipy.fft: lengths, dimensions, layouts, kinds of numbers, in place and not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.libraries.cufft import (
    FORWARD,
    INVERSE,
    KINDS,
    SUCCESS,
    assert_close,
    call,
    check_basic,
    check_in_place,
    execute,
    expected,
    plan,
    random,
    stored_shape,
)
from tests.libraries.machine import Argument, Array, Machine, host, integer, out, pointer, wide

#: Powers of small primes, products of them, primes with a stage of their own, and primes that have none.
LENGTHS: Final = (
    1, 2, 3, 4, 5, 7, 8, 13, 16, 30, 31, 37, 49, 64, 97, 100, 121, 127, 128, 243, 512, 625, 1000, 1009, 1024,
)  # fmt: skip

quickly = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
kinds = st.sampled_from(sorted(KINDS))
lengths = st.sampled_from(LENGTHS)
directions = st.sampled_from([FORWARD, INVERSE])


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
