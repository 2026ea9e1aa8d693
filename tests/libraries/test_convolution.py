"""Convolutions of cuDNN's interface before graphs, against sums written out: all directions, types, formats and shapes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.libraries import convolution_reference as reference
from tests.libraries.convolution_reference import Geometry
from tests.libraries.cudnn import (
    BAD_PARAM,
    DATA_TYPES,
    NCHW,
    NHWC,
    NOT_SUPPORTED,
    REAL_TYPES,
    SUCCESS,
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
from tests.libraries.machine import Argument, Array, Machine, host, integer, out, pointer

DIRECTIONS: Final = ["Forward", "BackwardData", "BackwardFilter"]
SINGLE: Final = np.dtype(np.float32)
quickly = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@st.composite
def problems(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], Geometry]:
    """Shapes of an input and a filter that fit, and how the filter is applied."""
    space = draw(st.sampled_from([2, 2, 3]))
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    each = st.integers(1, 4)
    kernel = tuple(draw(st.lists(st.integers(1, 3), min_size=space, max_size=space)))
    small = st.lists(st.integers(1, 3), min_size=space, max_size=space)
    dilation, stride = tuple(draw(small)), tuple(draw(small))
    padding = tuple(draw(st.lists(st.integers(0, 2), min_size=space, max_size=space)))
    more = draw(st.lists(st.integers(0, 6), min_size=space, max_size=space))
    size = tuple(
        max(1, (taps - 1) * step + 1 - 2 * pad + extra)
        for taps, step, pad, extra in zip(kernel, dilation, padding, more, strict=True)
    )
    channels, filters = draw(each), draw(each)
    x = (draw(st.integers(1, 3)), groups * channels, *size)
    w = (groups * filters, channels, *kernel)
    return x, w, Geometry(padding, stride, dilation, groups, draw(st.booleans()))


@contextmanager
def described(
    machine: Machine, of: Geometry, dtype: np.dtype[np.generic], math: int = 0
) -> Iterator[Argument]:
    compute = 1 if dtype == np.float64 else 0
    with descriptor(machine, "Convolution") as made:
        done(
            machine, "cudnnSetConvolutionNdDescriptor", made, integer(len(of.padding)), integers(of.padding),
            integers(of.stride), integers(of.dilation), integer(0 if of.flipped else 1), integer(compute),
        )  # fmt: skip
        done(machine, "cudnnSetConvolutionGroupCount", made, integer(of.groups))
        done(machine, "cudnnSetConvolutionMathType", made, integer(math))
        yield made


def convolved(
    machine: Machine, direction: str, arrays: tuple[Array, Array, Array], of: Geometry, form: int,
    alpha: float = 1, beta: float = 0, math: int = 0,
) -> Array:  # fmt: skip
    """What a call makes of input, filter and output; the one that it writes is given as it was before."""
    x, w, y = arrays
    with ExitStack() as stack:
        cudnn = stack.enter_context(handle(machine))
        convolution = stack.enter_context(described(machine, of, x.dtype, math))
        at_x, at_y = (stack.enter_context(placed(machine, array, form)) for array in (x, y))
        at_w = stack.enter_context(placed(machine, w, form, "Filter"))
        read = {
            "Forward": (at_x, at_w),
            "BackwardData": (at_w, at_y),
            "BackwardFilter": (at_x, at_y),
        }[direction]
        target = {"Forward": at_y, "BackwardData": at_x, "BackwardFilter": at_w}[direction]
        done(
            machine, f"cudnnConvolution{direction}", cudnn, factor(alpha, x.dtype), read[0].descriptor, read[0].data,
            read[1].descriptor, read[1].data, convolution, integer(1), pointer(0), pointer(0), factor(beta, x.dtype),
            target.descriptor, target.data,
        )  # fmt: skip
        return target.result()


def wanted(direction: str, arrays: tuple[Array, Array, Array], of: Geometry) -> Array:
    x, w, y = (exact(array) for array in arrays)
    if direction == "Forward":
        return reference.forward(x, w, of)
    if direction == "BackwardData":
        return reference.backward_data(x.shape, w, y, of)
    return reference.backward_filter(x, w.shape, y, of)


def drawn(
    seed: int, x: tuple[int, ...], w: tuple[int, ...], of: Geometry, dtype: np.dtype[np.generic]
) -> tuple[Array, Array, Array]:
    generator = np.random.default_rng(seed)
    y = (x[0], w[0], *of.output(x[2:], w[2:]))
    return random(generator, x, dtype), random(generator, w, dtype), random(generator, y, dtype)


def terms(direction: str, arrays: tuple[Array, Array, Array]) -> float:
    """The size of a sum of so many products."""
    x, w, _ = arrays
    count = x.size / x.shape[1] if direction == "BackwardFilter" else w.size
    return float(np.sqrt(count) + 1)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("dtype", REAL_TYPES, ids=str)
@quickly
@given(
    problem=problems(),
    form=st.sampled_from([NCHW, NHWC]),
    beta=st.sampled_from([0.0, 0.5]),
    seed=st.integers(0, 99),
)
def test_a_convolution(
    machine: Machine, direction: str, dtype: np.dtype[np.generic],
    problem: tuple[tuple[int, ...], tuple[int, ...], Geometry], form: int, beta: float, seed: int,
) -> None:  # fmt: skip
    x, w, of = problem
    arrays = drawn(seed, x, w, of, dtype)
    result = convolved(machine, direction, arrays, of, form, 1.5, beta)
    before = arrays[{"Forward": 2, "BackwardData": 0, "BackwardFilter": 1}[direction]]
    assert_close(result, 1.5 * wanted(direction, arrays, of) + beta * exact(before), terms(direction, arrays))


#: Larger ones, which are computed in several blocks: of positions (within images and across them), of channels.
LARGE: Final = {
    "many positions": ((2, 8, 70, 70), (16, 8, 3, 3), Geometry((1, 1), (1, 1), (1, 1))),
    "small images": ((40, 128, 5, 5), (96, 128, 3, 3), Geometry((1, 1), (1, 1), (1, 1))),
    "a single image with many channels": ((1, 256, 9, 9), (200, 256, 3, 3), Geometry((1, 1), (2, 2), (1, 1))),
    "one tap": ((3, 70, 30, 30), (130, 70, 1, 1), Geometry((0, 0), (1, 1), (1, 1))),
    "one tap with steps": ((3, 70, 31, 31), (130, 70, 1, 1), Geometry((0, 0), (2, 2), (1, 1))),
    "depthwise": ((2, 48, 33, 33), (48, 1, 3, 3), Geometry((1, 1), (1, 1), (1, 1), 48)),
    "large taps": ((2, 3, 64, 64), (32, 3, 7, 7), Geometry((3, 3), (2, 2), (1, 1))),
    "three dimensions": ((2, 6, 9, 17, 20), (8, 6, 3, 3, 3), Geometry((1, 0, 1), (1, 2, 1), (1, 1, 2))),
}


@pytest.mark.parametrize("form", [NCHW, NHWC])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", LARGE)
def test_a_convolution_in_several_blocks(machine: Machine, name: str, direction: str, form: int) -> None:
    x, w, of = LARGE[name]
    arrays = drawn(5, x, w, of, SINGLE)
    assert_close(
        convolved(machine, direction, arrays, of, form),
        wanted(direction, arrays, of),
        terms(direction, arrays),
    )


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_results_are_the_same_each_time(machine: Machine, direction: str) -> None:
    x, w, of = LARGE["small images"]
    arrays = drawn(6, x, w, of, SINGLE)
    first, second = (convolved(machine, direction, arrays, of, NCHW) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("factor_of_z", [0.0, 0.75])
@pytest.mark.parametrize("dtype", [SINGLE, np.dtype(np.float16)], ids=str)
def test_bias_addition_and_activation_in_one_call(
    machine: Machine, relu: bool, factor_of_z: float, dtype: np.dtype[np.generic]
) -> None:
    of = Geometry((1, 0), (1, 1), (1, 1))
    x, w, z = drawn(7, (2, 3, 6, 7), (4, 3, 3, 2), of, dtype)
    bias = random(np.random.default_rng(8), (1, 4, 1, 1), dtype)
    with ExitStack() as stack:
        cudnn = stack.enter_context(handle(machine))
        convolution = stack.enter_context(described(machine, of, dtype))
        activation = stack.enter_context(descriptor(machine, "Activation"))
        done(
            machine,
            "cudnnSetActivationDescriptor",
            activation,
            integer(1 if relu else 5),
            integer(0),
            ("d", 0.0),
        )
        at_x, at_z, at_y, at_bias = (
            stack.enter_context(placed(machine, array)) for array in (x, z, np.zeros_like(z), bias)
        )
        at_w = stack.enter_context(placed(machine, w, kind="Filter"))
        done(
            machine, "cudnnConvolutionBiasActivationForward", cudnn, factor(2, dtype), at_x.descriptor, at_x.data,
            at_w.descriptor, at_w.data, convolution, integer(1), pointer(0), pointer(0), factor(factor_of_z, dtype),
            at_z.descriptor, at_z.data, at_bias.descriptor, at_bias.data, activation, at_y.descriptor, at_y.data,
        )  # fmt: skip
        result = at_y.result()
    made = 2 * reference.forward(exact(x), exact(w), of) + factor_of_z * exact(z) + exact(bias)
    assert_close(result, np.maximum(made, 0) if relu else made, 10)


@contextmanager
def small_problem(machine: Machine, **changed: int) -> Iterator[dict[str, Argument]]:
    """Descriptors of a convolution of nothing, with a change that makes them wrong."""
    of = {
        "channels": 4,
        "filters": 6,
        "groups": 1,
        "width": 5,
        "type_of_w": 0,
        "compute": 0,
        "type": 0,
    } | changed
    with ExitStack() as stack:
        made = {
            name: stack.enter_context(descriptor(machine, kind))
            for name, kind in (("x", "Tensor"), ("w", "Filter"), ("y", "Tensor"), ("of", "Convolution"))
        }
        made["handle"] = stack.enter_context(handle(machine))
        four = [integer(value) for value in (2, of["channels"], 7, 7)]
        done(machine, "cudnnSetTensor4dDescriptor", made["x"], integer(NCHW), integer(of["type"]), *four)
        four = [integer(value) for value in (of["filters"], 4, 3, 3)]
        done(machine, "cudnnSetFilter4dDescriptor", made["w"], integer(of["type_of_w"]), integer(NCHW), *four)
        four = [integer(value) for value in (2, 6, 5, of["width"])]
        done(machine, "cudnnSetTensor4dDescriptor", made["y"], integer(NCHW), integer(of["type"]), *four)
        two = [integer(value) for value in (0, 0, 1, 1, 1, 1)]
        done(machine, "cudnnSetConvolution2dDescriptor", made["of"], *two, integer(1), integer(of["compute"]))
        done(machine, "cudnnSetConvolutionGroupCount", made["of"], integer(of["groups"]))
        yield made


def convolve_nothing(machine: Machine, given_: dict[str, Argument], x: int = 256) -> int:
    one = factor(1, SINGLE)
    return call(
        machine, "cudnnConvolutionForward", given_["handle"], one, given_["x"], pointer(x), given_["w"], pointer(256),
        given_["of"], integer(1), pointer(0), pointer(0), one, given_["y"], pointer(256),
    ).status  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"channels": 5}, BAD_PARAM),
        ({"filters": 7}, BAD_PARAM),
        ({"width": 6}, BAD_PARAM),
        ({"groups": 4}, BAD_PARAM),
        ({"type_of_w": 2}, BAD_PARAM),
        ({"type": 3, "type_of_w": 3, "compute": 4}, NOT_SUPPORTED),
        ({"compute": 1}, NOT_SUPPORTED),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_submitted(
    machine: Machine, wrong: dict[str, int], status: int
) -> None:
    with small_problem(machine, **wrong) as made:
        assert convolve_nothing(machine, made) == status
    assert machine.synchronize() == 0


def test_null_pointers_and_other_descriptors_are_wrong(machine: Machine) -> None:
    with small_problem(machine) as made:
        assert convolve_nothing(machine, made, x=0) == BAD_PARAM
        for name in made:
            assert convolve_nothing(machine, made | {name: pointer(0)}) == BAD_PARAM
        assert convolve_nothing(machine, made | {"w": made["x"]}) == BAD_PARAM


@pytest.mark.parametrize(
    ("direction", "order", "count"),
    [("Forward", "xwoy", 8), ("BackwardData", "wyox", 6), ("BackwardFilter", "xyow", 7)],
)
def test_there_is_one_algorithm_without_workspace(
    machine: Machine, direction: str, order: str, count: int
) -> None:
    with small_problem(machine) as made:
        arguments = [made["of" if letter == "o" else letter] for letter in order]
        cudnn = made["handle"]
        assert done(machine, f"cudnnGetConvolution{direction}AlgorithmMaxCount", cudnn, out(4)).number() == 1
        for function in ("Get{}Algorithm_v7", "Find{}Algorithm"):
            name = "cudnn" + function.format(f"Convolution{direction}")
            answer = done(machine, name, cudnn, *arguments, integer(4), out(4), out(4 * 48))
            assert answer.number() == 1
            algorithm, status, _, memory, determinism, math = struct.unpack(
                "<iifxxxxQii12x", answer.outputs[1][:44]
            )
            assert (status, memory, determinism, math) == (SUCCESS, 0, 1, 0)
            assert 0 <= algorithm < count
        with_data = [part for argument in arguments[:2] for part in (argument, pointer(0))]
        name = f"cudnnFindConvolution{direction}AlgorithmEx"
        answer = done(
            machine, name, cudnn, *with_data, *arguments[2:], pointer(0), integer(1), out(4), out(48), pointer(0),
            pointer(0),
        )  # fmt: skip
        assert answer.number() == 1
        name = f"cudnnGetConvolution{direction}WorkspaceSize"
        assert done(machine, name, cudnn, *arguments, integer(algorithm), out(8)).number() == 0
        assert call(machine, name, cudnn, *arguments, integer(count), out(8)).status == BAD_PARAM


@quickly
@given(problem=problems())
def test_the_shape_of_an_output_is_known(
    machine: Machine, problem: tuple[tuple[int, ...], tuple[int, ...], Geometry]
) -> None:
    x, w, of = problem
    with ExitStack() as stack:
        convolution = stack.enter_context(described(machine, of, SINGLE))
        at_x = stack.enter_context(placed(machine, np.zeros(x, SINGLE)))
        at_w = stack.enter_context(placed(machine, np.zeros(w, SINGLE), kind="Filter"))
        dims = len(x)
        answer = done(
            machine, "cudnnGetConvolutionNdForwardOutputDim", convolution, at_x.descriptor, at_w.descriptor,
            integer(dims), out(4 * dims),
        )  # fmt: skip
    assert struct.unpack(f"<{dims}i", answer.outputs[0]) == (x[0], w[0], *of.output(x[2:], w[2:]))


@pytest.mark.parametrize("dtype", REAL_TYPES, ids=str)
@pytest.mark.parametrize("form", [NCHW, NHWC])
def test_the_gradient_of_a_bias_is_a_sum(machine: Machine, dtype: np.dtype[np.generic], form: int) -> None:
    generator = np.random.default_rng(9)
    dy, db = random(generator, (5, 7, 13, 11), dtype), random(generator, (1, 7, 1, 1), dtype)
    with handle(machine) as cudnn, placed(machine, dy, form) as at_dy, placed(machine, db) as at_db:
        done(
            machine, "cudnnConvolutionBackwardBias", cudnn, factor(2, dtype), at_dy.descriptor, at_dy.data,
            factor(-1, dtype), at_db.descriptor, at_db.data,
        )  # fmt: skip
        result = at_db.result()
    assert_close(result, 2 * exact(dy).sum((0, 2, 3), keepdims=True) - exact(db), 30)


def test_what_was_set_is_told(machine: Machine) -> None:
    with descriptor(machine, "Convolution") as made:
        done(
            machine, "cudnnSetConvolutionNdDescriptor", made, integer(3), integers([1, 2, 3]), integers([4, 5, 6]),
            integers([7, 8, 9]), integer(0), integer(1),
        )  # fmt: skip
        answer = done(
            machine,
            "cudnnGetConvolutionNdDescriptor",
            made,
            integer(2),
            out(4),
            out(8),
            out(8),
            out(8),
            out(4),
            out(4),
        )
        numbers = [struct.unpack(f"<{len(output) // 4}i", output) for output in answer.outputs]
        assert numbers == [(3,), (1, 2), (4, 5), (7, 8), (0,), (1,)]
        assert done(machine, "cudnnGetConvolutionGroupCount", made, out(4)).number() == 1
        done(machine, "cudnnSetConvolutionMathType", made, integer(2))
        assert done(machine, "cudnnGetConvolutionMathType", made, out(4)).number() == 2
        assert call(machine, "cudnnSetConvolutionMathType", made, integer(9)).status == BAD_PARAM
        assert call(machine, "cudnnSetConvolutionGroupCount", made, integer(0)).status == BAD_PARAM


def test_a_tensor_has_the_strides_of_its_format(machine: Machine) -> None:
    kinds = {NCHW: (60, 20, 5, 1), NHWC: (60, 1, 15, 3)}
    for form, strides in kinds.items():
        with descriptor(machine, "Tensor") as made:
            sizes = [integer(size) for size in (2, 3, 4, 5)]
            bfloat = integer(DATA_TYPES[np.dtype(ml_dtypes.bfloat16)])
            done(machine, "cudnnSetTensor4dDescriptor", made, integer(form), bfloat, *sizes)
            answer = done(
                machine, "cudnnGetTensorNdDescriptor", made, integer(4), out(4), out(4), out(16), out(16)
            )
            assert (answer.number(0), answer.number(1)) == (9, 4)
            assert struct.unpack("<4i", answer.outputs[2]) == (2, 3, 4, 5)
            assert struct.unpack("<4i", answer.outputs[3]) == strides
            assert done(machine, "cudnnGetTensorSizeInBytes", made, out(8)).number() == 240


@pytest.mark.parametrize(
    ("sizes", "data_type", "status"),
    [
        ([2, 0, 4, 5], 0, BAD_PARAM),
        ([2, -3, 4, 5], 0, BAD_PARAM),
        ([2, 3, 4, 5], 99, BAD_PARAM),
        ([2, 3], 0, NOT_SUPPORTED),
        ([1] * 9, 0, NOT_SUPPORTED),
        ([65536, 1, 65536, 1], 0, NOT_SUPPORTED),
    ],
)
def test_a_tensor_that_cannot_be(machine: Machine, sizes: list[int], data_type: int, status: int) -> None:
    with descriptor(machine, "Tensor") as made:
        dims = integer(len(sizes))
        answer = call(
            machine,
            "cudnnSetTensorNdDescriptorEx",
            made,
            integer(NCHW),
            integer(data_type),
            dims,
            integers(sizes),
        )
        assert answer.status == status


def test_versions_and_names(machine: Machine) -> None:
    assert call(machine, "cudnnGetVersion").status == 92600
    parts = [done(machine, "cudnnGetProperty", integer(index), out(4)).number() for index in range(3)]
    assert parts == [9, 26, 0]
    with handle(machine) as cudnn:
        done(machine, "cudnnSetStream", cudnn, pointer(0x10))
        assert done(machine, "cudnnGetStream", cudnn, out(8)).number() == 0x10
    assert call(machine, "cudnnCreate", pointer(0)).status == BAD_PARAM
    with descriptor(machine, "Tensor") as made:
        assert call(machine, "cudnnSetStream", made, host(b"")).status == BAD_PARAM
