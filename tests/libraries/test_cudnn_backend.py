"""Convolutions as graphs of cuDNN: what they compute, what descriptors accept, and what is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.libraries import convolution_reference as reference
from tests.libraries import cudnn_graphs as graphs
from tests.libraries.convolution_reference import Geometry
from tests.libraries.cudnn import (
    BAD_PARAM,
    NCHW,
    NHWC,
    NOT_SUPPORTED,
    REAL_TYPES,
    SUCCESS,
    assert_close,
    call,
    done,
    exact,
    handle,
    random,
    to_format,
)
from tests.libraries.cudnn_graphs import BACKWARD_DATA, BACKWARD_FILTER, FORWARD, Graphs
from tests.libraries.machine import Array, Machine, integer, out, pointer
from tests.libraries.test_convolution import drawn, problems, terms, wanted

SINGLE: Final = np.dtype(np.float32)
DIRECTIONS: Final = {"Forward": FORWARD, "BackwardData": BACKWARD_DATA, "BackwardFilter": BACKWARD_FILTER}
NULL_POINTER, NOT_FINALIZED, ATTRIBUTE_TYPE, DESCRIPTOR_TYPE = 2002, 2004, 2010, 2012
PATTERN, TYPE_NOT_SUPPORTED, SHAPE_MISMATCH = 3001, 3003, 2008
ADD, RELU = 0, 100
quickly = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@contextmanager
def graphs_on(machine: Machine) -> Iterator[Graphs]:
    with handle(machine) as cudnn:
        made = Graphs(machine, cudnn)
        with made.stack:
            yield made


def computed(
    machine: Machine, made: Graphs, graph: int, arrays: list[Array], form: int, result: int
) -> Array:
    """Runs a graph whose tensors have the numbers 1, 2, … in the order of ``arrays``."""
    assert made.finalize(graph) == SUCCESS
    with machine.arrays(*(to_format(array, form) for array in arrays)) as addresses:
        assert made.execute(made.plan(graph), dict(enumerate(addresses, 1))) == SUCCESS
        memory = machine.get(addresses[result], to_format(arrays[result], form))
    return np.moveaxis(memory, -1, 1) if form == NHWC else memory


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
    result = {"Forward": 2, "BackwardData": 0, "BackwardFilter": 1}[direction]
    with graphs_on(machine) as made:
        tensors = [made.tensor(array, form, number) for number, array in enumerate(arrays, 1)]
        operation = made.operation(DIRECTIONS[direction], made.convolution(of, dtype), tensors, 1.5, beta)
        graph = made.unfinished_graph(operation)
        values = computed(machine, made, graph, list(arrays), form, result)
    expected = 1.5 * wanted(direction, arrays, of) + beta * exact(arrays[result])
    assert_close(values, expected, terms(direction, arrays))


@pytest.mark.parametrize("form", [NCHW, NHWC])
@pytest.mark.parametrize("with_z", [False, True])
def test_addition_bias_and_activation_after_a_convolution(machine: Machine, with_z: bool, form: int) -> None:
    of = Geometry((1, 0), (1, 1), (1, 1))
    x, w, z = drawn(7, (2, 3, 6, 7), (4, 3, 3, 2), of, SINGLE)
    bias = random(np.random.default_rng(8), (1, 4, 1, 1), SINGLE)
    with graphs_on(machine) as made:
        at_x, at_w, at_z, at_y, at_bias = (
            made.tensor(array, form, number)
            for number, array in enumerate((x, w, z, np.zeros_like(z), bias), 1)
        )
        inner = [made.tensor(z, form, 10 + number, virtual=True) for number in range(3)]
        operations = [made.operation(FORWARD, made.convolution(of, SINGLE), [at_x, at_w, inner[0]])]
        if with_z:
            operations.append(made.pointwise(ADD, inner[0], inner[1], at_z, 0.75))
        before = inner[1] if with_z else inner[0]
        operations.append(made.pointwise(ADD, before, inner[2], at_bias))
        operations.append(made.pointwise(RELU, inner[2], at_y))
        graph = made.unfinished_graph(*operations)
        values = computed(machine, made, graph, [x, w, z, np.zeros_like(z), bias], form, 3)
    sums = reference.forward(exact(x), exact(w), of) + (0.75 * exact(z) if with_z else 0) + exact(bias)
    assert_close(values, np.maximum(sums, 0), 10)


def test_what_is_added_by_nothing_needs_no_address(machine: Machine) -> None:
    """TensorFlow's convolution with a bias and an activation has an operand of factor 0 and without an address."""
    of = Geometry((1, 1), (1, 1), (1, 1))
    x, w, y = drawn(9, (2, 3, 5, 5), (4, 3, 3, 3), of, SINGLE)
    bias = random(np.random.default_rng(10), (1, 4, 1, 1), SINGLE)
    with graphs_on(machine) as made:
        at_x, at_w, at_y, at_bias, at_z = (
            made.tensor(array, NCHW, number) for number, array in enumerate((x, w, y, bias, y), 1)
        )
        inner = [made.tensor(y, NCHW, 10 + number, virtual=True) for number in range(3)]
        graph = made.unfinished_graph(
            made.operation(FORWARD, made.convolution(of, SINGLE), [at_x, at_w, inner[0]]),
            made.pointwise(ADD, inner[0], inner[1], at_z, 0),
            made.pointwise(ADD, inner[1], inner[2], at_bias),
            made.pointwise(RELU, inner[2], at_y),
        )
        assert made.finalize(graph) == SUCCESS
        with machine.arrays(x, w, y, bias) as addresses:
            assert made.execute(made.plan(graph), dict(enumerate([*addresses, 0], 1))) == SUCCESS
            values = machine.get(addresses[2], y)
    assert_close(values, np.maximum(reference.forward(exact(x), exact(w), of) + exact(bias), 0), 10)


