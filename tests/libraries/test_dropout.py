"""Dropout of cuDNN: what is left out is random, said by a mask, and the same for the same states."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.libraries.cudnn import (
    BAD_PARAM,
    NCHW,
    NHWC,
    NOT_SUPPORTED,
    REAL_TYPES,
    SUCCESS,
    Placed,
    assert_close,
    call,
    descriptor,
    done,
    exact,
    handle,
    placed,
    random,
)
from tests.libraries.machine import Argument, Array, Machine, integer, out, pointer, wide
from tests.libraries.test_random import words

SINGLE: Final = np.dtype(np.float32)
NOWHERE: Final = pointer(0)
quickly = settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


class Dropout:
    """A handle with a dropout descriptor, whose states lie in device memory of their own."""

    def __init__(self, stack: ExitStack, machine: Machine, rate: float, seed: int = 7) -> None:
        self.machine, self.stack = machine, stack
        self.cudnn = stack.enter_context(handle(machine))
        self.descriptor = stack.enter_context(descriptor(machine, "Dropout"))
        self.bytes = done(machine, "cudnnDropoutGetStatesSize", self.cudnn, out(8)).number()
        [self.states] = stack.enter_context(machine.arrays(np.zeros(self.bytes, np.uint8)))
        self.set("cudnnSetDropoutDescriptor", rate, seed)

    def set(self, function: str, rate: float, seed: int) -> None:
        done(
            self.machine, function, self.descriptor, self.cudnn, ("f", rate), pointer(self.states), wide(self.bytes), wide(seed)
        )  # fmt: skip

    def reserve(self, x: Placed) -> tuple[Argument, Argument]:
        """Memory for the mask, and its size."""
        size = done(self.machine, "cudnnDropoutGetReserveSpaceSize", x.descriptor, out(8)).number()
        [address] = self.stack.enter_context(self.machine.arrays(np.zeros(size, np.uint8)))
        return pointer(address), wide(size)

    def forward(self, x: Placed, y: Placed, space: tuple[Argument, Argument] | None = None) -> Array:
        space = space or self.reserve(x)
        done(
            self.machine, "cudnnDropoutForward", self.cudnn, self.descriptor, x.descriptor, x.data, y.descriptor, y.data, *space
        )  # fmt: skip
        return y.result()


def kept(seed: int, position: int, count: int, rate: float) -> Array:
    """Which elements stay: the numbers of the seed's sequence say so, whatever computes them."""
    made: Array = words(seed, position, count).astype(np.uint64) >= np.uint64(rate * 2**32)
    return made


def place(stack: ExitStack, machine: Machine, *arrays: Array, form: int = NCHW) -> list[Placed]:
    return [stack.enter_context(placed(machine, array, form)) for array in arrays]


