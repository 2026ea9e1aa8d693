"""Plans of cuFFT: their types, streams, work areas and ends, and wrong arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.libraries.conftest import WAYS
from tests.libraries.cufft import (
    COMPLEX,
    FORWARD,
    ILLEGAL_ADDRESS,
    INVALID_PLAN,
    INVALID_SIZE,
    INVALID_TYPE,
    INVALID_VALUE,
    INVERSE,
    KINDS,
    NOT_SUPPORTED,
    SUCCESS,
    Kind,
    assert_close,
    call,
    check_basic,
    check_in_place,
    execute,
    expected,
    plan,
    random,
    stored_shape,
)
from tests.libraries.machine import Answer, Argument, Array, Machine, host, integer, out, pointer, wide

#: cudaDataType of real and complex numbers of each precision.
REAL_16, COMPLEX_16, REAL_32, COMPLEX_32, REAL_64, COMPLEX_64, COMPLEX_BF16 = 2, 6, 0, 4, 1, 5, 15


def make_of_types(machine: Machine, handle: Argument, length: int, types: tuple[int, int, int]) -> Answer:
    n = host(np.array([length], np.int64))
    return call(
        machine, "cufftXtMakePlanMany", handle, integer(1), n, pointer(0), wide(1), wide(0), integer(types[0]), pointer(0),
        wide(1), wide(0), integer(types[1]), wide(3), out(8), integer(types[2]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("types", "before", "after", "tolerance"),
    [
        ((COMPLEX_16, COMPLEX_16, COMPLEX_16), np.complex64, np.complex64, 1e-3),
        ((REAL_16, COMPLEX_16, COMPLEX_16), np.float32, np.complex64, 1e-3),
        ((COMPLEX_16, REAL_16, COMPLEX_16), np.complex64, np.float32, 1e-3),
        ((COMPLEX_32, COMPLEX_32, COMPLEX_32), np.complex64, np.complex64, 1e-6),
        ((REAL_64, COMPLEX_64, COMPLEX_64), np.float64, np.complex128, 1e-14),
    ],
)
def test_a_plan_of_types(
    machine: Machine, types: tuple[int, int, int], before: type[Any], after: type[Any], tolerance: float
) -> None:
    """Halves too, which are computed in single precision."""
    length, kind = 64, Kind(0, "", before, after, tolerance)
    source = random(np.random.default_rng(5), (3, *stored_shape((length,), before, kind)), before) / 8
    half = COMPLEX_16 in types

    def in_memory(array: Array) -> Array:
        parts = array.view(array.real.dtype)
        return parts.astype(np.float16) if half else parts

    stored = in_memory(source)
    source = stored.astype(np.float32 if half else stored.dtype).view(before)
    target = in_memory(np.zeros((3, *stored_shape((length,), after, kind)), after))
    handle = integer(call(machine, "cufftCreate", out(4)).number())
    assert make_of_types(machine, handle, length, types).status == SUCCESS
    with machine.arrays(stored, target) as (at_source, at_target):
        assert (
            call(
                machine, "cufftXtExec", handle, pointer(at_source), pointer(at_target), integer(FORWARD)
            ).status
            == SUCCESS
        )
        result = machine.get(at_target, target).astype(np.dtype(after).type(0).real.dtype).view(after)
    assert call(machine, "cufftDestroy", handle).status == SUCCESS
    assert_close(result, expected(kind, source, (length,), FORWARD), tolerance, length)


@pytest.mark.parametrize(
    "types", [(COMPLEX_BF16, COMPLEX_BF16, COMPLEX_BF16), (REAL_32, REAL_32, COMPLEX_32), (COMPLEX_32, COMPLEX_64, COMPLEX_64)]
)  # fmt: skip
def test_types_that_no_transform_has(machine: Machine, types: tuple[int, int, int]) -> None:
    handle = integer(call(machine, "cufftCreate", out(4)).number())
    assert make_of_types(machine, handle, 64, types).status == INVALID_TYPE
    call(machine, "cufftDestroy", handle)


def test_the_stream_of_a_plan_orders_its_transforms(machine: Machine) -> None:
    kind = KINDS["C2C"]
    source = random(np.random.default_rng(6), (1, 256), kind.before)
    stream = machine.driver("cuStreamCreate", out(8), integer(1)).number()
    with (
        plan(machine, "cufftPlan1d", integer(256), integer(kind.number), integer(1)) as handle,
        machine.arrays(source, source) as (there, back),
    ):
        assert call(machine, "cufftSetStream", handle, pointer(stream)).status == SUCCESS
        assert execute(machine, handle, kind, there, back, FORWARD) == SUCCESS
        assert execute(machine, handle, kind, back, there, INVERSE) == SUCCESS
        assert machine.driver("cuStreamSynchronize", pointer(stream)).status == 0
        result = machine.get(there, source)
    machine.driver("cuStreamDestroy_v2", pointer(stream))
    assert_close(result, source * 256, kind.tolerance, 256)


def test_a_transform_is_captured_on_another_stream_than_it_was_prepared_on(machine: Machine) -> None:
    """As PyTorch does it. The graph may be copied, and each copy be launched."""
    kind, length, batch = KINDS["C2C"], 1 << 16, 2
    source = random(np.random.default_rng(9), (batch, length), kind.before)
    stream = pointer(machine.driver("cuStreamCreate", out(8), integer(1)).number())
    with (
        plan(machine, "cufftPlan1d", integer(length), integer(kind.number), integer(batch)) as handle,
        machine.arrays(source, np.zeros_like(source)) as (at_source, at_target),
    ):
        assert execute(machine, handle, kind, at_source, at_target, FORWARD) == SUCCESS
        assert machine.synchronize() == 0
        assert call(machine, "cufftSetStream", handle, stream).status == SUCCESS
        assert machine.driver("cuStreamBeginCapture_v2", stream, integer(0)).status == 0
        assert execute(machine, handle, kind, at_source, at_target, INVERSE) == SUCCESS
        captured = machine.driver("cuStreamEndCapture", stream, out(8))
        assert captured.status == 0
        graph = pointer(captured.number())
        copied = machine.driver("cuGraphClone", out(8), graph)
        assert copied.status == 0
        for each in (graph, graph, pointer(copied.number())):
            runnable = machine.driver("cuGraphInstantiateWithFlags", out(8), each, wide(0))
            assert runnable.status == 0
            assert machine.driver("cuGraphLaunch", pointer(runnable.number()), stream).status == 0
        assert machine.driver("cuStreamSynchronize", stream).status == 0
        result = machine.get(at_target, source)
    machine.driver("cuStreamDestroy_v2", stream)
    assert_close(result, expected(kind, source, (length,), INVERSE), kind.tolerance, length)


def test_few_transforms_need_a_work_area(machine: Machine) -> None:
    """Only few long lines of complex numbers, and it is as large as they are."""
    for length, number, batch, size in (
        (1000, 0x29, 4, 0), (1 << 18, 0x29, 2, 8 << 19), (1 << 18, 0x69, 1, 16 << 18), (1 << 18, 0x29, 64, 0),
        (65537, 0x29, 1, 0), (1 << 18, 0x2A, 1, 0),
    ):  # fmt: skip
        described = (integer(length), integer(number), integer(batch))
        estimate = call(machine, "cufftEstimate1d", *described, out(8))
        assert (estimate.status, estimate.number()) == (SUCCESS, size)
        with plan(machine, "cufftPlan1d", *described) as handle:
            answer = call(machine, "cufftGetSize", handle, out(8))
            assert (answer.status, answer.number()) == (SUCCESS, size)


@pytest.mark.parametrize("work", ["own", "given", "none"])
@pytest.mark.parametrize("name", COMPLEX)
@pytest.mark.parametrize("length", [1 << 16, 5**4 * 7 * 2**4, 2 * 43 * 1000])
def test_a_work_area_makes_no_difference(machine: Machine, name: str, length: int, work: str) -> None:
    """One that the plan allocates, one that the program gives, as PyTorch does, and none at all."""
    kind, batch = KINDS[name], 2
    handle = integer(call(machine, "cufftCreate", out(4)).number())
    if work != "own":
        assert call(machine, "cufftSetAutoAllocation", handle, integer(0)).status == SUCCESS
    made = call(
        machine, "cufftMakePlan1d", handle, integer(length), integer(kind.number), integer(batch), out(8)
    )
    assert made.status == SUCCESS
    with machine.arrays(np.zeros(max(made.number(), 1), np.uint8)) as (area,):
        if work == "given":
            assert call(machine, "cufftSetWorkArea", handle, pointer(area)).status == SUCCESS
        check_basic(machine, handle, kind, (length,), batch, FORWARD, 7)
        check_in_place(machine, handle, kind, (length,), batch, INVERSE, 8)
    assert call(machine, "cufftDestroy", handle).status == SUCCESS


@pytest.mark.parametrize(
    ("length", "number", "batch", "status"),
    [
        (0, 0x29, 1, INVALID_SIZE),
        (-4, 0x29, 1, INVALID_SIZE),
        (4, 0x29, 0, INVALID_SIZE),
        (4, 0x28, 1, INVALID_TYPE),
    ],
)
def test_a_plan_that_cannot_be_made(
    machine: Machine, length: int, number: int, batch: int, status: int
) -> None:
    assert (
        call(machine, "cufftPlan1d", out(4), integer(length), integer(number), integer(batch)).status
        == status
    )
    assert (
        call(machine, "cufftPlan1d", pointer(0), integer(4), integer(0x29), integer(1)).status
        == INVALID_VALUE
    )


@pytest.mark.parametrize("rank", [0, 4])
def test_dimensions_that_no_transform_has(machine: Machine, rank: int) -> None:
    arguments = (host(np.full(4, 2, np.int32)), pointer(0), integer(1), integer(1), pointer(0), integer(1), integer(1),
                 integer(0x29), integer(1))  # fmt: skip
    assert call(machine, "cufftPlanMany", out(4), integer(rank), *arguments).status == INVALID_VALUE


def test_a_plan_is_made_once_and_is_gone_when_it_is_destroyed(machine: Machine) -> None:
    handle = integer(call(machine, "cufftCreate", out(4)).number())
    kind = KINDS["C2C"]
    assert execute(machine, handle, kind, 256, 256, FORWARD) == INVALID_PLAN
    make = (integer(8), integer(0x29), integer(1), out(8))
    assert call(machine, "cufftMakePlan1d", handle, *make).status == SUCCESS
    assert call(machine, "cufftMakePlan1d", handle, *make).status == INVALID_PLAN
    assert call(machine, "cufftDestroy", handle).status == SUCCESS
    assert call(machine, "cufftDestroy", handle).status == INVALID_PLAN
    assert execute(machine, handle, kind, 256, 256, FORWARD) == INVALID_PLAN


def test_wrong_arguments_of_an_execution(machine: Machine) -> None:
    with plan(machine, "cufftPlan1d", integer(8), integer(0x29), integer(1)) as handle:
        assert execute(machine, handle, KINDS["R2C"], 256, 256, FORWARD) == INVALID_TYPE
        assert execute(machine, handle, KINDS["C2C"], 0, 256, FORWARD) == INVALID_VALUE
        assert execute(machine, handle, KINDS["C2C"], 256, 0, FORWARD) == INVALID_VALUE
        assert execute(machine, handle, KINDS["C2C"], 256, 256, 0) == INVALID_VALUE
    assert machine.synchronize() == 0


@pytest.mark.parametrize("name", ["libcufft.so.11", "libcufft.so.12"])
def test_several_gpus_and_callbacks_are_not_supported(machine: Machine, name: str) -> None:
    for function in ("cufftXtExecDescriptor", "cufftXtSetGPUs", "cufftXtSetCallback"):
        assert machine.call(name, function, integer(1), integer(1), pointer(0)).status == NOT_SUPPORTED
    version = machine.call(name, "cufftGetVersion", out(4))
    assert version.status == SUCCESS
    assert version.number() // 1000 == int(name.rpartition(".")[2])


@pytest.mark.parametrize("machine_of_its_own", WAYS, indirect=True)
def test_memory_that_is_none_ends_the_session_and_not_the_process(machine_of_its_own: Machine) -> None:
    """As the illegal address of a kernel does."""
    machine = machine_of_its_own
    small = machine.put(np.zeros(8, np.complex64))
    made = call(machine, "cufftPlan1d", out(4), integer(1024), integer(0x29), integer(64))
    assert execute(machine, integer(made.number()), KINDS["C2C"], 4096, small, FORWARD) == SUCCESS
    assert machine.synchronize() == ILLEGAL_ADDRESS
