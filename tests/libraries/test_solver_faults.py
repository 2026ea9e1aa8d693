"""What cuSOLVER is given in device memory and is wrong ends the context: nothing outside of the operands is touched."""

from __future__ import annotations

import numpy as np
import pytest

from tests.libraries.cusolver import NONE, SUCCESS, WORK, infos, solver
from tests.libraries.machine import Machine, pointer


def test_a_matrix_that_is_no_device_memory_ends_the_context(machine_of_its_own: Machine) -> None:
    illegal_address = 700
    with solver(machine_of_its_own) as solve:
        assert solve.call("Dpotrf", 0, 4, pointer(4096), 4, WORK, NONE).status == SUCCESS
        assert machine_of_its_own.synchronize() == illegal_address


@pytest.mark.parametrize("pivots", [[1, 5, 3, 4], [0, 2, 3, 4], [1, 2, 3, -4], [1, 2, 3, 2**31 - 1]])
def test_pivots_that_are_no_rows_end_the_context(lone_machine: Machine, pivots: list[int]) -> None:
    """They lie in memory that anybody writes: nothing is touched by them."""
    rows, info = np.array(pivots, np.int32), infos()
    with solver(lone_machine) as solve:
        at, those, told = (lone_machine.put(array) for array in (np.eye(4), rows, info))
        arguments = (0, 4, 1, pointer(at), 4, pointer(those), pointer(at), 4, pointer(told))
        assert solve.call("Dgetrs", *arguments).status == SUCCESS
        assert lone_machine.synchronize() != 0


@pytest.mark.parametrize(
    ("uplo", "pivots"), [(0, [1, 2, -3]), (1, [-1, 2, 3]), (0, [1, 1, 3]), (1, [2, 2, 3]), (0, [-2, -3, 3])]
)
def test_symmetric_pivots_that_are_none_end_the_context(
    lone_machine: Machine, uplo: int, pivots: list[int]
) -> None:
    rows, info = np.array(pivots, np.int64), infos()
    with solver(lone_machine) as solve:
        at, those, told = (lone_machine.put(array) for array in (np.eye(3), rows, info))
        arguments = (uplo, 3, 1, 1, pointer(at), 3, pointer(those), 1, pointer(at), 3, WORK, pointer(told))
        assert solve.call("Xsytrs", *arguments).status == SUCCESS
        assert lone_machine.synchronize() != 0
