"""Graphs of attention as programs build them: one operation for all of it, or matrix products, masks and a softmax in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tests.libraries.cudnn import DATA_TYPES
from tests.libraries.cudnn_graphs import (
    BOOLEAN,
    DATA_TYPE,
    DESCRIPTOR,
    INT64,
    OPERATION_POINTWISE,
    POINTWISE,
    POINTWISE_MODE,
    TENSOR,
    Graphs,
)
from tests.libraries.machine import Array, Machine, out, pointer, wide

MATMUL_SETTINGS, REDUCTION, OPERATION_REDUCTION, RESHAPE, RANDOM, OPERATION_RANDOM = 18, 21, 22, 31, 32, 33
OPERATION_MATMUL, SDPA_FORWARD, SDPA_BACKWARD, BAND_MASK, SOFTMAX = 19, 41, 43, 44, 45
REDUCTION_OPERATOR, DISTRIBUTION = 18, 29
ADD, MULTIPLY, DIVIDE, SUBTRACT, EXP, LOG, IDENTITY = 0, 1, 6, 9, 13, 15, 21
GREATER, GREATER_EQUAL, LESS, AND, INDEX, SELECT = 302, 303, 304, 400, 501, 601
SUM, MAXIMUM = 0, 3
INT64_TYPE: Final = 10
#: Its name, its type, its elements.
Attribute = tuple[int, int, Sequence[float]]
#: cudnnDataType_t of what numbers of a graph have.
#: cudnnDataType_t of numbers in between.
SINGLE: Final = 0
TYPES: Final = DATA_TYPES | {np.dtype(np.int64): INT64_TYPE}


@dataclass(slots=True)
class Value:
    """A tensor of a graph: its descriptor, its number, its sizes and its type (cudnnDataType_t)."""

    descriptor: int
    number: int
    sizes: tuple[int, ...]
    kind: int


@dataclass(slots=True)
class AttentionGraphs(Graphs):
    """Graphs whose tensors have numbers of their own, with the addresses that an execution gives them."""

    addresses: dict[int, int] = field(default_factory=dict)
    results: dict[int, Array] = field(default_factory=dict)
    operations: list[int] = field(default_factory=list)
    next: int = 1

    def value(self, sizes: tuple[int, ...], strides: tuple[int, ...], kind: int, *more: Attribute) -> Value:
        number = self.next
        self.next += 1
        descriptor = self.made(
            TENSOR, (901, DATA_TYPE, [kind]), (902, INT64, sizes), (903, INT64, strides), (906, INT64, [number]),
            (900, INT64, [16]), *more,
        )  # fmt: skip
        return Value(descriptor, number, sizes, kind)

    def virtual(self, *sizes: int, turned: bool = False, kind: int = SINGLE) -> Value:
        """What lies between two operations. An operand of a product has the type of the other one."""
        _, b, c, d = sizes
        strides = (b * c * d, c * d, 1, c) if turned else (b * c * d, c * d, d, 1)
        return self.value(sizes, strides, kind, (907, BOOLEAN, [1]))

    def put(self, array: Array, *, turned: bool = False, result: bool = False) -> Value:
        """An array in device memory by its strides; ``turned``: its last two dimensions are exchanged in the graph."""
        base = array if array.base is None else array.base
        assert isinstance(base, np.ndarray)
        assert base.nbytes == array.nbytes
        [address] = self.stack.enter_context(self.machine.arrays(base))
        seen = array.swapaxes(2, 3) if turned else array
        strides = tuple(step // array.itemsize for step in seen.strides)
        made = self.value(seen.shape, strides, TYPES[array.dtype])
        self.addresses[made.number] = address
        if result:
            self.results[made.number] = array
        return made

    def found(self, value: Value) -> Array:
        """What an execution left in an array."""
        like = self.results[value.number]
        base = like if like.base is None else like.base
        assert isinstance(base, np.ndarray)
        memory = self.machine.get(self.addresses[value.number], base)
        return np.ndarray(like.shape, like.dtype, memory.tobytes(), strides=like.strides)

    def given(self, number: float, dtype: type[np.generic] = np.float32) -> Value:
        """A number that is given by its value, in host memory."""
        content = np.array([number], dtype)
        [source] = self.stack.enter_context(self.machine.arrays(content))
        at = self.machine.driver("cuMemAllocHost_v2", out(8), wide(64)).number()
        self.stack.callback(self.machine.driver, "cuMemFreeHost", pointer(at))
        assert (
            self.machine.driver("cuMemcpyDtoH_v2", pointer(at), pointer(source), wide(content.nbytes)).status
            == 0
        )
        made = self.value((1, 1, 1, 1), (1, 1, 1, 1), TYPES[content.dtype], (908, BOOLEAN, [1]))
        self.addresses[made.number] = at
        return made

    def node(self, kind: int, *attributes: Attribute) -> None:
        self.operations.append(self.made(kind, *attributes))

    def point(
        self, mode: int, x: Value, b: Value | None = None, t: Value | None = None, *, axis: int = -1,
        kind: int = SINGLE,
    ) -> Value:  # fmt: skip
        """An operation element by element; what comes out is as large as the first operand."""
        y = self.virtual(*x.sizes, kind=kind)
        self.point_into(mode, x, b, y, t=t, axis=axis)
        return y

    def point_into(
        self, mode: int, x: Value, b: Value | None, y: Value, *, t: Value | None = None, axis: int = -1
    ) -> None:
        more: list[Attribute] = [(9, INT64, [axis])] if axis >= 0 else []
        how = self.made(POINTWISE, (0, POINTWISE_MODE, [mode]), (1, DATA_TYPE, [0]), *more)
        operands: list[Attribute] = [
            (name, DESCRIPTOR, [v.descriptor]) for name, v in ((752, b), (758, t)) if v is not None
        ]
        self.node(
            OPERATION_POINTWISE, (750, DESCRIPTOR, [how]), (751, DESCRIPTOR, [x.descriptor]),
            (753, DESCRIPTOR, [y.descriptor]), *operands,
        )  # fmt: skip

    def matmul(self, a: Value, b: Value, c: Value | None = None) -> Value:
        c = c or self.virtual(*a.sizes[:3], b.sizes[3])
        how = self.made(MATMUL_SETTINGS, (1500, DATA_TYPE, [0]))
        self.node(
            OPERATION_MATMUL, (1520, DESCRIPTOR, [a.descriptor]), (1521, DESCRIPTOR, [b.descriptor]),
            (1522, DESCRIPTOR, [c.descriptor]), (1523, DESCRIPTOR, [how]),
        )  # fmt: skip
        return c

    def reduce(self, mode: int, x: Value, y: Value | None = None) -> Value:
        y = y or self.virtual(*x.sizes[:3], 1)
        how = self.made(REDUCTION, (1600, REDUCTION_OPERATOR, [mode]), (1601, DATA_TYPE, [0]))
        self.node(
            OPERATION_REDUCTION, (1610, DESCRIPTOR, [x.descriptor]), (1611, DESCRIPTOR, [y.descriptor]),
            (1612, DESCRIPTOR, [how]),
        )  # fmt: skip
        return y

    def turn(self, x: Value, kind: int = SINGLE) -> Value:
        y = self.virtual(x.sizes[0], x.sizes[1], x.sizes[3], x.sizes[2], turned=True, kind=kind)
        self.node(RESHAPE, (2200, DESCRIPTOR, [x.descriptor]), (2201, DESCRIPTOR, [y.descriptor]))
        return y

    def random(self, kept: float, seed: Value, offset: Value, *sizes: int) -> Value:
        y = self.virtual(*sizes)
        how = self.made(RANDOM, (2300, DISTRIBUTION, [0]), (2305, 5, [kept]))
        self.node(
            OPERATION_RANDOM, (2310, DESCRIPTOR, [y.descriptor]), (2312, DESCRIPTOR, [how]),
            (2311, DESCRIPTOR, [seed.descriptor]), (2313, DESCRIPTOR, [offset.descriptor]),
        )  # fmt: skip
        return y

    def padding(self, scores: Value, q_lengths: Value, k_lengths: Value) -> Value:
        row, column = self.point(INDEX, scores, axis=2), self.point(INDEX, scores, axis=3)
        inside = self.point(AND, self.point(LESS, row, q_lengths), self.point(LESS, column, k_lengths))
        return self.point(SELECT, scores, self.given(-np.inf), inside)

    def band_pieces(self, scores: Value, side: str, bound: int, lengths: tuple[Value, Value] | None) -> Value:
        """A bound as programs of before cuDNN 9.21 say it."""
        row, column = self.point(INDEX, scores, axis=2), self.point(INDEX, scores, axis=3)
        if side == "right":
            if lengths:
                row = self.point(SUBTRACT, self.point(ADD, row, lengths[1]), lengths[0])
            if bound:
                row = self.point(ADD, row, self.given(bound, np.int32))
            inside = self.point(GREATER_EQUAL, row, column)
        else:
            column = self.point(ADD, column, self.given(bound))
            if lengths:
                column = self.point(ADD, self.point(SUBTRACT, column, lengths[1]), lengths[0])
            inside = self.point(GREATER, column, row)
        return self.point(SELECT, scores, self.given(-np.inf), inside)

    def band(self, scores: Value, side: str, bound: int, lengths: tuple[Value, Value] | None) -> Value:
        """A bound as one operation."""
        y = self.virtual(*scores.sizes)
        bounds = [] if side == "right" and bound == 0 else [self.given(bound, np.int32)]
        name = 3004 if side == "right" else 3003
        found: list[Attribute] = [(name, DESCRIPTOR, [b.descriptor]) for b in bounds]
        ends = zip((3002, 3001), lengths or (), strict=False)
        found += [(at, DESCRIPTOR, [length.descriptor]) for at, length in ends]
        self.node(
            BAND_MASK, (3000, DESCRIPTOR, [scores.descriptor]), (3006, DESCRIPTOR, [y.descriptor]),
            (3005, DESCRIPTOR, [self.given(-np.inf).descriptor]),
            (3007, POINTWISE_MODE, [GREATER_EQUAL if side == "right" else GREATER]), *found,
        )  # fmt: skip
        return y

    def softmax_pieces(self, scores: Value, statistics: Value | None, kind: int = SINGLE) -> Value:
        most = self.reduce(MAXIMUM, scores)
        exponentials = self.point(EXP, self.point(SUBTRACT, scores, most))
        total = self.reduce(SUM, exponentials)
        if statistics:
            self.point_into(ADD, most, self.point(LOG, total), statistics)
        return self.point(DIVIDE, exponentials, total, kind=kind)

    def softmax(self, scores: Value, statistics: Value | None, kind: int = SINGLE) -> Value:
        y = self.virtual(*scores.sizes, kind=kind)
        more: list[Attribute] = [(3102, DESCRIPTOR, [statistics.descriptor])] if statistics else []
        self.node(SOFTMAX, (3100, DESCRIPTOR, [scores.descriptor]), (3101, DESCRIPTOR, [y.descriptor]), *more)
        return y

    def whole(self, kind: int, tensors: dict[int, Value], *more: Attribute) -> None:
        """Attention as one operation: tensors by the numbers of their attributes."""
        named: list[Attribute] = [(name, DESCRIPTOR, [value.descriptor]) for name, value in tensors.items()]
        self.node(kind, *named, *more)

    def run(self) -> None:
        """Executes the graph of all operations so far."""
        graph = self.unfinished_graph(*self.operations)
        assert self.finalize(graph) == 0
        assert self.execute(self.plan(graph), self.addresses) == 0
        assert self.machine.synchronize() == 0

    def refused(self) -> int:
        """What finalising the graph says."""
        return self.finalize(self.unfinished_graph(*self.operations))


def graphs_of(machine: Machine, made: Graphs) -> AttentionGraphs:
    """Graphs of attention by a handle's descriptors."""
    return AttentionGraphs(machine, made.handle, made.stack)