@pytest.mark.parametrize("dtype", REAL_TYPES, ids=str)
@quickly
@given(
    shape=st.lists(st.integers(1, 9), min_size=3, max_size=5).map(tuple), rate=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    forms=st.tuples(st.sampled_from([NCHW, NHWC]), st.sampled_from([NCHW, NHWC])), seed=st.integers(0, 2**62),
)  # fmt: skip
def test_what_is_kept_is_scaled_and_the_gradient_keeps_the_same(
    machine: Machine, dtype: np.dtype[np.generic], shape: tuple[int, ...], rate: float, forms: tuple[int, int], seed: int
) -> None:  # fmt: skip
    generator = np.random.default_rng(3)
    x = (1 + np.abs(exact(random(generator, shape, dtype)))).astype(dtype)  # no zeros but those of dropout
    y, dy, dx = (random(generator, shape, dtype) for _ in range(3))
    with ExitStack() as stack:
        of = Dropout(stack, machine, rate, seed)
        [at_x, at_dx] = place(stack, machine, x, dx, form=forms[0])
        [at_y, at_dy] = place(stack, machine, y, dy, form=forms[1])
        space = of.reserve(at_x)
        result = of.forward(at_x, at_y, space)
        mask = kept(seed, 0, x.size, rate).reshape(shape)
        scale = 1 / (1 - rate) if rate < 1 else 0
        assert_close(result, mask * exact(x) * scale)
        bits = np.packbits(mask.ravel(), bitorder="little")
        np.testing.assert_array_equal(machine.get(space[0][1], bits), bits)
        done(
            machine, "cudnnDropoutBackward", of.cudnn, of.descriptor, at_dy.descriptor, at_dy.data, at_dx.descriptor, at_dx.data,
            *space,
        )  # fmt: skip
        assert_close(at_dx.result(), mask * exact(dy) * scale)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_as_many_are_left_out_as_the_rate_says(machine: Machine, rate: float) -> None:
    # More elements than one part has, so that parts differ from each other too.
    x = np.ones((2, 5, 100, 90), SINGLE)
    with ExitStack() as stack:
        of = Dropout(stack, machine, rate)
        [at_x, at_y] = place(stack, machine, x, x)
        out_of = of.forward(at_x, at_y) == 0
    deviation = np.sqrt(rate * (1 - rate) / x.size)
    assert abs(out_of.mean() - rate) < 5 * deviation
    assert abs(out_of[0].mean() - rate) < 8 * deviation
    # Neighbours, and the elements of different parts, know nothing of each other.
    flat = out_of.ravel() - rate
    for distance in (1, 2, 3, 4, 8, 1 << 15):
        assert abs((flat[distance:] * flat[:-distance]).mean()) < 6 * rate * (1 - rate) / np.sqrt(
            x.size - distance
        )


def test_the_mask_is_that_of_the_seed_and_of_what_came_before(machine: Machine) -> None:
    x = np.ones((2, 3, 4, 41), SINGLE)
    with ExitStack() as stack:
        of, other = Dropout(stack, machine, 0.5, 11), Dropout(stack, machine, 0.5, 12)
        [at_x, at_y] = place(stack, machine, x, x)
        first, second = of.forward(at_x, at_y), of.forward(at_x, at_y)
        np.testing.assert_array_equal(first.ravel() != 0, kept(11, 0, x.size, 0.5))
        np.testing.assert_array_equal(second.ravel() != 0, kept(11, x.size, x.size, 0.5))
        assert (other.forward(at_x, at_y) != first).any()
        of.set("cudnnSetDropoutDescriptor", 0.5, 11)
        np.testing.assert_array_equal(of.forward(at_x, at_y), first)
        # What is restored goes on where the states in memory are.
        of.set("cudnnRestoreDropoutDescriptor", 0.5, 11)
        np.testing.assert_array_equal(of.forward(at_x, at_y), second)
        [rate, states, seed] = done(
            machine, "cudnnGetDropoutDescriptor", of.descriptor, of.cudnn, out(4), out(8), out(8)
        ).outputs
        assert np.frombuffer(rate, np.float32) == 0.5
        assert int.from_bytes(states, "little") == of.states
        assert int.from_bytes(seed, "little") == 11


def test_calls_after_each_other_use_numbers_after_each_other(machine: Machine) -> None:
    """One large call leaves out what two of its halves do: numbers are used once, and none is skipped."""
    half = np.ones((1, 2, 150, 150), SINGLE)  # more than one part
    whole = np.ones((2, 2, 150, 150), SINGLE)
    with ExitStack() as stack:
        of = Dropout(stack, machine, 0.5, 5)
        [at_half, at_y, at_whole, at_z] = place(stack, machine, half, half, whole, whole)
        halves = [of.forward(at_half, at_y), of.forward(at_half, at_y)]
        of.set("cudnnSetDropoutDescriptor", 0.5, 5)
        np.testing.assert_array_equal(of.forward(at_whole, at_z), np.concatenate(halves))


