"""Recurrent networks of cuDNN: descriptors, weights and data in device memory."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

import numpy as np

from tests.libraries.cudnn import DATA_TYPES, call, descriptor, done, exact, handle, integers
from tests.libraries.machine import Answer, Argument, Array, Machine, host, integer, out, pointer, wide
from tests.libraries.rnn_reference import BOTH_BIASES, GATES, INPUT_BIAS, LSTM, STATE_BIAS, Network, Weights

STEPS, PACKED, SEQUENCES = range(3)
INFERENCE, TRAINING = range(2)
NOWHERE: Final = pointer(0)


def to_layout(net: Network, values: Array, layout: int) -> Array:
    """[step, sequence, number] as it lies in memory."""
    if layout == SEQUENCES:
        return np.ascontiguousarray(values.swapaxes(0, 1))
    if layout == STEPS:
        return np.ascontiguousarray(values)
    return np.concatenate(
        [values[t, : sum(length > t for length in net.lengths)] for t in range(max(net.lengths))]
    )


def from_layout(net: Network, memory: Array, layout: int) -> Array:
    """The opposite; what packed data does not have is zero."""
    if layout == SEQUENCES:
        return memory.swapaxes(0, 1)
    if layout == STEPS:
        return memory
    made = np.zeros((net.steps, net.batch, memory.shape[-1]), memory.dtype)
    at = 0
    for t in range(max(net.lengths)):
        count = sum(length > t for length in net.lengths)
        made[t, :count] = memory[at : at + count]
        at += count
    return made


class Recurrent:
    """A network's descriptors, and the memory of its weights."""

    def __init__(
        self, stack: ExitStack, machine: Machine, net: Network, dtype: np.dtype[np.generic], layout: int = STEPS,
        dropout: Argument = NOWHERE, fill: float | None = None,
    ) -> None:  # fmt: skip
        self.machine, self.net, self.dtype, self.layout, self.stack = machine, net, dtype, layout, stack
        self.cudnn = stack.enter_context(handle(machine))
        self.descriptor = stack.enter_context(descriptor(machine, "RNN"))
        kinds = [
            0,
            net.cell,
            net.bias,
            net.directions - 1,
            0,
            DATA_TYPES[dtype],
            1 if dtype == np.float64 else 0,
            0,
        ]
        sizes = [net.input, net.hidden, net.state, net.layers]
        numbers = [integer(value) for value in kinds + sizes]
        done(machine, "cudnnSetRNNDescriptor_v8", self.descriptor, *numbers, dropout, integer(1))
        self.x = self.data(net.input, fill)
        self.y = self.data(net.width, fill)
        self.state, self.cells = self.states(net.states), self.states(net.cells)
        self.weight_bytes = done(
            machine, "cudnnGetRNNWeightSpaceSize", self.cudnn, self.descriptor, out(8)
        ).number()
        self.inference = self.sizes(INFERENCE)
        self.training = self.sizes(TRAINING)

    def states(self, sizes: tuple[int, int, int]) -> Argument:
        made = self.stack.enter_context(descriptor(self.machine, "Tensor"))
        # PyTorch gives five dimensions.
        strides = [sizes[1] * sizes[2], sizes[2], 1, 1, 1]
        done(
            self.machine, "cudnnSetTensorNdDescriptor", made, integer(DATA_TYPES[self.dtype]), integer(5),
            integers([*sizes, 1, 1]), integers(strides),
        )  # fmt: skip
        return made

    def data(self, vector: int, fill: float | None) -> Argument:
        made = self.stack.enter_context(descriptor(self.machine, "RNNData"))
        net = self.net
        numbers = [
            integer(value) for value in (DATA_TYPES[self.dtype], self.layout, net.steps, net.batch, vector)
        ]
        value = NOWHERE if fill is None else host(np.array([fill]).astype(self.dtype))
        done(self.machine, "cudnnSetRNNDataDescriptor", made, *numbers, integers(net.lengths), value)
        return made

    def sizes(self, mode: int) -> tuple[int, int]:
        answer = done(
            self.machine, "cudnnGetRNNTempSpaceSizes", self.cudnn, self.descriptor, integer(mode), self.x, out(8), out(8)
        )  # fmt: skip
        return answer.number(0), answer.number(1)

    def memory(self, size: int) -> int:
        """Of any content, as memory is."""
        [address] = self.stack.enter_context(self.machine.arrays(np.full(max(size, 1), 0x5A, np.uint8)))
        return address

    def put(self, array: Array) -> int:
        [address] = self.stack.enter_context(
            self.machine.arrays(np.ascontiguousarray(array.astype(self.dtype)))
        )
        return address

    def place(self, pseudo_layer: int, gate: int) -> tuple[int, tuple[int, ...], int]:
        """Offsets of a gate's matrix and bias (-1: none), and the matrix's shape."""
        base = 1 << 20
        with descriptor(self.machine, "Tensor") as matrix, descriptor(self.machine, "Tensor") as bias:

            def told_of(*wanted: Argument) -> Answer:
                return done(
                    self.machine, "cudnnGetRNNWeightParams", self.cudnn, self.descriptor, integer(pseudo_layer),
                    wide(self.weight_bytes), pointer(base), integer(gate), *wanted,
                )  # fmt: skip

            answer = told_of(matrix, out(8), bias, out(8))
            # PyTorch asks for one of the two.
            assert told_of(matrix, out(8), NOWHERE, NOWHERE).number(0) == answer.number(0)
            assert told_of(NOWHERE, NOWHERE, bias, out(8)).number(0) == answer.number(1)
            told = done(
                self.machine,
                "cudnnGetTensorNdDescriptor",
                matrix,
                integer(3),
                out(4),
                out(4),
                out(12),
                out(12),
            )
            shape = tuple(int(size) for size in np.frombuffer(told.outputs[2], np.int32))
        at = answer.number(1)
        return answer.number(0) - base, shape, at - base if at else -1

    def flat(self, weights: Weights) -> Array:
        """The weights where cuDNN says that they lie."""
        made = np.zeros(self.weight_bytes // self.dtype.itemsize, self.dtype)
        for array, at, values in self.places(weights):
            made[at : at + values.size] = array.reshape(-1)
        return made

    def places(self, weights: Weights) -> list[tuple[Array, int, Array]]:
        """Each gate's matrix and bias with the element it begins at."""
        found: list[tuple[Array, int, Array]] = []
        net, size = self.net, self.dtype.itemsize
        gates = GATES[net.cell]
        for at in range(net.layers * net.directions):
            for gate in range(2 * gates):
                matrix, shape, bias = self.place(at, gate)
                recurrent = gate // gates
                rows = slice(gate % gates * net.hidden, (gate % gates + 1) * net.hidden)
                values = weights.matrices[at][recurrent][rows]
                assert shape == (1, *values.shape)
                found.append((values, matrix // size, values))
                has_bias = net.bias in {BOTH_BIASES, STATE_BIAS if recurrent else INPUT_BIAS}
                assert (bias >= 0) == has_bias
                if has_bias:
                    values = weights.biases[at][recurrent][rows]
                    found.append((values, bias // size, values))
            if net.projection:
                matrix, shape, bias = self.place(at, 2 * gates)
                values = weights.projections[at]
                assert (shape, bias) == ((1, *values.shape), -1)
                found.append((values, matrix // size, values))
        return found

    def run(self, mode: int, x: int, y: int, states: list[int], weights: int, spaces: tuple[int, int]) -> int:
        """The status of cudnnRNNForward; ``states``: addresses of hx, hy, cx, cy."""
        hx, hy, cx, cy = (pointer(address) for address in states)
        workspace, reserve = spaces
        sizes = self.inference if mode == INFERENCE else self.training
        cells = self.cells if self.net.cell == LSTM else NOWHERE
        return call(
            self.machine, "cudnnRNNForward", self.cudnn, self.descriptor, integer(mode), NOWHERE, self.x, pointer(x), self.y,
            pointer(y), self.state, hx, hy, cells, cx, cy, wide(self.weight_bytes), pointer(weights), wide(sizes[0]),
            pointer(workspace), wide(sizes[1]), pointer(reserve),
        ).status  # fmt: skip

    def backward_data(
        self, y: int, dy: int, dx: int, h: list[int], c: list[int], weights: int, spaces: tuple[int, int]
    ) -> int:
        """``h``, ``c``: addresses of the state, of the last one's gradient and of the first one's."""
        return call(
            self.machine, "cudnnRNNBackwardData_v8", self.cudnn, self.descriptor, NOWHERE, self.y, pointer(y), pointer(dy),
            self.x, pointer(dx), self.state, *map(pointer, h), self.cells, *map(pointer, c), wide(self.weight_bytes),
            pointer(weights), wide(self.training[0]), pointer(spaces[0]), wide(self.training[1]), pointer(spaces[1]),
        ).status  # fmt: skip

    def backward_weights(
        self, x: int, hx: int, y: int, gradient: int, spaces: tuple[int, int], sets: bool = False
    ) -> int:
        return call(
            self.machine, "cudnnRNNBackwardWeights_v8", self.cudnn, self.descriptor, integer(int(sets)), NOWHERE, self.x,
            pointer(x), self.state, pointer(hx), self.y, pointer(y), wide(self.weight_bytes), pointer(gradient),
            wide(self.training[0]), pointer(spaces[0]), wide(self.training[1]), pointer(spaces[1]),
        ).status  # fmt: skip


def random_weights(generator: np.random.Generator, net: Network, dtype: np.dtype[np.generic]) -> Weights:
    made = Weights()

    def some(*shape: int) -> Array:
        return exact((0.5 * generator.standard_normal(shape)).astype(dtype))

    for at in range(net.layers * net.directions):
        made.matrices.append((some(net.rows, net.columns(at)), some(net.rows, net.state)))
        biases = [some(net.rows), some(net.rows)]
        if net.bias not in {BOTH_BIASES, INPUT_BIAS}:
            biases[0] = np.zeros(net.rows)
        if net.bias not in {BOTH_BIASES, STATE_BIAS}:
            biases[1] = np.zeros(net.rows)
        made.biases.append((biases[0], biases[1]))
        if net.projection:
            made.projections.append(some(net.projection, net.hidden))
    return made
