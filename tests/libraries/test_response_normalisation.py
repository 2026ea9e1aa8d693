"""Local response normalisation of cuDNN and its gradient, against its definition and against differences of it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final, NamedTuple

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
    factor,
    handle,
    placed,
    random,
)
from tests.libraries.machine import Argument, Array, Machine, integer, pointer

DOUBLE: Final = np.dtype(np.float64)
ACROSS_CHANNELS: Final = 0
quickly = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


class Settings(NamedTuple):
    """What the descriptor says; ``alpha`` is divided by the window."""

    window: int = 5
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 2.0


def normalised(x: Array, of: Settings) -> Array:
    """A channel's window begins (window - 1) // 2 channels before it."""
    made = np.empty_like(x)
    before = (of.window - 1) // 2
    for channel in range(x.shape[1]):
        near = x[:, max(channel - before, 0) : channel - before + of.window]
        scale = of.k + of.alpha / of.window * (near**2).sum(1)
        made[:, channel] = x[:, channel] / scale**of.beta
    return made


def described(stack: ExitStack, machine: Machine, of: Settings) -> Argument:
    made = stack.enter_context(descriptor(machine, "LRN"))
    numbers = [("d", value) for value in of[1:]]
    done(machine, "cudnnSetLRNDescriptor", made, integer(of.window), *numbers)
    return made


shapes = st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 5), st.integers(1, 5))
windows = st.builds(
    Settings, st.integers(1, 16), st.floats(1e-3, 2), st.sampled_from([0.01, 0.5, 0.75, 2.0]), st.floats(0.5, 2),
)  # fmt: skip


@pytest.mark.parametrize("dtype", REAL_TYPES, ids=str)
@quickly
@given(
    shape=shapes, of=windows, forms=st.tuples(*[st.sampled_from([NCHW, NHWC])] * 2), deep=st.booleans(),
    beta=st.sampled_from([0.0, 0.5]),
)  # fmt: skip
def test_channels_are_divided_by_what_is_around_them(
    machine: Machine, dtype: np.dtype[np.generic], shape: tuple[int, ...], of: Settings, forms: tuple[int, int],
    deep: bool, beta: float,
) -> None:  # fmt: skip
    generator = np.random.default_rng(1)
    shape = (*shape[:2], 2, *shape[2:]) if deep else shape
    x, y = random(generator, shape, dtype), random(generator, shape, dtype)
    with ExitStack() as stack:
        cudnn, how = stack.enter_context(handle(machine)), described(stack, machine, of)
        at_x, at_y = (
            stack.enter_context(placed(machine, array, form))
            for array, form in zip((x, y), forms, strict=True)
        )
        done(
            machine, "cudnnLRNCrossChannelForward", cudnn, how, integer(ACROSS_CHANNELS), factor(2, dtype),
            at_x.descriptor, at_x.data, factor(beta, dtype), at_y.descriptor, at_y.data,
        )  # fmt: skip
        assert_close(at_y.result(), 2 * normalised(exact(x), of) + beta * exact(y), 2)


def gradient(
    machine: Machine, of: Settings, x: Array, dy: Array, dx: Array, form: int = NCHW, beta: float = 0
) -> Array:
    """What cudnnLRNCrossChannelBackward says, of its own forward results."""
    y, dtype = np.zeros_like(x), x.dtype
    with ExitStack() as stack:
        cudnn, how = stack.enter_context(handle(machine)), described(stack, machine, of)
        at_x, at_y, at_dy, at_dx = (
            stack.enter_context(placed(machine, array, form)) for array in (x, y, dy, dx)
        )
        one = factor(1, dtype)
        done(
            machine, "cudnnLRNCrossChannelForward", cudnn, how, integer(ACROSS_CHANNELS), one, at_x.descriptor,
            at_x.data, factor(0, dtype), at_y.descriptor, at_y.data,
        )  # fmt: skip
        done(
            machine, "cudnnLRNCrossChannelBackward", cudnn, how, integer(ACROSS_CHANNELS), one, at_y.descriptor,
            at_y.data, at_dy.descriptor, at_dy.data, at_x.descriptor, at_x.data, factor(beta, dtype),
            at_dx.descriptor, at_dx.data,
        )  # fmt: skip
        return at_dx.result()


