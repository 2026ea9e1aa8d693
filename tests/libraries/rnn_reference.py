"""Recurrent networks as cuDNN's documentation defines them, step by step in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tests.libraries.machine import Array

RELU, TANH, LSTM, GRU = range(4)
GATES: Final = {RELU: 1, TANH: 1, LSTM: 4, GRU: 3}
NO_BIAS, INPUT_BIAS, BOTH_BIASES, STATE_BIAS = range(4)


@dataclass(frozen=True, slots=True)
class Network:
    """A network's sizes and kinds, and how long the sequences are."""

    cell: int
    bias: int
    directions: int
    layers: int
    input: int
    hidden: int
    steps: int
    lengths: tuple[int, ...]
    #: Numbers of an LSTM's h, which a matrix makes of the cell's; 0: there is none.
    projection: int = 0

    @property
    def batch(self) -> int:
        return len(self.lengths)

    @property
    def rows(self) -> int:
        return GATES[self.cell] * self.hidden

    @property
    def width(self) -> int:
        return self.directions * self.state

    @property
    def state(self) -> int:
        return self.projection or self.hidden

    @property
    def states(self) -> tuple[int, int, int]:
        return (self.layers * self.directions, self.batch, self.state)

    @property
    def cells(self) -> tuple[int, int, int]:
        return (self.layers * self.directions, self.batch, self.hidden)

    def columns(self, pseudo_layer: int) -> int:
        return self.input if pseudo_layer < self.directions else self.width


@dataclass(slots=True)
class Weights:
    """Of each layer and direction: matrices of the input and of the state, their biases (zeros: none), the projection."""

    matrices: list[tuple[Array, Array]] = field(default_factory=list)
    biases: list[tuple[Array, Array]] = field(default_factory=list)
    projections: list[Array] = field(default_factory=list)


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def parts(rows: Array, number: int) -> list[Array]:
    """What each of a cell's gates is given, one after the other in each row."""
    size = rows.shape[-1] // number
    return [rows[..., k * size : (k + 1) * size] for k in range(number)]


def step(cell: int, by_input: Array, by_state: Array, h: Array, c: Array) -> tuple[Array, Array]:
    """The next h and c of some sequences."""
    if cell == RELU:
        return np.maximum(by_input + by_state, 0), c
    if cell == TANH:
        return np.tanh(by_input + by_state), c
    if cell == LSTM:
        in_, forget, fresh, out = parts(by_input + by_state, 4)
        c = sigmoid(forget) * c + sigmoid(in_) * np.tanh(fresh)
        return sigmoid(out) * np.tanh(c), c
    p, q = parts(by_input, 3), parts(by_state, 3)
    reset, update = sigmoid(p[0] + q[0]), sigmoid(p[1] + q[1])
    return (1 - update) * np.tanh(p[2] + reset * q[2]) + update * h, c


def forward(
    net: Network, weights: Weights, x: Array, hx: Array, cx: Array, masks: Sequence[Array] | None = None
) -> tuple[Array, Array, Array]:
    """y, hy and cy; x and y are [step, sequence, number]. ``masks``: factors of what is given to each next layer."""
    hy, cy = hx.copy(), cx.copy()
    lengths = np.array(net.lengths)
    for layer in range(net.layers):
        y = np.zeros((net.steps, net.batch, net.width))
        for direction in range(net.directions):
            at = layer * net.directions + direction
            (of_input, of_state), (input_bias, state_bias) = weights.matrices[at], weights.biases[at]
            h, c = hy[at], cy[at]
            for t in range(net.steps) if direction == 0 else range(net.steps - 1, -1, -1):
                on = lengths > t  # the others have not begun, or are over
                by_input, by_state = x[t, on] @ of_input.T + input_bias, h[on] @ of_state.T + state_bias
                made, c[on] = step(net.cell, by_input, by_state, h[on], c[on])
                h[on] = made @ weights.projections[at].T if net.projection else made
                y[t, on, direction * net.state : (direction + 1) * net.state] = h[on]
        x = y if masks is None or layer == net.layers - 1 else y * masks[layer]
    return y, hy, cy
