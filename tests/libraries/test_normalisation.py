"""Batch normalisation of cuDNN, with its gradients, against numpy."""

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
from tests.libraries.machine import Argument, Array, Machine, integer, out, pointer

SINGLE: Final = np.dtype(np.float32)
PER_ACTIVATION, SPATIAL, PERSISTENT = 0, 1, 2
PLAIN, ACTIVATED, ADDED = 0, 1, 2
EPSILON: Final = 1e-3
ONE: Final = factor(1, SINGLE)
quickly = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
shapes = st.lists(st.integers(1, 6), min_size=4, max_size=5).map(lambda size: (size[0] + 1, *size[1:]))
modes = st.sampled_from([PER_ACTIVATION, SPATIAL, PERSISTENT])
all_ops = st.sampled_from([PLAIN, ACTIVATED, ADDED])
formats = st.sampled_from([NCHW, NHWC])


def axes_of(shape: tuple[int, ...], mode: int) -> tuple[int, ...]:
    """What statistics are taken over."""
    return (0,) if mode == PER_ACTIVATION else (0, *range(2, len(shape)))


def parameter_shape(shape: tuple[int, ...], mode: int) -> tuple[int, ...]:
    return tuple(1 if axis in axes_of(shape, mode) else size for axis, size in enumerate(shape))


def parameters(
    generator: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[np.generic], count: int
) -> list[Array]:
    """Positive numbers; of half ones they are single."""
    kind = dtype if dtype == np.float64 else SINGLE
    return [(np.abs(generator.standard_normal(shape)) + 0.5).astype(kind) for _ in range(count)]


def place(stack: ExitStack, machine: Machine, form: int, *arrays: Array) -> list[Placed]:
    return [stack.enter_context(placed(machine, array, form)) for array in arrays]


def activation(stack: ExitStack, machine: Machine) -> Argument:
    made = stack.enter_context(descriptor(machine, "Activation"))
    done(machine, "cudnnSetActivationDescriptor", made, integer(1), integer(0), ("d", 0.0))
    return made


@pytest.mark.parametrize("dtype", REAL_TYPES, ids=str)
@quickly
@given(shape=shapes, mode=modes, form=formats, beta=st.sampled_from([0.0, 0.5]))
def test_inference(
    machine: Machine, dtype: np.dtype[np.generic], shape: tuple[int, ...], mode: int, form: int, beta: float
) -> None:
    generator = np.random.default_rng(1)
    x, y = random(generator, shape, dtype), random(generator, shape, dtype)
    of = parameters(generator, parameter_shape(shape, mode), dtype, 4)
    with ExitStack() as stack:
        cudnn = stack.enter_context(handle(machine))
        at_x, at_y = place(stack, machine, form, x, y)
        scale, bias, mean, variance = place(stack, machine, NCHW, *of)
        done(
            machine, "cudnnBatchNormalizationForwardInference", cudnn, integer(mode), factor(2, dtype), factor(beta, dtype),
            at_x.descriptor, at_x.data, at_y.descriptor, at_y.data, scale.descriptor, scale.data, bias.data, mean.data,
            variance.data, ("d", EPSILON),
        )  # fmt: skip
        result = at_y.result()
    made = of[0] * (exact(x) - of[2]) / np.sqrt(of[3] + EPSILON) + of[1]
    assert_close(result, 2 * made + beta * exact(y), 10)


