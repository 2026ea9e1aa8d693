"""Pooling and softmax of cuDNN, with their gradients, against numpy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.libraries.cudnn import (
    BAD_PARAM,
    NCHW,
    NHWC,
    REAL_TYPES,
    Placed,
    assert_close,
    call,
    descriptor,
    done,
    exact,
    factor,
    handle,
    integers,
    placed,
    random,
)
from tests.libraries.machine import Argument, Array, Machine, integer, out

MAXIMUM, WITH_PADDING, AVERAGE, DETERMINISTIC = range(4)
quickly = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
formats = st.sampled_from([NCHW, NHWC])
Window = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def place(stack: ExitStack, machine: Machine, form: int, *arrays: Array) -> list[Placed]:
    return [stack.enter_context(placed(machine, array, form)) for array in arrays]


@st.composite
def pools(draw: st.DrawFn) -> tuple[tuple[int, ...], Window]:
    """A shape, and window, padding and stride that fit."""
    space = draw(st.sampled_from([2, 2, 3]))
    some = st.lists(st.integers(1, 4), min_size=space, max_size=space)
    window, stride = tuple(draw(some)), tuple(draw(some))
    padding = tuple(draw(st.integers(0, (size - 1) // 2)) for size in window)
    more = draw(st.lists(st.integers(0, 5), min_size=space, max_size=space))
    size = (max(1, taps - 2 * pad) + extra for taps, pad, extra in zip(window, padding, more, strict=True))
    return (draw(st.integers(1, 3)), draw(st.integers(1, 4)), *size), (window, padding, stride)


def results_of(shape: tuple[int, ...], of: Window) -> tuple[int, ...]:
    """How many results there are of windows that do not go beyond the padding."""
    return tuple(
        (size + 2 * pad - taps) // step + 1 for size, taps, pad, step in zip(shape[2:], *of, strict=True)
    )


def windows(
    shape: tuple[int, ...], of: Window, counts: tuple[int, ...]
) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Each result's place, and the part of the input that its window covers."""
    for place_ in np.ndindex(*counts):
        part = tuple(
            slice(max(at * step - pad, 0), min(at * step - pad + taps, size))
            for at, taps, pad, step, size in zip(place_, *of, shape[2:], strict=True)
        )
        yield (slice(None), slice(None), *place_), (slice(None), slice(None), *part)


def pooled(x: Array, of: Window, mode: int, counts: tuple[int, ...]) -> Array:
    made = np.zeros((*x.shape[:2], *counts))
    for result, part in windows(x.shape, of, counts):
        values = x[part].reshape(*x.shape[:2], -1)
        if mode in {MAXIMUM, DETERMINISTIC}:
            made[result] = values.max(2)
        else:
            made[result] = values.sum(2) / (np.prod(of[0]) if mode == WITH_PADDING else values.shape[2])
    return made


def unpooled(x: Array, dy: Array, of: Window, mode: int) -> Array:
    made = np.zeros(x.shape)
    for result, part in windows(x.shape, of, dy.shape[2:]):
        values = x[part].reshape(*x.shape[:2], -1)
        if mode in {MAXIMUM, DETERMINISTIC}:
            share = np.arange(values.shape[2]) == values.argmax(2)[..., None]
        else:
            share = np.full(values.shape, 1 / (np.prod(of[0]) if mode == WITH_PADDING else values.shape[2]))
        made[part] += (share * dy[result][..., None]).reshape(made[part].shape)
    return made


def described(stack: ExitStack, machine: Machine, of: Window, mode: int) -> Argument:
    made = stack.enter_context(descriptor(machine, "Pooling"))
    lists = [integers(values) for values in of]
    done(machine, "cudnnSetPoolingNdDescriptor", made, integer(mode), integer(1), integer(len(of[0])), *lists)
    return made


@pytest.mark.parametrize("mode", [MAXIMUM, WITH_PADDING, AVERAGE, DETERMINISTIC])
@pytest.mark.parametrize("dtype", REAL_TYPES, ids=str)
@quickly
@given(problem=pools(), form=formats, beta=st.sampled_from([0.0, 0.5]))
def test_pooling_and_its_gradient(
    machine: Machine,
    mode: int,
    dtype: np.dtype[np.generic],
    problem: tuple[tuple[int, ...], Window],
    form: int,
    beta: float,
) -> None:
    shape, of = problem
    generator = np.random.default_rng(1)
    x, dx = random(generator, shape, dtype), random(generator, shape, dtype)
    wanted = pooled(exact(x), of, mode, results_of(shape, of))
    y, dy = random(generator, wanted.shape, dtype), random(generator, wanted.shape, dtype)
    with ExitStack() as stack:
        cudnn, pooling = stack.enter_context(handle(machine)), described(stack, machine, of, mode)
        at_x, at_dx, at_y, at_dy = place(stack, machine, form, x, dx, y, dy)
        dims = len(shape)
        answer = done(
            machine,
            "cudnnGetPoolingNdForwardOutputDim",
            pooling,
            at_x.descriptor,
            integer(dims),
            out(4 * dims),
        )
        assert tuple(np.frombuffer(answer.outputs[0], np.int32)) == wanted.shape
        alpha, weight = factor(2, dtype), factor(beta, dtype)
        done(
            machine, "cudnnPoolingForward", cudnn, pooling, alpha, at_x.descriptor, at_x.data, weight, at_y.descriptor,
            at_y.data,
        )  # fmt: skip
        assert_close(at_y.result(), 2 * wanted + beta * exact(y), 8)
        done(
            machine, "cudnnPoolingBackward", cudnn, pooling, alpha, at_y.descriptor, at_y.data, at_dy.descriptor,
            at_dy.data, at_x.descriptor, at_x.data, weight, at_dx.descriptor, at_dx.data,
        )  # fmt: skip
        assert_close(at_dx.result(), 2 * unpooled(exact(x), exact(dy), of, mode) + beta * exact(dx), 20)


