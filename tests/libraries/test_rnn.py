"""Recurrent networks of cuDNN against their definition, and their gradients against differences of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.libraries.cudnn import (
    BAD_PARAM,
    NOT_SUPPORTED,
    REAL_TYPES,
    SUCCESS,
    assert_close,
    call,
    descriptor,
    exact,
)
from tests.libraries.cudnn_rnn import (
    INFERENCE,
    PACKED,
    SEQUENCES,
    STEPS,
    TRAINING,
    Recurrent,
    from_layout,
    random_weights,
    to_layout,
)
from tests.libraries.machine import Array, Machine, integer, out, pointer, wide
from tests.libraries.rnn_reference import BOTH_BIASES, GRU, LSTM, RELU, TANH, Network, Weights, forward, step
from tests.libraries.test_dropout import Dropout, kept

DOUBLE: Final = np.dtype(np.float64)
SINGLE: Final = np.dtype(np.float32)
#: Of a network's kind: whether its h has fewer numbers than its cells.
KINDS: Final = pytest.mark.parametrize(
    ("cell", "projects"),
    [(RELU, False), (TANH, False), (LSTM, False), (LSTM, True), (GRU, False)],
    ids=["relu", "tanh", "lstm", "projected lstm", "gru"],
)
quickly = settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
layouts = st.sampled_from([STEPS, PACKED, SEQUENCES])


@st.composite
def networks(draw: st.DrawFn, most: int = 20) -> Callable[[int, bool], Network]:
    """A network of any kind. More sequences than eight are more than one block has."""
    steps = draw(st.integers(1, 5))
    lengths = draw(st.lists(st.integers(0, steps), min_size=1, max_size=most))
    lengths[0] = max(lengths[0], 1)
    bias, directions = draw(st.integers(0, 3)), draw(st.integers(1, 2))
    layers, width, hidden = draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.integers(1, 6))
    ordered, projection = tuple(sorted(lengths, reverse=True)), draw(st.integers(1, hidden))

    def made(cell: int, projects: bool) -> Network:
        return Network(
            cell, bias, directions, layers, width, hidden + projects, steps, ordered, projection * projects
        )

    return made


class Case:
    """Random weights and data of a network, rounded to the type that they have in memory."""

    def __init__(self, net: Network, dtype: np.dtype[np.generic], seed: int = 1) -> None:
        self.net, self.dtype = net, dtype
        self.generator = np.random.default_rng(seed)
        self.weights = random_weights(self.generator, net, dtype)
        self.x = self.some(net.steps, net.batch, net.input)
        self.hx, self.cx = self.some(*net.states), self.some(*net.cells)

    def some(self, *shape: int) -> Array:
        return exact(self.generator.standard_normal(shape).astype(self.dtype))


def there(net: Network) -> Array:
    """1 where a sequence has a step, [step, sequence, 1]."""
    return (np.arange(net.steps)[:, None] < np.array(net.lengths))[..., None].astype(float)


@KINDS
@pytest.mark.parametrize("dtype", REAL_TYPES, ids=str)
@quickly
@given(net=networks(), layout=layouts, mode=st.sampled_from([INFERENCE, TRAINING]), begins=st.booleans())
def test_a_network(
    machine: Machine, cell: int, projects: bool, dtype: np.dtype[np.generic], net: Callable[[int, bool], Network],
    layout: int, mode: int, begins: bool,
) -> None:  # fmt: skip
    case = Case(net(cell, projects), dtype)
    if not begins:  # states that are not given are zeros
        case.hx, case.cx = np.zeros_like(case.hx), np.zeros_like(case.cx)
    wanted = forward(case.net, case.weights, case.x, case.hx, case.cx)
    with ExitStack() as stack:
        of = Recurrent(stack, machine, case.net, dtype, layout, fill=0)
        like_y = to_layout(case.net, wanted[0], layout).astype(dtype)
        x, y = of.put(to_layout(case.net, case.x, layout)), of.put(np.full_like(like_y, 9))
        arrays = (case.hx, np.full_like(case.hx, 9), case.cx, np.full_like(case.cx, 9))
        hx, hy, cx, cy = (of.put(array) for array in arrays)
        states = [hx, hy, cx, cy] if begins else [0, hy, 0, cy]
        spaces = [of.memory(size) for size in (of.inference if mode == INFERENCE else of.training)]
        assert of.run(mode, x, y, states, of.put(of.flat(case.weights)), (spaces[0], spaces[1])) == SUCCESS
        assert_close(from_layout(case.net, machine.get(y, like_y), layout), wanted[0], 8)
        assert_close(machine.get(hy, case.hx.astype(dtype)), wanted[1], 8)
        if cell == LSTM:
            assert_close(machine.get(cy, case.cx.astype(dtype)), wanted[2], 8)


def masks(net: Network, seed: int, rate: float) -> list[Array]:
    """The factors between layers: a number of the sequence for each step, also for those behind a sequence's end."""
    shape = (net.layers - 1, net.steps, net.batch, net.width)
    return list(kept(seed, 0, int(np.prod(shape)), rate).reshape(shape) / (1 - rate))


