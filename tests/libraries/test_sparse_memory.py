"""Indices of sparse matrices are a program's data: one that lies outside of its matrix ends as an illegal address does."""

from __future__ import annotations

import numpy as np
import pytest

from tests.libraries.cusparse import FORMATS, ILLEGAL_ADDRESS, LIBRARY, SUCCESS, Cusparse
from tests.libraries.machine import Machine, integer, out, pointer


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("part", ["first", "second"])
@pytest.mark.parametrize("op", [0, 1])
def test_an_index_outside_of_the_matrix_is_an_illegal_address(
    lone_machine: Machine, form: str, part: str, op: int
) -> None:
    array = np.eye(4, dtype=np.float32)
    wrong = np.arange(5 if part == "first" and form != "coo" else 4)
    wrong[2] = 99
    made = lone_machine.call(LIBRARY, "cusparseCreate", out(8))
    library = Cusparse(lone_machine, pointer(made.number()))
    a = library.matrix(array, form, np.int32, 0, **{part: wrong})
    ones = [library.vector(np.ones(4, np.float32))[0] for _ in range(2)]
    one = library.factor(array.dtype, 1)
    status = library(
        "cusparseSpMV",
        integer(op),
        one,
        a.descriptor,
        ones[0],
        one,
        ones[1],
        integer(0),
        integer(0),
        pointer(0),
    )
    assert status.status == SUCCESS
    assert lone_machine.synchronize() == ILLEGAL_ADDRESS
