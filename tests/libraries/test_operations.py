"""Operations of math libraries are kernels: streams, graphs, errors and shares treat them as such."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from gpupool.client.child_environment import environment
from gpupool.client.native import native_directory

from tests.libraries.conftest import machine_of, worker_variables
from tests.libraries.cublas import SUCCESS, call, handle, random
from tests.libraries.machine import Argument, Array, Machine, host, integer, out, pointer, wide
from tests.libraries.test_dropout import Dropout, kept, place
from tests.support.runtime_share import share_of_a_worker

ILLEGAL_ADDRESS, NOT_SUPPORTED_BY_DRIVER = 700, 801
SINGLE = np.dtype(np.float32)


def product(machine: Machine, cublas: Argument, size: int, a: int, b: int, c: int, beta: float = 0.0) -> int:
    """C = A B + beta C of square matrices; the status."""
    return call(
        machine, "cublasSgemm_v2", cublas, integer(0), integer(0), integer(size), integer(size), integer(size),
        host(np.ones(1, SINGLE)), pointer(a), integer(size), pointer(b), integer(size), host(np.full(1, beta, SINGLE)),
        pointer(c), integer(size),
    ).status  # fmt: skip


@contextmanager
def stream(machine: Machine, cublas: Argument) -> Iterator[Argument]:
    """A stream of its own, which the handle uses."""
    made = machine.driver("cuStreamCreate", out(8), integer(1))
    assert made.status == 0
    argument = pointer(made.number())
    try:
        assert call(machine, "cublasSetStream_v2", cublas, argument).status == SUCCESS
        yield argument
    finally:
        machine.driver("cuStreamDestroy_v2", argument)


def matrices(size: int, count: int) -> list[Array]:
    generator = np.random.default_rng(3)
    return [random(generator, (size, size), SINGLE) for _ in range(count)]


def test_products_and_copies_of_one_stream_happen_in_order(machine: Machine) -> None:
    size = 200
    a, b, c = matrices(size, 3)
    with (
        handle(machine) as cublas,
        stream(machine, cublas) as own,
        machine.arrays(a, b, c) as (at_a, at_b, at_c),
    ):
        for _ in range(3):  # A ← A B, by way of C
            assert product(machine, cublas, size, at_a, at_b, at_c) == SUCCESS
            assert (
                machine.driver(
                    "cuMemcpyDtoDAsync_v2", pointer(at_a), pointer(at_c), wide(a.nbytes), own
                ).status
                == 0
            )
        assert machine.driver("cuStreamSynchronize", own).status == 0
        result = machine.get(at_a, a)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    np.testing.assert_allclose(result, wide_a @ wide_b @ wide_b @ wide_b, rtol=1e-4, atol=0.05)


def test_a_captured_product_is_computed_each_time_that_the_graph_is_launched(machine: Machine) -> None:
    size = 64
    a, b = matrices(size, 2)
    c = np.zeros_like(a)
    with (
        handle(machine) as cublas,
        stream(machine, cublas) as own,
        machine.arrays(a, b, c) as (at_a, at_b, at_c),
    ):
        assert (
            product(machine, cublas, size, at_a, at_b, at_c) == SUCCESS
        )  # what the first call loads is no work to capture
        assert machine.driver("cuStreamSynchronize", own).status == 0
        assert machine.driver("cuStreamBeginCapture_v2", own, integer(0)).status == 0
        assert product(machine, cublas, size, at_a, at_b, at_c, beta=1.0) == SUCCESS
        graph = machine.driver("cuStreamEndCapture", own, out(8))
        assert graph.status == 0
        runnable = machine.driver("cuGraphInstantiateWithFlags", out(8), pointer(graph.number()), wide(0))
        assert runnable.status == 0
        for _ in range(4):
            assert machine.driver("cuGraphLaunch", pointer(runnable.number()), own).status == 0
        assert machine.driver("cuStreamSynchronize", own).status == 0
        result = machine.get(at_c, c)
    np.testing.assert_allclose(result, 5 * (a.astype(np.float64) @ b), rtol=1e-4, atol=0.01)


def test_a_large_product_is_divided_and_whole(machine: Machine) -> None:
    size = 1100  # no multiple of what one part computes
    a, b = matrices(size, 2)
    c = np.zeros_like(a)
    with handle(machine) as cublas, machine.arrays(a, b, c) as (at_a, at_b, at_c):
        assert product(machine, cublas, size, at_a, at_b, at_c) == SUCCESS
        result = machine.get(at_c, c)
    np.testing.assert_allclose(result, a.astype(np.float64) @ b, rtol=1e-4, atol=0.01)


@pytest.fixture
def doomed(machine_of_its_own: Machine) -> Machine:
    """A program whose GPU session a test breaks."""
    return machine_of_its_own


def test_an_operand_outside_the_memory_is_an_illegal_address(doomed: Machine) -> None:
    size = 64
    (a,) = matrices(size, 1)
    with handle(doomed) as cublas:
        at_a = doomed.put(a)
        assert product(doomed, cublas, size, at_a, at_a, 0x1000) == SUCCESS
        assert doomed.synchronize() == ILLEGAL_ADDRESS
        assert doomed.synchronize() == ILLEGAL_ADDRESS  # as after any kernel's


def test_the_next_program_on_a_share_begins_with_new_handles(tmp_path: Path) -> None:
    """What the worker's libraries and kernels held in a context ends with the program whose context it was."""
    size, (a, b) = 16, matrices(16, 2)
    results = []
    for share in share_of_a_worker(tmp_path, **worker_variables(native_directory(), "libraries")):
        for _ in range(3):
            for machine in machine_of(environment(None, share.file, os.environ, software=True)):
                with (
                    ExitStack() as stack,
                    handle(machine) as cublas,
                    machine.arrays(a, b, a) as (at_a, at_b, at_c),
                ):
                    assert product(machine, cublas, size, at_a, at_b, at_c) == SUCCESS
                    np.testing.assert_allclose(
                        machine.get(at_c, a), a.astype(np.float64) @ b, rtol=1e-4, atol=0.01
                    )
                    [at_x, at_y] = place(stack, machine, *[np.ones((1, 2, 30, 30), SINGLE)] * 2)
                    results.append(Dropout(stack, machine, 0.5, 3).forward(at_x, at_y))
    for result in results:
        np.testing.assert_array_equal(result.ravel() != 0, kept(3, 0, result.size, 0.5))