@contextmanager
def small_graph(machine: Machine) -> Iterator[tuple[Graphs, int, list[int]]]:
    """Graphs, an unfinished graph of a convolution, and its tensors."""
    x, w, y = drawn(1, (1, 2, 5, 5), (3, 2, 3, 3), Geometry((0, 0), (1, 1), (1, 1)), SINGLE)
    with graphs_on(machine) as made:
        tensors = [made.tensor(array, NCHW, number) for number, array in enumerate((x, w, y), 1)]
        convolution = made.convolution(Geometry((0, 0), (1, 1), (1, 1)), SINGLE)
        yield made, made.unfinished_graph(made.operation(FORWARD, convolution, tensors)), tensors


def test_there_are_two_engines_of_single_precision_without_workspace(machine: Machine) -> None:
    with small_graph(machine) as (made, graph, _):
        assert made.finalize(graph) == SUCCESS
        assert int.from_bytes(made.get(graph, 802, graphs.INT64, 8).outputs[1], "little") == 2
        for number, configuration in enumerate(made.configurations(graph, mode=2)):
            engine = made.engine(configuration)
            assert int.from_bytes(made.get(engine, 1301, graphs.INT64, 8).outputs[1], "little") == number
            plan = made.plan_of(configuration)
            assert int.from_bytes(made.get(plan, 402, graphs.INT64, 8).outputs[1], "little") == 0
        # An engine may be named by its number, too.
        for number in range(2):
            named = ((1300, graphs.DESCRIPTOR, [graph]), (1301, graphs.INT64, [number]))
            assert made.notes(made.made(graphs.ENGINE, *named)) == [[0], []][number]
        for number in (-1, 2):
            named = ((1300, graphs.DESCRIPTOR, [graph]), (1301, graphs.INT64, [number]))
            assert made.finalize(made.unfinished(graphs.ENGINE, *named)) // 1000 * 1000 == BAD_PARAM


def test_attributes_are_checked_by_the_kind_of_descriptor(machine: Machine) -> None:
    with graphs_on(machine) as made:
        tensor = made.create(graphs.TENSOR)
        assert made.set(tensor, 902, graphs.INT64, 1, 2, 3) == SUCCESS
        assert made.set(tensor, 902, graphs.FLOAT, 1, 2, 3) == ATTRIBUTE_TYPE
        assert made.set(tensor, 902, graphs.INT64, *range(1, 10)) == BAD_PARAM
        assert made.set(tensor, 100, graphs.DATA_TYPE, 0) == BAD_PARAM
        assert made.get(tensor, 902, graphs.INT64, 24, 3).status == NOT_FINALIZED
        assert made.finalize(tensor) == BAD_PARAM
        for name, kind, values in (
            (901, graphs.DATA_TYPE, [0]),
            (903, graphs.INT64, [6, 3, 1]),
            (906, graphs.INT64, [5]),
            (900, graphs.INT64, [4]),
        ):
            assert made.set(tensor, name, kind, *values) == SUCCESS
        graph = made.create(graphs.GRAPH)
        assert made.set(graph, 801, graphs.DESCRIPTOR, tensor) == NOT_FINALIZED
        assert made.set(graph, 801, graphs.DESCRIPTOR, 0) == NULL_POINTER
        assert made.finalize(tensor) == SUCCESS
        assert made.set(tensor, 906, graphs.INT64, 6) == BAD_PARAM
        answer = made.get(tensor, 902, graphs.INT64, 24, 3)
        assert (answer.status, answer.number()) == (SUCCESS, 3)
        assert answer.outputs[1] == b"".join(value.to_bytes(8, "little") for value in (1, 2, 3))
        assert made.get(tensor, 901, graphs.INT64, 8).status == ATTRIBUTE_TYPE
        assert call(machine, "cudnnBackendFinalize", pointer(0)).status == NULL_POINTER
        assert call(machine, "cudnnBackendCreateDescriptor", integer(99), out(8)).status == NOT_SUPPORTED