class Gradients:
    """What cuDNN says, as doubles: of the input, of both first states, and of each gate's weights."""

    def __init__(
        self, machine: Machine, case: Case, layout: int, out_gradients: tuple[Array, Array, Array], before: float = 0,
        dropping: tuple[float, int] | None = None,
    ) -> None:  # fmt: skip
        """``dropping``: rate and seed."""
        net, dtype = case.net, case.dtype
        dy, dhy, dcy = out_gradients
        with ExitStack() as stack:
            dropout = pointer(0) if dropping is None else Dropout(stack, machine, *dropping).descriptor
            of = Recurrent(stack, machine, net, dtype, layout, dropout, fill=0)
            x, hx, cx = of.put(to_layout(net, case.x, layout)), of.put(case.hx), of.put(case.cx)
            y, at_dy = of.put(to_layout(net, dy, layout)), of.put(to_layout(net, dy, layout))
            like_x = to_layout(net, case.x, layout).astype(dtype)
            dx, dhx, dcx = of.put(like_x), of.put(case.hx), of.put(case.cx)
            flat = of.flat(case.weights)
            weights, gradient = of.put(flat), of.put(np.full_like(flat, before))
            spaces = (of.memory(of.training[0]), of.memory(of.training[1]))
            assert of.run(TRAINING, x, y, [hx, 0, cx, 0], weights, spaces) == SUCCESS
            self.y = exact(from_layout(net, machine.get(y, to_layout(net, dy, layout).astype(dtype)), layout))
            states = [hx, of.put(dhy), dhx], [cx, of.put(dcy), dcx]
            assert of.backward_data(y, at_dy, dx, *states, weights, spaces) == SUCCESS
            assert of.backward_weights(x, hx, y, gradient, spaces) == SUCCESS
            self.x = exact(from_layout(net, machine.get(dx, like_x), layout))
            self.hx, self.cx = (
                exact(machine.get(at, like.astype(dtype))) for at, like in ((dhx, case.hx), (dcx, case.cx))
            )
            made = exact(machine.get(gradient, flat)) - before
            assert of.backward_weights(x, hx, y, gradient, spaces, sets=True) == SUCCESS
            set_to = exact(machine.get(gradient, flat))
            self.set_differs = float(np.abs(set_to - made).max())
            self.weights = [
                (array, made[at : at + values.size].reshape(values.shape))
                for array, at, values in of.places(case.weights)
            ]


class Definition:
    """What a network's definition says of its gradients: differences of a sum of its results, at some places."""

    def __init__(self, net: Network, dropping: tuple[float, int] | None) -> None:
        self.case = Case(net, DOUBLE)
        self.out_gradients = (
            self.case.some(net.steps, net.batch, net.width) * there(net),
            self.case.some(*net.states),
            self.case.some(*net.cells),
        )
        if net.cell != LSTM:
            self.out_gradients[2][:] = 0
        self._between = None if dropping is None else masks(net, dropping[1], dropping[0])
        self.y = self._results()[0]
        self._known: dict[tuple[int, int], list[tuple[tuple[int, ...], float]]] = {}

    def _results(self) -> tuple[Array, Array, Array]:
        case = self.case
        return forward(case.net, case.weights, case.x, case.hx, case.cx, self._between)

    def _loss(self) -> float:
        return float(
            sum((w * result).sum() for w, result in zip(self.out_gradients, self._results(), strict=True))
        )

    def differences(self, array: Array) -> list[tuple[tuple[int, ...], float]]:
        """Places in ``array``, which is part of the case, and the gradient there; any place would tell."""
        key = array.__array_interface__["data"][0], array.size
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = []
            for pick in np.random.default_rng(2).permutation(array.size)[:4]:
                at = tuple(int(k) for k in np.unravel_index(pick, array.shape))
                value, small = array[at], 1e-6
                array[at] = value + small
                above = self._loss()
                array[at] = value - small
                below = self._loss()
                array[at] = value
                known.append((at, (above - below) / (2 * small)))
        return known