def test_a_context_that_ends_while_another_is_current_takes_its_handles_along(doomed: Machine) -> None:
    size, (a, b) = 16, matrices(16, 2)
    first = pointer(doomed.driver("cuCtxGetCurrent", out(8)).number())

    def multiply() -> None:
        with handle(doomed) as cublas, doomed.arrays(a, b, a) as (at_a, at_b, at_c):
            assert product(doomed, cublas, size, at_a, at_b, at_c) == SUCCESS
            result = doomed.get(at_c, a)
        np.testing.assert_allclose(result, a.astype(np.float64) @ b, rtol=1e-4, atol=0.01)

    multiply()
    made = doomed.driver("cuCtxCreate_v2", out(8), integer(0), integer(0))
    assert made.status == 0
    multiply()
    assert doomed.driver("cuCtxSetCurrent", first).status == 0
    assert doomed.driver("cuCtxDestroy_v2", pointer(made.number())).status == 0
    multiply()


def test_a_node_without_the_library_says_its_name(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """On a GPU of NVIDIA: an operation needs NVIDIA's library on the node."""
    size, (a,) = 8, matrices(8, 1)
    for share in share_of_a_worker(tmp_path, GPUPOOL_MATH_LIBRARIES=str(tmp_path)):
        for machine in machine_of(environment(None, share.file, os.environ, software=True)):
            with handle(machine) as cublas:
                at_a = machine.put(a)
                assert product(machine, cublas, size, at_a, at_a, at_a) == SUCCESS
                assert machine.synchronize() == NOT_SUPPORTED_BY_DRIVER
    assert "libcublas.so.12" in capfd.readouterr().err
