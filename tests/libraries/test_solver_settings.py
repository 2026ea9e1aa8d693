"""cuSOLVER's handles and settings: what is set is what is read, and what is none is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.libraries.cusolver import (
    INVALID_VALUE,
    LIBRARY,
    NONE,
    NOT_INITIALIZED,
    NOT_SUPPORTED,
    SUCCESS,
    jacobi,
    solver,
)
from tests.libraries.machine import Argument, Machine, integer, out, pointer

DOUBLE_PRECISION: Argument = ("d", 1e-9)


@pytest.mark.parametrize(
    ("name", "values", "wrong"), [("DeterministicMode", (1, 2), 0), ("MathMode", (1, 2), 3)]
)
def test_modes_of_a_handle(machine: Machine, name: str, values: tuple[int, int], wrong: int) -> None:
    with solver(machine) as solve:
        assert solve.call(f"Get{name}", out(4)).number() == values[0]
        assert solve.call(f"Set{name}", integer(values[1])).status == SUCCESS
        assert solve.call(f"Set{name}", integer(wrong)).status == INVALID_VALUE
        assert solve.call(f"Get{name}", out(4)).number() == values[1]
        assert solve.call(f"Get{name}", NONE).status == INVALID_VALUE


def test_work_goes_to_the_stream_of_its_handle(machine: Machine) -> None:
    full = 4 * np.eye(3)
    stream = pointer(machine.driver("cuStreamCreate", out(8), integer(1)).number())
    with solver(machine) as solve, machine.arrays(full) as (at,):
        assert solve.call("SetStream", stream).status == SUCCESS
        assert pointer(solve.call("GetStream", out(8)).number()) == stream
        assert solve.call("Dpotrf", 0, 3, pointer(at), 3, ("work", 0), NONE).status == SUCCESS
        assert machine.driver("cuStreamSynchronize", stream).status == 0
        np.testing.assert_array_equal(machine.get(at, full), 2 * np.eye(3))
        machine.driver("cuStreamDestroy_v2", stream)


def test_no_handle_is_none(machine: Machine) -> None:
    assert machine.call(LIBRARY, "cusolverDnCreate", NONE).status == INVALID_VALUE
    for function in ("Destroy", "SetStream", "GetStream", "GetMathMode", "Dgetrf", "Xgeev"):
        assert machine.call(LIBRARY, f"cusolverDn{function}", *[NONE] * 3).status == NOT_INITIALIZED


@pytest.mark.parametrize("of", ["Syevj", "Gesvdj"])
def test_settings_of_jacobi(machine: Machine, of: str) -> None:
    """They are kept; what sweeps would have done is not reported, as there are none."""
    name = f"cusolverDnX{of.lower()}"
    with jacobi(machine, of) as settings:
        assert machine.call(LIBRARY, f"{name}SetTolerance", settings, DOUBLE_PRECISION).status == SUCCESS
        assert machine.call(LIBRARY, f"{name}SetMaxSweeps", settings, integer(15)).status == SUCCESS
        assert machine.call(LIBRARY, f"{name}SetMaxSweeps", settings, integer(-1)).status == INVALID_VALUE
        assert machine.call(LIBRARY, f"{name}SetSortEig", settings, integer(0)).status == SUCCESS
        assert machine.call(LIBRARY, f"{name}SetSortEig", settings, integer(2)).status == INVALID_VALUE
    assert machine.call(LIBRARY, f"{name}SetSortEig", NONE, integer(0)).status == INVALID_VALUE
    with solver(machine) as solve, jacobi(machine, of) as settings:
        for function in ("GetSweeps", "GetResidual"):
            assert (
                machine.call(LIBRARY, name + function, solve.handle, settings, out(8)).status == NOT_SUPPORTED
            )
    assert machine.call(LIBRARY, f"cusolverDnCreate{of}Info", NONE).status == INVALID_VALUE


def test_choices_of_algorithms(machine: Machine) -> None:
    """All are the same here; what cuSOLVER does not know is refused."""
    made = machine.call(LIBRARY, "cusolverDnCreateParams", out(8))
    params = pointer(made.number())
    for function, algorithm, status in (
        (0, 1, SUCCESS),
        (2, 2, SUCCESS),
        (3, 0, INVALID_VALUE),
        (0, 3, INVALID_VALUE),
    ):
        answer = machine.call(
            LIBRARY, "cusolverDnSetAdvOptions", params, integer(function), integer(algorithm)
        )
        assert answer.status == status
    assert machine.call(LIBRARY, "cusolverDnDestroyParams", params).status == SUCCESS
    assert machine.call(LIBRARY, "cusolverDnDestroyParams", NONE).status == INVALID_VALUE