#: Other layouts, and the other ways to the library, have the same one.
definition_of = lru_cache(maxsize=32)(Definition)


def check_gradients(machine: Machine, net: Network, layout: int, dropping: tuple[float, int] | None) -> None:
    wanted = definition_of(net, dropping)
    case = wanted.case
    found = Gradients(machine, case, layout, wanted.out_gradients, before=3, dropping=dropping)
    assert found.set_differs < 1e-12
    np.testing.assert_allclose(found.y, wanted.y, rtol=1e-10, atol=1e-10)
    of_cells = [(case.cx, found.cx)] if net.cell == LSTM else []
    for array, gradient in [(case.x, found.x), (case.hx, found.hx), *of_cells, *found.weights]:
        for at, difference in wanted.differences(array):
            np.testing.assert_allclose(gradient[at], difference, rtol=1e-5, atol=1e-6)


@KINDS
@quickly
@given(net=networks(most=3), layout=layouts)
def test_gradients_are_what_differences_say(
    machine: Machine, cell: int, projects: bool, net: Callable[[int, bool], Network], layout: int
) -> None:
    check_gradients(machine, net(cell, projects), layout, None)


@KINDS
@pytest.mark.parametrize("layout", [STEPS, PACKED, SEQUENCES], ids=["steps", "packed", "sequences"])
@pytest.mark.parametrize("lengths", [(4, 4), (4, 3, 1)], ids=["same", "shorter"])
def test_gradients_with_something_left_out_between_layers(
    machine: Machine, cell: int, projects: bool, layout: int, lengths: tuple[int, ...]
) -> None:
    net = Network(cell, BOTH_BIASES, 2, 3, 3, 3, 4, lengths, 2 * projects)
    check_gradients(machine, net, layout, (0.375, 17))


@KINDS
@pytest.mark.parametrize("dtype", [dtype for dtype in REAL_TYPES if dtype != DOUBLE], ids=str)
def test_gradients_of_narrower_types_are_those_of_doubles(
    machine: Machine, cell: int, projects: bool, dtype: np.dtype[np.generic]
) -> None:
    # More sequences than one block has, and more rows of matrices than one part has.
    case = Case(Network(cell, BOTH_BIASES, 2, 2, 5, 40, 4, (4,) * 9 + (2,) * 9, 24 * projects), dtype)
    net = case.net
    given_ = (
        case.some(net.steps, net.batch, net.width) * there(net),
        case.some(*net.states),
        case.some(*net.cells),
    )
    narrow = Gradients(machine, case, STEPS, given_)
    case.dtype = DOUBLE
    wide = Gradients(machine, case, STEPS, given_)
    tolerance = {4: 1e-4}.get(dtype.itemsize, 3e-2)
    pairs: list[tuple[Any, Any]] = [(narrow.x, wide.x), (narrow.hx, wide.hx)]
    pairs += [(one[1], other[1]) for one, other in zip(narrow.weights, wide.weights, strict=True)]
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * np.abs(other).max())