@pytest.mark.parametrize("dtype", REAL_TYPES, ids=str)
@quickly
@given(shape=shapes, mode=modes, form=formats, ops=all_ops, kept=st.booleans())
def test_training(
    machine: Machine,
    dtype: np.dtype[np.generic],
    shape: tuple[int, ...],
    mode: int,
    form: int,
    ops: int,
    kept: bool,
) -> None:
    generator = np.random.default_rng(2)
    x, z = random(generator, shape, dtype), random(generator, shape, dtype)
    of = parameters(generator, parameter_shape(shape, mode), dtype, 4)
    empty = np.zeros_like(of[0])
    none = pointer(0)
    with ExitStack() as stack:
        cudnn = stack.enter_context(handle(machine))
        at_x, at_z, at_y = place(stack, machine, form, x, z, np.zeros_like(x))
        scale, bias, mean, variance, saved, deviation = place(stack, machine, NCHW, *of, empty, empty)
        statistics = [mean.data, variance.data] if kept else [none, none]
        done(
            machine, "cudnnBatchNormalizationForwardTrainingEx", cudnn, integer(mode), integer(ops), factor(1, dtype),
            factor(0, dtype), at_x.descriptor, at_x.data, at_z.descriptor, at_z.data, at_y.descriptor, at_y.data,
            scale.descriptor, scale.data, bias.data, ("d", 0.25), *statistics, ("d", EPSILON), saved.data, deviation.data,
            activation(stack, machine), none, none, none, none,
        )  # fmt: skip
        result, results = at_y.result(), [at.result() for at in (mean, variance, saved, deviation)]
    axes = axes_of(shape, mode)
    wide = exact(x)
    mu, var = wide.mean(axes, keepdims=True), wide.var(axes, keepdims=True)
    made = of[0] * (wide - mu) / np.sqrt(var + EPSILON) + of[1] + (exact(z) if ops == ADDED else 0)
    assert_close(result, np.maximum(made, 0) if ops != PLAIN else made, 30)
    count = x.size // of[0].size
    of_sample = var * count / (count - 1)
    running = [0.75 * of[2] + 0.25 * mu, 0.75 * of[3] + 0.25 * of_sample] if kept else of[2:]
    for got, expected in zip(results, [*running, mu, 1 / np.sqrt(var + EPSILON)], strict=True):
        assert_close(got, expected, 10)


@pytest.mark.parametrize("dtype", REAL_TYPES, ids=str)
@quickly
@given(
    shape=shapes, mode=modes, form=formats, ops=all_ops, saved=st.booleans(), beta=st.sampled_from([0.0, 0.5])
)
def test_gradients(
    machine: Machine, dtype: np.dtype[np.generic], shape: tuple[int, ...], mode: int, form: int, ops: int, saved: bool,
    beta: float,
) -> None:  # fmt: skip
    generator = np.random.default_rng(3)
    x, y, dy, dx = (random(generator, shape, dtype) for _ in range(4))
    [scale, before, before_of_bias] = parameters(generator, parameter_shape(shape, mode), dtype, 3)
    axes, wide = axes_of(shape, mode), exact(x)
    mu, inverse = wide.mean(axes, keepdims=True), 1 / np.sqrt(wide.var(axes, keepdims=True) + EPSILON)
    none = pointer(0)
    with ExitStack() as stack:
        cudnn = stack.enter_context(handle(machine))
        at_x, at_y, at_dy, at_dz, at_dx = place(stack, machine, form, x, y, dy, np.zeros_like(x), dx)
        at_scale, at_dscale, at_dbias, at_mu, at_inverse = place(
            stack,
            machine,
            NCHW,
            scale,
            before,
            before_of_bias,
            mu.astype(scale.dtype),
            inverse.astype(scale.dtype),
        )
        statistics = [at_mu.data, at_inverse.data] if saved else [none, none]
        one, weight = factor(1, dtype), factor(beta, dtype)
        done(
            machine, "cudnnBatchNormalizationBackwardEx", cudnn, integer(mode), integer(ops), one, weight, one, weight,
            at_x.descriptor, at_x.data, at_y.descriptor, at_y.data, at_dy.descriptor, at_dy.data, at_dz.descriptor,
            at_dz.data, at_dx.descriptor, at_dx.data, at_scale.descriptor, at_scale.data, none, at_dscale.data,
            at_dbias.data, ("d", EPSILON), *statistics, activation(stack, machine), none, none, none, none,
        )  # fmt: skip
        result, of_scale, of_bias = at_dx.result(), at_dscale.result(), at_dbias.result()
    passed = exact(dy) * (exact(y) > 0) if ops != PLAIN else exact(dy)
    normal = (wide - mu) * inverse
    sums, products = passed.sum(axes, keepdims=True), (passed * normal).sum(axes, keepdims=True)
    count = x.size // scale.size
    made = scale * inverse * (passed - (sums + normal * products) / count)
    assert_close(result, made + beta * exact(dx), 200)
    assert_close(of_scale, products + beta * before, 200)
    assert_close(of_bias, sums + beta * before_of_bias, 200)


