"""cuSPARSE's indices in device memory: what lies outside of a matrix ends with an illegal address, never with a crash."""

from __future__ import annotations

import numpy as np
import pytest

from tests.libraries import cusparse
from tests.libraries.cusparse import ILLEGAL_ADDRESS, SUCCESS, Layout, call, handle
from tests.libraries.machine import Machine, host, integer, pointer


@pytest.mark.parametrize("format", ["Csr", "Csc", "Coo"])
@pytest.mark.parametrize("wrong", ["first", "second"])
@pytest.mark.parametrize("value", [-1, 1000, 2**31 - 1])
def test_an_index_outside_of_the_matrix_ends_with_an_illegal_address(
    lone_machine: Machine, format: str, wrong: str, value: int
) -> None:
    machine, dtype = lone_machine, np.dtype(np.float32)
    parts = Layout(format).arrays(np.eye(4, dtype=dtype))
    parts[0 if wrong == "first" else 1][1] = value
    x = np.ones(4, dtype)
    with handle(machine) as own:
        addresses = [machine.put(array) for array in (*parts, x, x)]
        with (
            cusparse.sparse(machine, Layout(format), (4, 4), dtype, addresses[:3], 4) as a,
            cusparse.vector(machine, addresses[3], x) as of_x,
            cusparse.vector(machine, addresses[4], x) as of_y,
        ):
            one = host(np.array(1, dtype))
            arguments = own, integer(0), one, a, of_x, one, of_y, integer(0), integer(0), pointer(0)
            assert call(machine, "cusparseSpMV", *arguments).status == SUCCESS
            assert machine.synchronize() == ILLEGAL_ADDRESS


def test_offsets_beyond_the_entries_end_with_an_illegal_address(lone_machine: Machine) -> None:
    machine, dtype = lone_machine, np.dtype(np.float32)
    offsets, indices, values = Layout().arrays(np.eye(4, dtype=dtype))
    b, c = np.ones((4, 2), dtype), np.ones((4, 2), dtype)
    offsets[-1] = 2**20
    with handle(machine) as own:
        addresses = [machine.put(array) for array in (offsets, indices, values, b, c)]
        with (
            cusparse.sparse(machine, Layout(), (4, 4), dtype, addresses[:3], 4) as a,
            cusparse.matrix(machine, addresses[3], b) as of_b,
            cusparse.matrix(machine, addresses[4], c) as of_c,
        ):
            one, zero = host(np.array(1, dtype)), integer(0)
            arguments = own, zero, zero, one, a, of_b, one, of_c, zero, zero, pointer(0)
            assert call(machine, "cusparseSpMM", *arguments).status == SUCCESS
            assert machine.synchronize() == ILLEGAL_ADDRESS


def test_offsets_that_leave_an_entry_in_no_row_end_with_an_illegal_address(lone_machine: Machine) -> None:
    machine = lone_machine
    offsets, rows = np.array([0, 1, 2], np.int32), np.zeros(5, np.int32)
    at_offsets, at_rows = machine.put(offsets), machine.put(rows)
    with handle(machine) as own:
        arguments = own, pointer(at_offsets), integer(5), integer(2), pointer(at_rows), integer(0)
        assert call(machine, "cusparseXcsr2coo", *arguments).status == SUCCESS
        assert machine.synchronize() == ILLEGAL_ADDRESS
