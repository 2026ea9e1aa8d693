"""Attention that leaves out weights at random, and what of attention is refused."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest

from tests.libraries.attention_cases import (
    Case,
    Shape,
    assert_near,
    attention_on,
    backward,
    forward,
    scores_of,
)
from tests.libraries.attention_graphs import ADD, DIVIDE, SDPA_FORWARD, AttentionGraphs, Value
from tests.libraries.cudnn import BAD_PARAM, exact
from tests.libraries.cudnn_graphs import DESCRIPTOR
from tests.libraries.machine import Array, Machine
from tests.libraries.test_cudnn_backend import PATTERN, SHAPE_MISMATCH, TYPE_NOT_SUPPORTED

#: One operation, or pieces: of programs for cuDNN before 9.21, and of those since then.
FORMS: Final = pytest.mark.parametrize("form", ["whole", "old pieces", "new pieces"])
LAYOUT_NOT_SUPPORTED, ILLEGAL_ADDRESS = 3004, 700
RATE: Final = 0.25


def dropped(
    machine: Machine, case: Case, form: str, seed: int, *, in_host_memory: bool = False
) -> tuple[Array, Array]:
    """A result and statistics of attention that leaves out weights."""
    with attention_on(machine) as on:
        o, statistics = forward(on, case, form, (RATE, *seed_of(on, seed, in_host_memory)))
        on.run()
        return on.found(o).copy(), on.found(statistics).copy()


def seed_of(on: AttentionGraphs, seed: int, in_host_memory: bool) -> tuple[Value, Value]:
    if in_host_memory:
        return on.given(seed, np.int64), on.given(0, np.int64)
    return on.put(np.full((1, 1, 1, 1), seed, np.int64)), on.put(np.zeros((1, 1, 1, 1), np.int64))


@FORMS
def test_dropout_leaves_out_its_share_and_keeps_the_sum(machine: Machine, form: str) -> None:
    """The values are the rows of the unit matrix, so that the result has the weights."""
    case = Case(Shape(heads=3, rows=40, columns=32, value_width=32), np.dtype(np.float32))
    case.v[:] = np.eye(32)
    weights = case.wanted.weights
    found, statistics = dropped(machine, case, form, 5)
    assert_near(statistics, case.wanted.statistics)
    gone = found == 0
    assert abs(gone.mean() - RATE) < 0.02
    assert_near(found[~gone], weights[~gone] / (1 - RATE))
    assert (dropped(machine, case, form, 5, in_host_memory=True)[0] == found).all()
    assert (dropped(machine, case, form, 6)[0] != found).any()


def test_gradients_leave_out_what_the_result_did(machine: Machine) -> None:
    """Against the definition with the weights that were seen to be kept."""
    case = Case(Shape(group=2, rows=9, columns=11, value_width=11), np.dtype(np.float32))
    kept_v, case.v[:] = case.v.copy(), np.eye(11)
    kept = (dropped(machine, case, "new pieces", 5)[0] != 0) / (1 - RATE)
    case.v[:] = kept_v
    o, statistics = dropped(machine, case, "new pieces", 5)
    group = case.shape.group
    v, dy = np.repeat(exact(case.v), group, 1), exact(case.dy)
    weights = case.wanted.weights
    np.testing.assert_allclose(exact(o), (weights * kept) @ v, rtol=1e-4, atol=1e-4)
    of_weights = (dy @ v.swapaxes(2, 3)) * kept
    of_scores = weights * (of_weights - (weights * of_weights).sum(3, keepdims=True)) * case.scale

    def grouped(array: Array) -> Array:
        summed: Array = array.reshape(2, -1, group, *array.shape[2:]).sum(2)
        return summed

    wanted = {
        "q": of_scores @ np.repeat(exact(case.k), group, 1),
        "k": grouped(of_scores.swapaxes(2, 3) @ exact(case.q)),
        "v": grouped((weights * kept).swapaxes(2, 3) @ dy),
    }
    with attention_on(machine) as on:
        found = backward(on, case, "new pieces", o, statistics, (RATE, *seed_of(on, 5, False)))
        on.run()
        for name, value in found.items():
            assert_near(on.found(value), wanted[name])


@pytest.mark.parametrize("form", ["whole", "old pieces"])
def test_what_is_refused(machine: Machine, form: str) -> None:
    def refused(case: Case) -> int:
        with attention_on(machine) as on:
            forward(on, case, form)
            return on.refused()

    single = np.dtype(np.float32)
    assert refused(Case(Shape(), np.dtype(np.float64))) == TYPE_NOT_SUPPORTED
    case = Case(Shape(), single)
    case.v = case.v[:, :, :5].copy()
    assert refused(case) == SHAPE_MISMATCH
    case = Case(Shape(bias="rc"), single)
    case.bias = np.zeros((1, 1, 3, 7), np.float32)
    assert refused(case) == SHAPE_MISMATCH
    case = Case(Shape(heads=4), single)
    case.k, case.v = case.k[:, :3].copy(), case.v[:, :3].copy()
    assert refused(case) == SHAPE_MISMATCH


def test_pieces_that_are_no_attention_are_refused(machine: Machine) -> None:
    case = Case(Shape(), np.dtype(np.float32))
    with attention_on(machine) as on:
        q, k = on.put(case.q), on.put(case.k, turned=True)
        product = on.matmul(q, k)
        assert on.refused() == PATTERN
        on.point(DIVIDE, product, on.put(case.of_rows()))
        assert on.refused() == PATTERN
    with attention_on(machine) as on:  # scores that are to be stored
        q, k, v = on.put(case.q), on.put(case.k, turned=True), on.put(case.v)
        scores = on.matmul(q, k, on.put(np.zeros(scores_of(case), np.float32)))
        on.matmul(on.softmax(scores, None, v.kind), v, on.put(case.empty(case.dy)))
        assert on.refused() == PATTERN
    with attention_on(machine) as on:  # a second bias
        q, k, v = on.put(case.q), on.put(case.k, turned=True), on.put(case.v)
        scores = on.matmul(q, k)
        for _ in range(2):
            scores = on.point(ADD, scores, on.put(np.zeros(scores_of(case), np.float32)))
        on.matmul(on.softmax(scores, None, v.kind), v, on.put(case.empty(case.dy)))
        assert on.refused() == PATTERN
    with attention_on(machine) as on:  # sequences without gaps
        ends = on.put(np.zeros((3, 1, 1, 1), np.int32))
        q = on.value(case.q.shape, (80, 40, 8, 1), 0, (913, DESCRIPTOR, [ends.descriptor]))
        on.whole(
            SDPA_FORWARD,
            {2800: q, 2801: on.put(case.k), 2802: on.put(case.v), 2803: on.put(case.empty(case.dy))},
        )
        assert on.refused() == LAYOUT_NOT_SUPPORTED
    with attention_on(machine) as on:  # a mask of blocks
        tensors = {
            2800: on.put(case.q),
            2801: on.put(case.k),
            2802: on.put(case.v),
            2803: on.put(case.empty(case.dy)),
        }
        on.whole(SDPA_FORWARD, tensors | {2806: on.put(np.zeros((2, 2, 1, 1), np.int8))})
        assert on.refused() == PATTERN


def test_numbers_that_attention_does_not_have_are_refused_when_they_are_seen(machine: Machine) -> None:
    """They are given by an execution: a mask that fills with 0, and a scale that lies nowhere."""
    case = Case(Shape(right=0), np.dtype(np.float32))
    with attention_on(machine) as on:
        forward(on, case, "old pieces")
        graph = on.unfinished_graph(*on.operations)
        assert on.finalize(graph) == 0
        plan = on.plan(graph)
        numbers = [on.given(0).number, on.given(0).number]
        hosts = {on.addresses[number] for number in numbers}
        zero = hosts.pop()
        fill = max(number for number in on.addresses if number < numbers[0])  # the last number that was given
        assert on.execute(plan, on.addresses | {fill: zero}) == PATTERN
        scale = next(iter(on.addresses))
        assert on.execute(plan, {n: a for n, a in on.addresses.items() if n != scale}) == BAD_PARAM
    assert machine.synchronize() == 0


@pytest.mark.parametrize("machine_of_its_own", ["alone", "pool"], indirect=True)
@pytest.mark.parametrize("operand", ["q", "lengths", "seed", "result"])
def test_an_operand_outside_the_memory_is_an_illegal_address(
    machine_of_its_own: Machine, operand: str
) -> None:
    case = Case(Shape(lengths=True), np.dtype(np.float32))
    with attention_on(machine_of_its_own) as on:
        random = (RATE, *seed_of(on, 5, False))
        o, _ = forward(on, case, "whole", random)
        graph = on.unfinished_graph(*on.operations)
        assert on.finalize(graph) == 0
        numbers = {"seed": random[1].number, "q": random[2].number + 1, "result": o.number}
        numbers["lengths"] = next(n for n in reversed(on.addresses) if on.addresses[n] != 0)
        # The last tensor that was put is that of the columns' lengths.
        on.execute(on.plan(graph), on.addresses | {numbers[operand]: 0x1000})
        assert on.machine.synchronize() == ILLEGAL_ADDRESS