@pytest.mark.parametrize("form", [NCHW, NHWC])
def test_a_large_batch(machine: Machine, form: int) -> None:
    x = random(np.random.default_rng(4), (16, 24, 33, 31), SINGLE) * 3 + 100
    ones, zeros = np.ones((1, 24, 1, 1), SINGLE), np.zeros((1, 24, 1, 1), SINGLE)
    with ExitStack() as stack:
        cudnn = stack.enter_context(handle(machine))
        at_x, at_y = place(stack, machine, form, x, np.zeros_like(x))
        scale, bias = place(stack, machine, NCHW, ones, zeros)
        none = pointer(0)
        done(
            machine, "cudnnBatchNormalizationForwardTraining", cudnn, integer(SPATIAL), factor(1, SINGLE), factor(0, SINGLE),
            at_x.descriptor, at_x.data, at_y.descriptor, at_y.data, scale.descriptor, scale.data, bias.data, ("d", 1.0),
            none, none, ("d", EPSILON), none, none,
        )  # fmt: skip
        result = exact(at_y.result())
    np.testing.assert_allclose(result.mean((0, 2, 3)), 0, atol=1e-4)
    np.testing.assert_allclose(result.var((0, 2, 3)), 1, atol=1e-3)


def test_parameters_have_the_shape_of_the_mode(machine: Machine) -> None:
    with descriptor(machine, "Tensor") as derived, placed(machine, np.zeros((2, 3, 4, 5), np.float16)) as x:
        for mode, sizes in ((PER_ACTIVATION, (1, 3, 4, 5)), (SPATIAL, (1, 3, 1, 1))):
            done(machine, "cudnnDeriveBNTensorDescriptor", derived, x.descriptor, integer(mode))
            answer = done(
                machine, "cudnnGetTensorNdDescriptor", derived, integer(4), out(4), out(4), out(16), out(16)
            )
            assert answer.number(0) == 0  # single
            assert tuple(np.frombuffer(answer.outputs[2], np.int32)) == sizes


def test_no_space_is_needed(machine: Machine) -> None:
    none = pointer(0)
    with handle(machine) as cudnn, placed(machine, np.zeros((2, 3, 4, 5), SINGLE)) as x:
        first = [cudnn, integer(SPATIAL), integer(PLAIN)]
        for function, arguments in (
            ("ForwardTrainingExWorkspaceSize", [*first, x.descriptor, none, none, none, none]),
            ("BackwardExWorkspaceSize", [*first, x.descriptor, *[none] * 6]),
            ("TrainingExReserveSpaceSize", [*first, none, x.descriptor]),
        ):
            assert done(machine, f"cudnnGetBatchNormalization{function}", *arguments, out(8)).number() == 0


def test_wrong_arguments(machine: Machine) -> None:
    with ExitStack() as stack:
        cudnn = stack.enter_context(handle(machine))
        [at_x] = place(stack, machine, NCHW, np.zeros((2, 3, 4, 5), SINGLE))
        scale, other = place(
            stack, machine, NCHW, np.ones((1, 3, 1, 1), SINGLE), np.ones((1, 4, 1, 1), SINGLE)
        )

        def infer(mode: int, of: Placed, epsilon: float = EPSILON, alpha: Argument = ONE) -> int:
            return call(
                machine, "cudnnBatchNormalizationForwardInference", cudnn, integer(mode), alpha, factor(0, SINGLE),
                at_x.descriptor, at_x.data, at_x.descriptor, at_x.data, of.descriptor, of.data, of.data, of.data, of.data,
                ("d", epsilon),
            ).status  # fmt: skip

        assert infer(SPATIAL, scale) == SUCCESS
        assert infer(3, scale) == BAD_PARAM
        assert infer(PER_ACTIVATION, scale) == BAD_PARAM
        assert infer(SPATIAL, other) == BAD_PARAM
        assert infer(SPATIAL, scale, -1.0) == BAD_PARAM
        assert infer(SPATIAL, scale, alpha=pointer(0)) == BAD_PARAM
    assert machine.synchronize() == 0
