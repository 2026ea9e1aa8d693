"""Cases of attention: random numbers, their definition's result, and the graphs that a program makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from tests.libraries.attention_graphs import (
    ADD,
    EXP,
    IDENTITY,
    MULTIPLY,
    SDPA_BACKWARD,
    SDPA_FORWARD,
    SINGLE,
    SUBTRACT,
    SUM,
    AttentionGraphs,
    Attribute,
    Value,
    graphs_of,
)
from tests.libraries.attention_reference import Attention
from tests.libraries.cudnn import TOLERANCES, exact
from tests.libraries.cudnn_graphs import DESCRIPTOR, FLOAT, GRAPH, INT64
from tests.libraries.machine import Array, Machine
from tests.libraries.test_cudnn_backend import graphs_on


@contextmanager
def attention_on(machine: Machine) -> Iterator[AttentionGraphs]:
    with graphs_on(machine) as made:
        yield graphs_of(machine, made)


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of attention, and what of it is masked."""

    images: int = 2
    heads: int = 2
    group: int = 1
    rows: int = 5
    columns: int = 7
    width: int = 8
    value_width: int = 8
    steps_first: bool = False  # in memory: steps lie before heads
    lengths: bool = False
    left: int | None = None
    right: int | None = None
    from_end: bool = False
    bias: str = ""  # which of its dimensions are not repeated, of "ihrc"


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    lengths = draw(st.booleans())
    return Shape(
        draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 70)),
        draw(st.integers(1, 70)), draw(st.sampled_from([1, 8, 20])), draw(st.sampled_from([3, 16])), draw(st.booleans()),
        lengths, draw(st.sampled_from([None, 1, 4])), draw(st.sampled_from([None, 0, 3])),
        lengths and draw(st.booleans()), draw(st.sampled_from(["", "ihrc", "rc", "hrc", "c"])),
    )  # fmt: skip


class Case:
    """Random numbers of attention, as they lie in memory, and its definition's result."""

    def __init__(self, shape: Shape, dtype: np.dtype[np.generic], seed: int = 3) -> None:
        self.shape, self.dtype = shape, dtype
        self.generator = np.random.default_rng(seed)
        heads = shape.heads * shape.group
        self.q = self.some(heads, shape.rows, shape.width)
        self.k = self.some(shape.heads, shape.columns, shape.width)
        self.v = self.some(shape.heads, shape.columns, shape.value_width)
        self.dy = self.some(heads, shape.rows, shape.value_width)
        whole = {"i": shape.images, "h": heads, "r": shape.rows, "c": shape.columns}
        self.bias = None
        if shape.bias:
            sizes = [whole[axis] if axis in shape.bias else 1 for axis in whole]
            self.bias = self.generator.standard_normal(sizes).astype(dtype)
        self.ends = [
            self.generator.integers(0, most + 1, shape.images).astype(np.int32)
            for most in (shape.rows, shape.columns)
        ]
        self.scale = 0.4
        self.wanted = Attention(
            exact(self.q), exact(self.k), exact(self.v), self.scale, None if self.bias is None else exact(self.bias),
            self.ends[0] if shape.lengths else None, self.ends[1] if shape.lengths else None, shape.left, shape.right,
            shape.from_end,
        )  # fmt: skip

    def some(self, heads: int, steps: int, width: int) -> Array:
        """[image, head, step, number], whose memory has steps before heads or behind them."""
        sizes = (self.shape.images, heads, steps, width)
        if self.shape.steps_first:
            memory = self.generator.standard_normal((sizes[0], steps, heads, width)).astype(self.dtype)
            return memory.swapaxes(1, 2)
        return self.generator.standard_normal(sizes).astype(self.dtype)

    def empty(self, like: Array) -> Array:
        """As large as another, for a result: full of what it must not have."""
        if like.base is None:
            return np.full_like(like, 9)
        return np.full_like(like.swapaxes(1, 2), 9).swapaxes(1, 2)

    def of_rows(self) -> Array:
        return np.full((*self.q.shape[:3], 1), 9, np.float32)


def masked(
    on: AttentionGraphs, case: Case, form: str, scores: Value, lengths: tuple[Value, Value] | None
) -> Value:
    """Bias and masks of a case, as operations on its scores."""
    if case.bias is not None:
        scores = on.point(ADD, scores, on.put(case.bias))
    if lengths and form != "whole":
        scores = on.padding(scores, *lengths)
    ends = lengths if case.shape.from_end else None
    band = on.band_pieces if form == "old pieces" else on.band
    for side, bound in (("right", case.shape.right), ("left", case.shape.left)):
        if bound is not None:
            scores = band(scores, side, bound, ends)
    return scores


def lengths_of(on: AttentionGraphs, case: Case) -> tuple[Value, Value] | None:
    if not case.shape.lengths:
        return None
    q, k = (on.put(ends.reshape(-1, 1, 1, 1).copy()) for ends in case.ends)
    return q, k


def scores_of(case: Case) -> tuple[int, ...]:
    return (*case.q.shape[:3], case.shape.columns)