@pytest.mark.parametrize("mode", [MAXIMUM, WITH_PADDING, AVERAGE])
def test_pooling_beyond_the_end(machine: Machine, mode: int) -> None:
    """One padding more behind the input than before it: TensorFlow's "SAME" asks for it so."""
    generator = np.random.default_rng(3)
    of, dtype = ((2, 3), (0, 0), (2, 2)), np.dtype(np.float32)
    x, y, dy, dx = (random(generator, (2, 3, *size), dtype) for size in ((5, 6), (3, 3), (3, 3), (5, 6)))
    wanted = pooled(exact(x), of, mode, (3, 3))
    with ExitStack() as stack:
        cudnn, pooling = stack.enter_context(handle(machine)), described(stack, machine, of, mode)
        at_x, at_dx, at_y, at_dy = place(stack, machine, NHWC, x, dx, y, dy)
        one, zero = factor(1, dtype), factor(0, dtype)
        done(
            machine, "cudnnPoolingForward", cudnn, pooling, one, at_x.descriptor, at_x.data, zero, at_y.descriptor,
            at_y.data,
        )  # fmt: skip
        assert_close(at_y.result(), wanted, 8)
        done(
            machine, "cudnnPoolingBackward", cudnn, pooling, one, at_y.descriptor, at_y.data, at_dy.descriptor,
            at_dy.data, at_x.descriptor, at_x.data, zero, at_dx.descriptor, at_dx.data,
        )  # fmt: skip
        assert_close(at_dx.result(), unpooled(exact(x), exact(dy), of, mode), 20)


def test_pooling_that_does_not_fit(machine: Machine) -> None:
    with ExitStack() as stack:
        cudnn, pooling = (
            stack.enter_context(handle(machine)),
            described(stack, machine, ((2, 2), (0, 0), (2, 2)), MAXIMUM),
        )
        at_x, at_y = place(
            stack, machine, NCHW, np.zeros((1, 2, 4, 4), np.float32), np.zeros((1, 2, 2, 3), np.float32)
        )
        one = factor(1, np.dtype(np.float32))
        arguments = [one, at_x.descriptor, at_x.data, one, at_y.descriptor, at_y.data]
        assert call(machine, "cudnnPoolingForward", cudnn, pooling, *arguments).status == BAD_PARAM


FAST, ACCURATE, LOGARITHM = range(3)


@pytest.mark.parametrize("algorithm", [FAST, ACCURATE, LOGARITHM])
@pytest.mark.parametrize("dtype", REAL_TYPES, ids=str)
@quickly
@given(
    shape=st.lists(st.integers(1, 7), min_size=4, max_size=5).map(tuple), instance=st.booleans(), form=formats,
    beta=st.sampled_from([0.0, 0.5]), shift=st.sampled_from([0.0, 50.0]),
)  # fmt: skip
def test_softmax_and_its_gradient(
    machine: Machine, algorithm: int, dtype: np.dtype[np.generic], shape: tuple[int, ...], instance: bool, form: int,
    beta: float, shift: float,
) -> None:  # fmt: skip
    generator = np.random.default_rng(2)
    x, y, dy, dx = (random(generator, shape, dtype) for _ in range(4))
    x = (exact(x) + shift).astype(dtype)
    axes = tuple(range(1, len(shape))) if instance else (1,)
    wide = exact(x) - exact(x).max(axes, keepdims=True)
    wanted = np.exp(wide) / np.exp(wide).sum(axes, keepdims=True)
    if algorithm == LOGARITHM:
        wanted = wide - np.log(np.exp(wide).sum(axes, keepdims=True))
    with ExitStack() as stack:
        cudnn = stack.enter_context(handle(machine))
        at_x, at_y, at_dy, at_dx = place(stack, machine, form, x, y, dy, dx)
        [at_result] = place(stack, machine, form, wanted.astype(dtype))
        of = [integer(algorithm), integer(0 if instance else 1), factor(2, dtype)]
        weight = factor(beta, dtype)
        done(
            machine,
            "cudnnSoftmaxForward",
            cudnn,
            *of,
            at_x.descriptor,
            at_x.data,
            weight,
            at_y.descriptor,
            at_y.data,
        )
        assert_close(at_y.result(), 2 * wanted + beta * exact(y), 4)
        done(
            machine, "cudnnSoftmaxBackward", cudnn, *of, at_result.descriptor, at_result.data, at_dy.descriptor,
            at_dy.data, weight, at_dx.descriptor, at_dx.data,
        )  # fmt: skip
        result = at_dx.result()
    rounded = exact(wanted.astype(dtype))
    if algorithm == LOGARITHM:
        made = exact(dy) - np.exp(rounded) * exact(dy).sum(axes, keepdims=True)
    else:
        made = rounded * (exact(dy) - (rounded * exact(dy)).sum(axes, keepdims=True))
    assert_close(result, 2 * made + beta * exact(dx), 20)


def test_an_unknown_algorithm(machine: Machine) -> None:
    with ExitStack() as stack:
        cudnn = stack.enter_context(handle(machine))
        [at] = place(stack, machine, NCHW, np.zeros((1, 2, 3, 4), np.float32))
        one = factor(1, np.dtype(np.float32))
        arguments = [one, at.descriptor, at.data, one, at.descriptor, at.data]
        assert (
            call(machine, "cudnnSoftmaxForward", cudnn, integer(3), integer(0), *arguments).status
            == BAD_PARAM
        )
        assert (
            call(machine, "cudnnSoftmaxForward", cudnn, integer(0), integer(2), *arguments).status
            == BAD_PARAM
        )