@pytest.mark.parametrize("directions", [1, 2])
def test_gradients_of_a_projection_with_more_rows_than_one_part(machine: Machine, directions: int) -> None:
    # Of one step, so that it can be said at once what they are.
    case = Case(Network(LSTM, BOTH_BIASES, directions, 1, 3, 135, 1, (1,) * 10, 130), DOUBLE)
    net = case.net
    dy = case.some(1, net.batch, net.width)
    found = Gradients(machine, case, STEPS, (dy, np.zeros(net.states), np.zeros(net.cells)))
    gradients = {id(array): gradient for array, gradient in found.weights}
    for at in range(directions):
        rows = slice(at * net.state, (at + 1) * net.state)
        (of_input, of_state), biases = case.weights.matrices[at], case.weights.biases[at]
        by_input, by_state = case.x[0] @ of_input.T + biases[0], case.hx[at] @ of_state.T + biases[1]
        made, _ = step(LSTM, by_input, by_state, case.hx[at], case.cx[at])
        projection = case.weights.projections[at]
        np.testing.assert_allclose(found.y[0][:, rows], made @ projection.T, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(gradients[id(projection)], dy[0][:, rows].T @ made, rtol=1e-10, atol=1e-10)


def chain(layers: int, steps: int, batch: int, hidden: int) -> tuple[Network, Weights]:
    """Layers that give on what they are given, as long as it is not negative."""
    net = Network(RELU, BOTH_BIASES, 1, layers, hidden, hidden, steps, (steps,) * batch)
    one, zero = np.eye(hidden), np.zeros((hidden, hidden))
    none = np.zeros(hidden)
    return net, Weights([(one, zero)] * layers, [(none, none)] * layers)


def test_dropout_between_layers(machine: Machine) -> None:
    net, weights = chain(2, 20, 12, 32)
    x = np.ones((net.steps, net.batch, net.input))
    with ExitStack() as stack:
        dropout = Dropout(stack, machine, 0.25, 3)
        of = Recurrent(stack, machine, net, SINGLE, dropout=dropout.descriptor)
        at_x, at_y, at_dx, at_weights = (of.put(array) for array in (x, x, x, of.flat(weights)))
        spaces = of.memory(of.training[0]), of.memory(of.training[1])

        def train() -> Array:
            assert of.run(TRAINING, at_x, at_y, [0] * 4, at_weights, spaces) == SUCCESS
            return exact(machine.get(at_y, x.astype(np.float32)))

        first, second = train(), train()
        for number, result in enumerate((first, second)):
            wanted = kept(3, number * x.size, x.size, 0.25).reshape(x.shape) / 0.75
            np.testing.assert_allclose(result, wanted, rtol=1e-6)
        # The gradient goes the same ways.
        assert of.backward_data(at_y, at_x, at_dx, [0] * 3, [0] * 3, at_weights, spaces) == SUCCESS
        np.testing.assert_array_equal(machine.get(at_dx, x.astype(np.float32)), second.astype(np.float32))
        # The first layer's results are the second one's input, with what was left out.
        gradient = of.put(np.zeros_like(of.flat(weights)))
        assert of.backward_weights(at_x, 0, at_y, gradient, spaces) == SUCCESS
        made = exact(machine.get(gradient, of.flat(weights)))
        matrix = of.place(1, 0)[0] // 4
        wanted = (second > 0).reshape(-1, 32).T.astype(float) @ second.reshape(-1, 32)
        np.testing.assert_allclose(made[matrix : matrix + 32 * 32].reshape(32, 32), wanted, rtol=1e-5)
        dropout.set("cudnnSetDropoutDescriptor", 0.25, 3)
        np.testing.assert_array_equal(train(), first)
        # Nothing is left out in inference.
        space = of.memory(of.inference[0])
        assert of.run(INFERENCE, at_x, at_y, [0] * 4, at_weights, (space, 0)) == SUCCESS
        np.testing.assert_array_equal(machine.get(at_y, x.astype(np.float32)), x)


@pytest.mark.parametrize("layout", [STEPS, SEQUENCES])
@pytest.mark.parametrize("fill", [None, -7.0])
def test_steps_behind_the_end(machine: Machine, layout: int, fill: float | None) -> None:
    """They get the value that is given for them, or stay as they are."""
    net = Network(TANH, BOTH_BIASES, 2, 1, 3, 2, 4, (4, 2, 0))
    case = Case(net, SINGLE)
    before = np.full((net.steps, net.batch, net.width), 5, SINGLE)
    with ExitStack() as stack:
        of = Recurrent(stack, machine, net, SINGLE, layout, fill=fill)
        x, y = of.put(to_layout(net, case.x, layout)), of.put(to_layout(net, before, layout))
        space = of.memory(of.inference[0])
        assert of.run(INFERENCE, x, y, [0] * 4, of.put(of.flat(case.weights)), (space, 0)) == SUCCESS
        result = from_layout(net, machine.get(y, to_layout(net, before, layout)), layout)
    ends = np.broadcast_to(there(net), before.shape) == 0
    assert (result[ends] == (5 if fill is None else fill)).all()
    assert (np.abs(result[~ends]) < 1).all()


def test_wrong_arguments(machine: Machine) -> None:
    net, weights = chain(1, 2, 2, 3)
    x = np.ones((2, 2, 3))
    with ExitStack() as stack:
        of = Recurrent(stack, machine, net, SINGLE)
        other = Recurrent(stack, machine, Network(RELU, BOTH_BIASES, 1, 1, 3, 3, 2, (2, 1)), SINGLE)
        at_x, at_weights, space = of.put(x), of.put(of.flat(weights)), of.memory(max(of.training))

        def run(mode: int = TRAINING) -> int:
            return of.run(mode, at_x, at_x, [0] * 4, at_weights, (space, space))

        assert run() == SUCCESS
        assert run(2) == BAD_PARAM
        right, of.y = of.y, of.x
        assert run() == SUCCESS  # of the same sizes
        of.y = other.y
        assert run() == BAD_PARAM  # other lengths
        of.y, sizes = right, of.training
        of.training = (sizes[0], sizes[1] - 1)
        assert run() == BAD_PARAM
        of.training, size = sizes, of.weight_bytes
        of.weight_bytes -= 1
        assert run() == BAD_PARAM
        of.weight_bytes = size
        of.state = pointer(0)
        assert of.run(TRAINING, at_x, at_x, [at_x, 0, 0, 0], at_weights, (space, space)) == BAD_PARAM

        def described(
            cell: int = LSTM, way: int = 0, hidden: int = 4, projection: int = 4, algorithm: int = 0
        ) -> int:
            with descriptor(machine, "RNN") as made:
                kinds = [algorithm, cell, BOTH_BIASES, 0, way, 0, 0, 0, 3, hidden, projection, 1]
                numbers = [integer(value) for value in kinds]
                return call(
                    machine, "cudnnSetRNNDescriptor_v8", made, *numbers, pointer(0), integer(0)
                ).status

        assert described() == SUCCESS
        assert described(cell=4) == BAD_PARAM
        assert described(hidden=0) == BAD_PARAM
        assert described(projection=5) == BAD_PARAM
        assert described(cell=GRU, projection=2) == BAD_PARAM
        assert described(projection=0) == BAD_PARAM
        assert described(projection=2) == SUCCESS
        assert described(projection=2, algorithm=1) == NOT_SUPPORTED
        assert described(way=1) == NOT_SUPPORTED


def test_wrong_arguments_of_a_projection(machine: Machine) -> None:
    case = Case(Network(LSTM, BOTH_BIASES, 1, 1, 3, 4, 2, (2, 2), 2), SINGLE)
    with ExitStack() as stack:
        of = Recurrent(stack, machine, case.net, SINGLE)
        x, y, h, c, weights = (
            of.put(array) for array in (case.x, case.x, case.hx, case.cx, of.flat(case.weights))
        )
        spaces = of.memory(of.training[0]), of.memory(of.training[1])

        def run() -> int:
            return of.run(TRAINING, x, y, [h, 0, c, 0], weights, spaces)

        assert run() == SUCCESS
        right = of.state, of.cells, of.y
        # h has as many numbers as the projection, c as many as the network's cells.
        for changed in ((right[1], right[1], right[2]), (right[0], right[0], right[2])):
            of.state, of.cells, of.y = changed
            assert run() == BAD_PARAM
        of.state, of.cells, of.y = *right[:2], of.data(case.net.hidden, None)
        assert run() == BAD_PARAM
        # The projection is behind an LSTM's gates, whether there is one or none, and nothing is behind it.
        plain = Recurrent(stack, machine, Network(LSTM, BOTH_BIASES, 1, 1, 3, 4, 2, (2, 2)), SINGLE)
        other = Recurrent(stack, machine, Network(GRU, BOTH_BIASES, 1, 1, 3, 4, 2, (2, 2)), SINGLE)
        for network, gate, status in (
            (of, 9, BAD_PARAM),
            (plain, 8, SUCCESS),
            (plain, 9, BAD_PARAM),
            (other, 6, BAD_PARAM),
        ):
            with descriptor(machine, "Tensor") as matrix:
                answer = call(
                    machine, "cudnnGetRNNWeightParams", network.cudnn, network.descriptor, integer(0),
                    wide(network.weight_bytes), pointer(weights), integer(gate), matrix, out(8), pointer(0), pointer(0),
                )  # fmt: skip
            assert answer.status == status
            if status == SUCCESS:
                assert answer.number(0) == 0


def test_weights_outside_the_devices_memory_are_an_illegal_address(lone_machine: Machine) -> None:
    illegal_address = 700
    net, _ = chain(1, 2, 2, 3)
    with ExitStack() as stack:
        of = Recurrent(stack, lone_machine, net, SINGLE)
        x, space = of.put(np.ones((2, 2, 3))), of.memory(of.inference[0])
        assert of.run(INFERENCE, x, x, [0] * 4, 0x1000, (space, 0)) == SUCCESS
        assert lone_machine.synchronize() == illegal_address