def forward(
    on: AttentionGraphs, case: Case, form: str, random: tuple[float, Value, Value] | None = None
) -> list[Value]:
    """The graph of a case's forward pass: its result and its statistics."""
    turned = form != "whole"
    q, k, v = on.put(case.q), on.put(case.k, turned=turned), on.put(case.v)
    o, statistics = on.put(case.empty(case.dy), result=True), on.put(case.of_rows(), result=True)
    scale, lengths = on.given(case.scale), lengths_of(on, case)
    if form == "whole":
        inner = on.virtual(*scores_of(case))
        outer = masked(on, case, form, inner, lengths)
        tensors = {2800: q, 2801: k, 2802: v, 2803: o, 2804: statistics, 2805: scale}
        more: list[Attribute] = []
        if lengths:
            tensors |= {2809: lengths[0], 2810: lengths[1]}
        if on.operations:
            graph = on.made(GRAPH, (801, DESCRIPTOR, on.operations))
            on.operations.clear()
            more += [
                (2811, DESCRIPTOR, [graph]),
                (2812, INT64, [inner.number]),
                (2813, INT64, [outer.number]),
            ]
        if random:
            tensors |= {2815: random[1], 2816: random[2]}
            more += [(2818, FLOAT, [random[0]])]
        on.whole(SDPA_FORWARD, tensors, *more)
        return [o, statistics]
    scores = masked(on, case, form, on.point(MULTIPLY, on.matmul(q, k), scale), lengths)
    softmax = on.softmax_pieces if form == "old pieces" else on.softmax
    weights = softmax(scores, statistics, SINGLE if random else v.kind)
    if random:
        kept = on.random(1 - random[0], random[1], random[2], *scores_of(case))
        larger = on.given(1 / (1 - random[0]))
        weights = on.point(MULTIPLY, on.point(MULTIPLY, weights, kept), larger, kind=v.kind)
    on.matmul(weights, v, o)
    return [o, statistics]


def backward(
    on: AttentionGraphs, case: Case, form: str, o: Array, statistics: Array,
    random: tuple[float, Value, Value] | None = None,
) -> dict[str, Value]:  # fmt: skip
    """The graph of a case's gradients."""
    turned = form != "whole"
    q, k, v = on.put(case.q), on.put(case.k, turned=turned), on.put(case.v, turned=turned)
    dy, result, rows = on.put(case.dy), on.put(o), on.put(statistics)
    found = {
        name: on.put(case.empty(array), result=True)
        for name, array in (("q", case.q), ("k", case.k), ("v", case.v))
    }
    scale, lengths = on.given(case.scale), lengths_of(on, case)
    if form == "whole":
        tensors = {2851: q, 2852: k, 2853: v, 2854: result, 2855: rows, 2856: scale, 2859: found["q"], 2860: found["k"],
                   2861: found["v"], 2862: dy}  # fmt: skip
        if lengths:
            tensors |= {2857: lengths[0], 2858: lengths[1]}
        on.whole(SDPA_BACKWARD, tensors)
        return found
    sizes, heads = scores_of(case), case.shape.heads
    kept = on.random(1 - random[0], random[1], random[2], *sizes) if random else None
    larger = on.given(1 / (1 - random[0])) if random else None
    total = on.reduce(SUM, on.point(MULTIPLY, dy, result))
    balance = on.point(MULTIPLY, total, on.given(1 - random[0] if random else 1))
    scores = masked(on, case, form, on.point(MULTIPLY, on.matmul(q, k), scale), lengths)
    weights = used = on.point(EXP, on.point(SUBTRACT, scores, rows))
    if kept and larger:
        used = on.point(MULTIPLY, on.point(MULTIPLY, used, kept), larger)

    def of_heads(a: Value, b: Value, into: Value) -> None:
        if case.shape.group == 1:
            on.matmul(a, b, into)
        else:
            on.reduce(SUM, on.matmul(a, b), into)

    of_heads(on.turn(used, dy.kind), dy, found["v"])
    assert found["v"].sizes[1] == heads
    gradient = on.matmul(dy, v)
    if kept:
        gradient = on.point(MULTIPLY, gradient, kept)
    elif form == "old pieces":  # as PyTorch 2.6 says it
        gradient = on.point(MULTIPLY, gradient, on.given(1))
    gradient = on.point(MULTIPLY, on.point(SUBTRACT, gradient, balance), weights)
    if larger:
        gradient = on.point(MULTIPLY, gradient, larger)
    if case.bias is not None and case.shape.bias.endswith("rc"):
        found["bias"] = on.put(np.full_like(case.bias, 9), result=True)
        on.reduce(SUM, gradient, found["bias"])
    gradient = on.point(MULTIPLY, gradient, scale)
    of_heads(on.turn(gradient, q.kind), q, found["k"])
    added = on.put(np.full(case.q.shape, 9, np.float32))
    on.matmul(gradient, on.turn(k), added)
    on.point_into(IDENTITY, added, None, found["q"])
    return found


def assert_near(found: Array, wanted: Array) -> None:
    tolerance = max(TOLERANCES[found.dtype], 2e-5)
    largest = max(float(np.abs(wanted, where=np.isfinite(wanted), out=np.zeros_like(wanted)).max()), 1)
    np.testing.assert_allclose(exact(found), wanted, rtol=tolerance, atol=tolerance * largest)
