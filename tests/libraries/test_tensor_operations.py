"""cuDNN's element-wise calls, activations and reductions, against numpy."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.libraries.cudnn import (
    BAD_PARAM,
    DATA_TYPES,
    NCHW,
    NHWC,
    NOT_SUPPORTED,
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
from tests.libraries.machine import Array, Machine, host, integer, out, pointer

SINGLE: Final = np.dtype(np.float32)
SMALL: Final = (2, 3, 4, 5)
quickly = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
shapes = st.lists(st.integers(1, 6), min_size=4, max_size=5).map(tuple)
formats = st.sampled_from([NCHW, NHWC])
real_types = st.sampled_from(REAL_TYPES)


def place(stack: ExitStack, machine: Machine, *arrays: Array, form: int = NCHW) -> list[Placed]:
    return [stack.enter_context(placed(machine, array, form)) for array in arrays]


def repeated(shape: tuple[int, ...], choice: int) -> tuple[int, ...]:
    """The shape with some of its axes of size 1: those of the bits of ``choice``."""
    return tuple(1 if choice >> axis & 1 else size for axis, size in enumerate(shape))


@quickly
@given(
    shape=shapes, choice=st.integers(0, 31), form=formats, dtype=real_types, beta=st.sampled_from([0.0, 0.5])
)
def test_a_tensor_is_added_and_repeated(
    machine: Machine, shape: tuple[int, ...], choice: int, form: int, dtype: np.dtype[np.generic], beta: float
) -> None:
    generator = np.random.default_rng(choice)
    a, c = random(generator, repeated(shape, choice), dtype), random(generator, shape, dtype)
    with ExitStack() as stack:
        cudnn = stack.enter_context(handle(machine))
        at_a, at_c = place(stack, machine, a, c, form=form)
        done(
            machine, "cudnnAddTensor", cudnn, factor(2, dtype), at_a.descriptor, at_a.data, factor(beta, dtype),
            at_c.descriptor, at_c.data,
        )  # fmt: skip
        assert_close(at_c.result(), 2 * exact(a) + beta * exact(c), 4)


def test_a_large_tensor_is_added_in_blocks(machine: Machine) -> None:
    generator = np.random.default_rng(3)
    a, c = random(generator, (1, 16, 1, 1), SINGLE), random(generator, (3, 16, 61, 67), SINGLE)
    for form in (NCHW, NHWC):
        with ExitStack() as stack:
            cudnn = stack.enter_context(handle(machine))
            at_a, at_c = place(stack, machine, a, c, form=form)
            one = factor(1, SINGLE)
            done(
                machine,
                "cudnnAddTensor",
                cudnn,
                one,
                at_a.descriptor,
                at_a.data,
                one,
                at_c.descriptor,
                at_c.data,
            )
            assert_close(at_c.result(), exact(a) + exact(c))


@quickly
@given(shape=shapes, dtype=real_types, into=real_types)
def test_a_tensor_takes_another_type_and_format(
    machine: Machine, shape: tuple[int, ...], dtype: np.dtype[np.generic], into: np.dtype[np.generic]
) -> None:
    x = random(np.random.default_rng(1), shape, dtype)
    with ExitStack() as stack:
        cudnn = stack.enter_context(handle(machine))
        [at_x], [at_y] = place(stack, machine, x), place(stack, machine, np.zeros(shape, into), form=NHWC)
        one, zero = factor(1, into), factor(0, into)
        done(
            machine,
            "cudnnTransformTensor",
            cudnn,
            one,
            at_x.descriptor,
            at_x.data,
            zero,
            at_y.descriptor,
            at_y.data,
        )
        assert_close(at_y.result(), exact(x))


@pytest.mark.parametrize("dtype", [*REAL_TYPES, np.dtype(np.int32), np.dtype(np.int8)], ids=str)
def test_a_tensor_is_set_and_scaled(machine: Machine, dtype: np.dtype[np.generic]) -> None:
    with ExitStack() as stack:
        cudnn = stack.enter_context(handle(machine))
        [at_y] = place(stack, machine, np.zeros(SMALL, dtype))
        done(machine, "cudnnSetTensor", cudnn, at_y.descriptor, at_y.data, host(np.array([-3]).astype(dtype)))
        np.testing.assert_array_equal(exact(at_y.result()), np.full(SMALL, -3.0))
        done(machine, "cudnnScaleTensor", cudnn, at_y.descriptor, at_y.data, factor(2, dtype))
        np.testing.assert_array_equal(exact(at_y.result()), np.full(SMALL, -6.0))


#: cudnnOpTensorOp_t by what numpy does.
OPERATIONS: Final[dict[int, Callable[[Array, Array], Array]]] = {
    0: lambda a, b: a + b,
    1: lambda a, b: a * b,
    2: np.minimum,
    3: np.maximum,
    4: lambda a, _: np.sqrt(a),
    5: lambda a, _: 1 - a,
}


@pytest.mark.parametrize("operation", OPERATIONS)
@quickly
@given(shape=shapes, choice=st.integers(0, 31), dtype=real_types, beta=st.sampled_from([0.0, -1.0]))
def test_an_operation_of_two_tensors(
    machine: Machine,
    operation: int,
    shape: tuple[int, ...],
    choice: int,
    dtype: np.dtype[np.generic],
    beta: float,
) -> None:
    generator = np.random.default_rng(choice)
    a = np.abs(exact(random(generator, shape, dtype))).astype(dtype)
    b, c = random(generator, repeated(shape, choice), dtype), random(generator, shape, dtype)
    with ExitStack() as stack:
        cudnn, of = stack.enter_context(handle(machine)), stack.enter_context(descriptor(machine, "OpTensor"))
        compute = np.dtype(np.float64) if dtype == np.float64 else SINGLE
        done(
            machine,
            "cudnnSetOpTensorDescriptor",
            of,
            integer(operation),
            integer(DATA_TYPES[compute]),
            integer(0),
        )
        at_a, at_b, at_c = place(stack, machine, a, b, c)
        done(
            machine, "cudnnOpTensor", cudnn, of, factor(2, dtype), at_a.descriptor, at_a.data, factor(3, dtype),
            at_b.descriptor, at_b.data, factor(beta, dtype), at_c.descriptor, at_c.data,
        )  # fmt: skip
        made = OPERATIONS[operation](2 * exact(a), 3 * exact(b)) + beta * exact(c)
        assert_close(at_c.result(), np.broadcast_to(made, shape), 10)


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


COEFFICIENT: Final = 0.7
#: cudnnActivationMode_t by what it does, and its derivative.
ACTIVATIONS: Final[dict[int, tuple[Callable[[Array], Array], Callable[[Array], Array]]]] = {
    0: (sigmoid, lambda x: sigmoid(x) * (1 - sigmoid(x))),
    1: (lambda x: np.maximum(x, 0), lambda x: x > 0),
    2: (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    3: (lambda x: np.clip(x, 0, COEFFICIENT), lambda x: (x > 0) & (x < COEFFICIENT)),
    4: (
        lambda x: np.where(x > 0, x, COEFFICIENT * np.expm1(x)),
        lambda x: np.where(x > 0, 1, COEFFICIENT * np.exp(x)),
    ),
    6: (lambda x: x * sigmoid(x), lambda x: sigmoid(x) * (1 + x * (1 - sigmoid(x)))),
}


@pytest.mark.parametrize("mode", ACTIVATIONS)
@quickly
@given(shape=shapes, dtype=real_types, form=formats, beta=st.sampled_from([0.0, 0.5]))
def test_an_activation_and_its_gradient(
    machine: Machine, mode: int, shape: tuple[int, ...], dtype: np.dtype[np.generic], form: int, beta: float
) -> None:
    function, derivative = ACTIVATIONS[mode]
    generator = np.random.default_rng(mode)
    x, y, dy, dx = (random(generator, shape, dtype) for _ in range(4))
    with ExitStack() as stack:
        cudnn, of = (
            stack.enter_context(handle(machine)),
            stack.enter_context(descriptor(machine, "Activation")),
        )
        done(machine, "cudnnSetActivationDescriptor", of, integer(mode), integer(0), ("d", COEFFICIENT))
        at_x, at_y, at_dy, at_dx = place(stack, machine, x, y, dy, dx, form=form)
        alpha, weight = factor(2, dtype), factor(beta, dtype)
        done(
            machine, "cudnnActivationForward", cudnn, of, alpha, at_x.descriptor, at_x.data, weight, at_y.descriptor,
            at_y.data,
        )  # fmt: skip
        assert_close(at_y.result(), 2 * function(exact(x)) + beta * exact(y), 4)
        [at_result] = place(stack, machine, function(exact(x)).astype(dtype), form=form)
        done(
            machine, "cudnnActivationBackward", cudnn, of, alpha, at_result.descriptor, at_result.data,
            at_dy.descriptor, at_dy.data, at_x.descriptor, at_x.data, weight, at_dx.descriptor, at_dx.data,
        )  # fmt: skip
        # The gradient is computed of the result, which the type has rounded.
        made = 2 * exact(dy) * derivative(exact(x)) + beta * exact(dx)
        assert_close(at_dx.result(), made, 8)


#: cudnnReduceTensorOp_t by what numpy does.
REDUCTIONS: Final[dict[int, Callable[..., Any]]] = {
    0: np.sum,
    1: np.prod,
    2: np.min,
    3: np.max,
    4: lambda a, **axes: np.max(np.abs(a), **axes),
    5: np.mean,
    6: lambda a, **axes: np.sum(np.abs(a), **axes),
    7: lambda a, **axes: np.sqrt(np.sum(a * a, **axes)),
    8: lambda a, **axes: np.prod(np.where(a == 0, 1, a), **axes),
}


@pytest.mark.parametrize("operation", REDUCTIONS)
@quickly
@given(
    shape=shapes, choice=st.integers(0, 31), dtype=real_types, form=formats, beta=st.sampled_from([0.0, 0.5])
)
def test_a_reduction(
    machine: Machine, operation: int, shape: tuple[int, ...], choice: int, dtype: np.dtype[np.generic], form: int,
    beta: float,
) -> None:  # fmt: skip
    generator = np.random.default_rng(choice)
    a = random(generator, shape, dtype)
    a[..., 0] = 0
    c = random(generator, repeated(shape, choice), dtype)
    axes = tuple(axis for axis in range(len(shape)) if choice >> axis & 1)
    with ExitStack() as stack:
        cudnn, of = (
            stack.enter_context(handle(machine)),
            stack.enter_context(descriptor(machine, "ReduceTensor")),
        )
        numbers = [integer(value) for value in (operation, 1 if dtype == np.float64 else 0, 0, 0, 0)]
        done(machine, "cudnnSetReduceTensorDescriptor", of, *numbers)
        at_a, at_c = place(stack, machine, a, c, form=form)
        done(
            machine, "cudnnReduceTensor", cudnn, of, pointer(0), pointer(0), pointer(0), pointer(0), factor(2, dtype),
            at_a.descriptor, at_a.data, factor(beta, dtype), at_c.descriptor, at_c.data,
        )  # fmt: skip
        made = 2 * REDUCTIONS[operation](exact(a), axis=axes, keepdims=True) + beta * exact(c)
        assert_close(at_c.result(), made, 40)


def test_a_maximum_says_where_it_is(machine: Machine) -> None:
    a = random(np.random.default_rng(4), (3, 4, 5, 6), SINGLE)
    with ExitStack() as stack:
        cudnn, of = (
            stack.enter_context(handle(machine)),
            stack.enter_context(descriptor(machine, "ReduceTensor")),
        )
        done(machine, "cudnnSetReduceTensorDescriptor", of, *[integer(value) for value in (3, 0, 0, 1, 0)])
        at_a, at_c = place(stack, machine, a, np.zeros((3, 1, 5, 1), SINGLE))
        size = done(
            machine, "cudnnGetReductionIndicesSize", cudnn, of, at_a.descriptor, at_c.descriptor, out(8)
        ).number()
        assert size == 4 * 15
        [indices] = stack.enter_context(machine.arrays(np.zeros(15, np.uint32)))
        arguments = [
            factor(1, SINGLE),
            at_a.descriptor,
            at_a.data,
            factor(0, SINGLE),
            at_c.descriptor,
            at_c.data,
        ]
        space = [pointer(indices), pointer(size), pointer(0), pointer(0)]
        done(machine, "cudnnReduceTensor", cudnn, of, *space, *arguments)
        flat = a.transpose(0, 2, 1, 3).reshape(15, -1)
        np.testing.assert_array_equal(machine.get(indices, np.zeros(15, np.uint32)), flat.argmax(1))
        np.testing.assert_array_equal(at_c.result().ravel(), flat.max(1))
        space[1] = pointer(size - 1)
        assert call(machine, "cudnnReduceTensor", cudnn, of, *space, *arguments).status == BAD_PARAM


def test_wrong_arguments(machine: Machine) -> None:
    with ExitStack() as stack:
        cudnn, of = (
            stack.enter_context(handle(machine)),
            stack.enter_context(descriptor(machine, "Activation")),
        )
        at_a, at_b = place(stack, machine, np.zeros(SMALL, SINGLE), np.zeros((2, 3, 4, 4), SINGLE))
        one = factor(1, SINGLE)
        a, b = (at_a.descriptor, at_a.data), (at_b.descriptor, at_b.data)
        assert call(machine, "cudnnAddTensor", cudnn, one, *b, one, *a).status == BAD_PARAM
        assert call(machine, "cudnnAddTensor", cudnn, pointer(0), *a, one, *a).status == BAD_PARAM
        assert call(machine, "cudnnAddTensor", pointer(0), one, *a, one, *a).status == BAD_PARAM
        assert call(machine, "cudnnAddTensor", cudnn, one, a[0], pointer(0), one, *a).status == BAD_PARAM
        # The identity is for fused convolutions only.
        done(machine, "cudnnSetActivationDescriptor", of, integer(5), integer(0), ("d", 0.0))
        assert call(machine, "cudnnActivationForward", cudnn, of, one, *a, one, *a).status == NOT_SUPPORTED
        assert (
            call(machine, "cudnnSetActivationDescriptor", of, integer(7), integer(0), ("d", 0.0)).status
            == BAD_PARAM
        )
        done(
            machine, "cudnnSetTensorNdDescriptor", at_b.descriptor, integer(10), integer(4), integers(SMALL),
            integers([60, 20, 5, 1]),
        )  # fmt: skip
        assert call(machine, "cudnnAddTensor", cudnn, one, *a, one, *b).status == NOT_SUPPORTED
    assert machine.synchronize() == 0


def test_what_was_set_is_told(machine: Machine) -> None:
    with descriptor(machine, "Pooling") as made:
        done(
            machine,
            "cudnnSetPooling2dDescriptor",
            made,
            *[integer(value) for value in (2, 1, 3, 4, 0, 1, 2, 5)],
        )
        answer = done(machine, "cudnnGetPoolingNdDescriptor", made, integer(2), *[out(4)] * 3, *[out(8)] * 3)
        numbers = [struct.unpack(f"<{len(output) // 4}i", output) for output in answer.outputs]
        assert numbers == [(2,), (1,), (2,), (3, 4), (0, 1), (2, 5)]
    with descriptor(machine, "LRN") as made:
        done(machine, "cudnnSetLRNDescriptor", made, integer(7), ("d", 0.5), ("d", 0.25), ("d", 3.0))
        answer = done(machine, "cudnnGetLRNDescriptor", made, out(4), out(8), out(8), out(8))
        assert [answer.number(0), *(struct.unpack("<d", part)[0] for part in answer.outputs[1:])] == [
            7,
            0.5,
            0.25,
            3.0,
        ]
        wrong = call(machine, "cudnnSetLRNDescriptor", made, integer(17), ("d", 0.5), ("d", 0.25), ("d", 3.0))
        assert wrong.status == BAD_PARAM