def test_a_captured_call_goes_on_with_the_numbers(machine: Machine) -> None:
    """Each launch of the graph uses numbers that nothing used before."""
    x = np.ones((2, 3, 4, 40), SINGLE)
    with ExitStack() as stack:
        of = Dropout(stack, machine, 0.5, 9)
        [at_x, at_y] = place(stack, machine, x, x)
        own = pointer(machine.driver("cuStreamCreate", out(8), integer(1)).number())
        assert machine.synchronize() == 0
        done(machine, "cudnnSetStream", of.cudnn, own)
        space = of.reserve(at_x)
        assert machine.driver("cuStreamBeginCapture_v2", own, integer(0)).status == 0
        arguments = [of.descriptor, at_x.descriptor, at_x.data, at_y.descriptor, at_y.data, *space]
        done(machine, "cudnnDropoutForward", of.cudnn, *arguments)
        graph = machine.driver("cuStreamEndCapture", own, out(8))
        assert graph.status == 0
        runnable = machine.driver("cuGraphInstantiateWithFlags", out(8), pointer(graph.number()), wide(0))
        assert runnable.status == 0
        for number in range(3):
            assert machine.driver("cuGraphLaunch", pointer(runnable.number()), own).status == 0
            assert machine.driver("cuStreamSynchronize", own).status == 0
            np.testing.assert_array_equal(at_y.result().ravel() != 0, kept(9, number * x.size, x.size, 0.5))
        machine.driver("cuGraphExecDestroy", pointer(runnable.number()))
        machine.driver("cuGraphDestroy", pointer(graph.number()))
        done(machine, "cudnnSetStream", of.cudnn, pointer(0))
        machine.driver("cuStreamDestroy_v2", own)


def test_wrong_arguments(machine: Machine) -> None:
    x = np.ones((2, 3, 4, 5), SINGLE)
    with ExitStack() as stack:
        of = Dropout(stack, machine, 0.5)
        [at_x, other, narrow, whole] = place(
            stack, machine, x, x[..., :4], x.astype(np.float16), x.astype(np.int32)
        )
        space, size = of.reserve(at_x)

        def set_to(rate: float, states: Argument = NOWHERE, size: int = 0) -> int:
            function = "cudnnSetDropoutDescriptor"
            return call(
                machine, function, of.descriptor, of.cudnn, ("f", rate), states, wide(size), wide(1)
            ).status

        def forward(x: Placed, y: Placed, space: Argument = space, size: Argument = size) -> int:
            arguments = [of.descriptor, x.descriptor, x.data, y.descriptor, y.data, space, size]
            return call(machine, "cudnnDropoutForward", of.cudnn, *arguments).status

        for rate in (-0.1, 1.5, float("nan")):
            assert set_to(rate) == BAD_PARAM
        assert set_to(0.5, pointer(of.states), of.bytes - 1) == BAD_PARAM
        assert forward(at_x, other) == BAD_PARAM
        assert forward(at_x, narrow) == BAD_PARAM
        assert forward(at_x, at_x, NOWHERE) == BAD_PARAM
        assert forward(at_x, at_x, size=wide(1)) == BAD_PARAM
        assert forward(whole, whole) == NOT_SUPPORTED
        # Without states there are no random numbers, and none are needed where nothing is left out.
        assert set_to(0.5) == SUCCESS
        assert forward(at_x, at_x) == BAD_PARAM
        assert set_to(0) == SUCCESS
        assert forward(at_x, at_x) == SUCCESS
        np.testing.assert_array_equal(at_x.result(), x)


def test_a_mask_outside_the_devices_memory_is_an_illegal_address(lone_machine: Machine) -> None:
    illegal_address = 700
    with ExitStack() as stack:
        of = Dropout(stack, lone_machine, 0.5)
        [at] = place(stack, lone_machine, np.ones((2, 3, 4, 5), SINGLE))
        arguments = [at.descriptor, at.data, at.descriptor, at.data, pointer(0x1000), wide(1 << 10)]
        done(lone_machine, "cudnnDropoutForward", of.cudnn, of.descriptor, *arguments)
        assert lone_machine.synchronize() == illegal_address
