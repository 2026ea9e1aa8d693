"""Graphs of attention against its definition: whole and in pieces, with masks and gradients."""

from __future__ import annotations

from typing import Final

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.libraries.attention_cases import Case, Shape, assert_near, attention_on, backward, forward, shapes
from tests.libraries.cudnn import exact
from tests.libraries.machine import Machine

TYPES: Final = pytest.mark.parametrize(
    "dtype", [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)], ids=str
)
#: One operation, or pieces: of programs for cuDNN before 9.21, and of those since then.
FORMS: Final = pytest.mark.parametrize("form", ["whole", "old pieces", "new pieces"])
quickly = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@FORMS
@TYPES
@quickly
@given(shape=shapes())
def test_the_result_and_its_statistics(
    machine: Machine, form: str, dtype: np.dtype[np.generic], shape: Shape
) -> None:
    case = Case(shape, dtype)
    with attention_on(machine) as on:
        o, statistics = forward(on, case, form)
        on.run()
        assert_near(on.found(o), case.wanted.result)
        assert_near(on.found(statistics), case.wanted.statistics)


@pytest.mark.parametrize("form", ["old pieces", "new pieces"])
@TYPES
@quickly
@given(shape=shapes())
def test_gradients(machine: Machine, form: str, dtype: np.dtype[np.generic], shape: Shape) -> None:
    case = Case(shape, dtype)
    wanted = case.wanted.gradients(exact(case.dy))
    if case.bias is not None:
        repeated = tuple(axis for axis in range(4) if case.bias.shape[axis] == 1)
        wanted["bias"] = wanted.pop("scores").sum(repeated, keepdims=True)
    with attention_on(machine) as on:
        statistics = case.wanted.statistics.astype(np.float32)
        # What the result is rounded to must not decide.
        o = case.wanted.result.astype(np.float32)
        found = backward(on, case, form, o, statistics)
        on.run()
        for name, value in found.items():
            assert_near(on.found(value), wanted[name])


@TYPES
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("group", [1, 3])
def test_gradients_as_one_operation(
    machine: Machine, dtype: np.dtype[np.generic], lengths: bool, group: int
) -> None:
    case = Case(Shape(group=group, rows=67, columns=130, lengths=lengths), dtype)
    with attention_on(machine) as on:
        o, statistics = case.wanted.result.astype(np.float32), case.wanted.statistics.astype(np.float32)
        found = backward(on, case, "whole", o, statistics)
        on.run()
        wanted = case.wanted.gradients(exact(case.dy))
        for name, value in found.items():
            assert_near(on.found(value), wanted[name])


def test_more_columns_than_are_computed_together(machine: Machine) -> None:
    case = Case(Shape(1, 1, 1, 130, 1100, right=900, left=300), np.dtype(np.float32))
    with attention_on(machine) as on:
        o, statistics = forward(on, case, "new pieces")
        on.run()
        assert_near(on.found(o), case.wanted.result)
        first, rows = on.found(o).copy(), on.found(statistics).copy()
    with attention_on(machine) as on:
        found = backward(on, case, "new pieces", first, rows)
        on.run()
        wanted = case.wanted.gradients(exact(case.dy))
        for name, value in found.items():
            assert_near(on.found(value), wanted[name])