@quickly
@given(shape=shapes, of=windows, form=st.sampled_from([NCHW, NHWC]), beta=st.sampled_from([0.0, 0.5]))
def test_the_gradient_is_what_differences_say(
    machine: Machine, shape: tuple[int, ...], of: Settings, form: int, beta: float
) -> None:
    generator = np.random.default_rng(2)
    x, dy, dx = (random(generator, shape, DOUBLE) for _ in range(3))
    found = gradient(machine, of, x, dy, dx, form, beta) - beta * dx
    for pick in generator.permutation(x.size)[:12]:
        at = np.unravel_index(pick, x.shape)
        small = np.zeros_like(x)
        small[at] = 1e-6
        difference = ((normalised(x + small, of) - normalised(x - small, of)) * dy).sum() / 2e-6
        np.testing.assert_allclose(found[at], difference, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("dtype", [dtype for dtype in REAL_TYPES if dtype != DOUBLE], ids=str)
def test_gradients_of_narrower_types_are_those_of_doubles(
    machine: Machine, dtype: np.dtype[np.generic]
) -> None:
    # More lines than one part has.
    shape = (3, 40, 30, 41)
    generator = np.random.default_rng(4)
    x, dy, dx = (random(generator, shape, dtype) for _ in range(3))
    of = Settings(alpha=0.5)
    wide = gradient(machine, of, *(exact(array) for array in (x, dy, dx)))
    assert_close(gradient(machine, of, x, dy, dx), wide, 4)


def test_wrong_arguments(machine: Machine) -> None:
    x = np.ones((2, 3, 4, 5), np.float32)
    with ExitStack() as stack:
        cudnn, how = stack.enter_context(handle(machine)), described(stack, machine, Settings())
        at_x, narrow, other, whole = (
            stack.enter_context(placed(machine, array))
            for array in (x, x.astype(np.float16), x[:, :2], x.astype(np.int32))
        )

        def forward(
            x: Placed = at_x, y: Placed = at_x, mode: int = ACROSS_CHANNELS, data: int | None = None
        ) -> int:
            place = x.data if data is None else pointer(data)
            factors = factor(1, x.array.dtype), factor(0, x.array.dtype)
            return call(
                machine, "cudnnLRNCrossChannelForward", cudnn, how, integer(mode), factors[0], x.descriptor, place,
                factors[1], y.descriptor, y.data,
            ).status  # fmt: skip

        assert forward() == SUCCESS
        assert forward(mode=1) == BAD_PARAM
        assert forward(y=narrow) == BAD_PARAM
        assert forward(y=other) == BAD_PARAM
        assert forward(data=0) == BAD_PARAM
        assert forward(whole, whole) == NOT_SUPPORTED
        for window, k, beta in ((0, 2.0, 0.75), (17, 2.0, 0.75), (5, 1e-6, 0.75), (5, 2.0, 0.001)):
            numbers = [("d", 1e-4), ("d", beta), ("d", k)]
            assert call(machine, "cudnnSetLRNDescriptor", how, integer(window), *numbers).status == BAD_PARAM


def test_a_result_outside_the_devices_memory_is_an_illegal_address(lone_machine: Machine) -> None:
    illegal_address = 700
    machine = lone_machine
    with ExitStack() as stack:
        cudnn, how = stack.enter_context(handle(machine)), described(stack, machine, Settings())
        at = stack.enter_context(placed(machine, np.ones((2, 3, 4, 5), np.float32)))
        done(
            machine, "cudnnLRNCrossChannelForward", cudnn, how, integer(ACROSS_CHANNELS), factor(1, at.array.dtype),
            at.descriptor, at.data, factor(0, at.array.dtype), at.descriptor, pointer(0x1000),
        )  # fmt: skip
        assert machine.synchronize() == illegal_address