def test_so_many_results_are_told_of_as_were_written(machine: Machine) -> None:
    """PyTorch 2.15 asks for the first configuration, and takes the answer for the length of its list."""
    with small_graph(machine) as (made, graph, _):
        assert made.finalize(graph) == SUCCESS
        heuristic = made.made(
            graphs.HEURISTIC, (201, graphs.DESCRIPTOR, [graph]), (200, graphs.HEURISTIC_MODE, [0])
        )
        assert made.fill(heuristic, 202) == 2
        for count in (1, 2, 3):
            into = [made.create(graphs.ENGINE_CONFIG) for _ in range(count)]
            assert made.fill(heuristic, 202, *into) == min(count, 2)


def test_a_result_goes_into_a_descriptor_of_its_kind(machine: Machine) -> None:
    with small_graph(machine) as (made, graph, _):
        assert made.finalize(graph) == SUCCESS
        heuristic = made.made(
            graphs.HEURISTIC, (201, graphs.DESCRIPTOR, [graph]), (200, graphs.HEURISTIC_MODE, [0])
        )
        other = made.create(graphs.ENGINE)
        content = other.to_bytes(8, "little")
        answer = call(
            machine, "cudnnBackendGetAttribute", pointer(heuristic), integer(202), integer(graphs.DESCRIPTOR),
            ("l", 1), out(8), ("bytes", content),
        )  # fmt: skip
        assert answer.status == DESCRIPTOR_TYPE


def last_error(machine: Machine) -> str:
    answer = call(machine, "cudnnGetLastErrorString", out(300), ("l", 300))
    return answer.outputs[0].split(b"\0")[0].decode()


def test_a_graph_of_another_operation_is_refused_by_its_name(machine: Machine) -> None:
    with graphs_on(machine) as made:
        product = made.made(graphs.MATMUL)
        assert made.finalize(made.unfinished_graph(product)) == PATTERN
        assert "MATMUL" in last_error(machine)


def test_a_graph_that_goes_on_in_another_way_is_refused(machine: Machine) -> None:
    with small_graph(machine) as (made, _, tensors):
        convolution = made.convolution(Geometry((0, 0), (1, 1), (1, 1)), SINGLE)
        y = made.tensor(np.zeros((1, 3, 3, 3), SINGLE), NCHW, 9)
        operation = made.operation(FORWARD, convolution, tensors)
        # What the convolution makes is stored, too.
        assert made.finalize(made.unfinished_graph(operation, made.pointwise(RELU, tensors[2], y))) == PATTERN
        assert "POINTWISE" in last_error(machine)
        assert made.finalize(made.unfinished_graph(operation, operation)) == PATTERN


def test_shapes_that_do_not_fit_are_a_wrong_argument(machine: Machine) -> None:
    with small_graph(machine) as (made, _, tensors):
        operation = made.operation(
            FORWARD, made.convolution(Geometry((1, 1), (1, 1), (1, 1)), SINGLE), tensors
        )
        assert made.finalize(made.unfinished_graph(operation)) == SHAPE_MISMATCH


def test_types_that_are_not_computed_in_are_not_supported(machine: Machine) -> None:
    with small_graph(machine) as (made, _, tensors):
        narrow = made.tensor(np.zeros((1, 2, 5, 5), np.int8), NCHW, 1)
        convolution = made.convolution(Geometry((0, 0), (1, 1), (1, 1)), SINGLE)
        operation = made.operation(FORWARD, convolution, [narrow, *tensors[1:]])
        assert made.finalize(made.unfinished_graph(operation)) == TYPE_NOT_SUPPORTED


def test_a_pack_without_a_tensor_is_a_wrong_argument(machine: Machine) -> None:
    with small_graph(machine) as (made, graph, _):
        assert made.finalize(graph) == SUCCESS
        assert made.execute(made.plan(graph), {1: 256, 2: 256}) == BAD_PARAM
    assert machine.synchronize() == 0


def test_a_graph_outlives_the_descriptors_that_it_was_made_of(machine: Machine) -> None:
    of = Geometry((0, 0), (1, 1), (1, 1))
    arrays = drawn(1, (1, 2, 5, 5), (3, 2, 3, 3), of, SINGLE)
    with ExitStack() as stack, graphs_on(machine) as made:
        with ExitStack() as parts:
            short = Graphs(machine, made.handle, parts)
            tensors = [short.tensor(array, NCHW, number) for number, array in enumerate(arrays, 1)]
            graph = made.unfinished_graph(short.operation(FORWARD, short.convolution(of, SINGLE), tensors))
            assert made.finalize(graph) == SUCCESS
            plan = made.plan(graph)
        addresses = stack.enter_context(machine.arrays(*arrays))
        assert made.execute(plan, dict(enumerate(addresses, 1))) == SUCCESS
        assert_close(machine.get(addresses[2], arrays[2]), wanted("Forward", arrays, of), 5)
        workspace = done(
            machine, "cudnnGetExecutionPlanWorkspaceSize", made.handle, pointer(plan),
            pointer(made.pack(dict(enumerate(addresses, 1)))), out(8),
        )  # fmt: skip
        assert workspace.number() == 0
