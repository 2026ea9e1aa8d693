"""Cells whose GPU kernel never ends or breaks the GPU session: the notebook's kernel lives on, and goes on with a new one.

Real server, pool, worker, kernel and numba.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.support.effort import SOME, effort
from tests.support.stack import Kernel, Stack, wait_until

SETUP = """
import numpy as np
from numba import cuda

@cuda.jit
def forever(a):
    while a[0] < 1.0:
        a[1] += 1.0
        cuda.nanosleep(1_000_000)

@cuda.jit
def bad(a):
    a[1 << 40] = 1.0

@cuda.jit
def bad_later(a):
    for _ in range(300):
        cuda.nanosleep(1_000_000)
    a[1 << 40] = 1.0

@cuda.jit
def add(a, b):
    i = cuda.grid(1)
    if i < a.size:
        a[i] += b

@cuda.jit
def add_window(a):
    window = cuda.shared.array(8, np.float64)
    i = cuda.grid(1)
    window[i] = a[i]
    cuda.syncthreads()
    a[i] = window[7 - i]

summed = cuda.reduce(lambda a, b: a + b)
"""
#: Everything that was defined before goes on: kernels, a reduction; what has handles is made again.
WORKS = """%%gpu 0.2
x = cuda.to_device(np.ones(8))
add[1, 8](x, 1.0)
add_window[1, 8](x)
view, stream, event = x[2:5], cuda.stream(), cuda.event()
print('sum', x.copy_to_host().sum(), summed(x), view.copy_to_host().sum())
"""


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with Stack("--software-gpus", "1") as running:
        yield running


@pytest.fixture(scope="module")
def kernel(stack: Stack) -> Kernel:
    started = stack.kernel()
    assert started.run(SETUP).status == "ok"
    return started


@pytest.fixture(autouse=True)
def works_before_and_after(stack: Stack, kernel: Kernel) -> Iterator[None]:
    """Whatever a test breaks, the same process goes on."""
    assert "sum 16.0 16.0 6.0" in kernel.run(WORKS).text
    yield
    after = kernel.run(WORKS)
    assert "sum 16.0 16.0 6.0" in after.text, after.text
    stack.wait_free(10)


def computes_on(stack: Stack) -> bool:
    """Whether a worker of this stack computes."""
    before = {worker.pid: effort(worker.pid) for worker in stack.workers()}
    time.sleep(1)
    # One that is new is being started.
    return any(
        effort(worker.pid) - before[worker.pid] > SOME for worker in stack.workers() if worker.pid in before
    )


def test_a_refused_call_is_explained_once_and_below_what_the_cell_shows(stack: Stack, kernel: Kernel) -> None:
    why = "No GPU is attached"
    caught = kernel.run("try:\n    x.copy_to_host()\nexcept Exception:\n    print('cau' + 'ght')")
    assert (caught.text.count(why), caught.text.index("caught") < caught.text.index(why)) == (1, True)
    raised = kernel.run("x.copy_to_host()")
    assert raised.text.count(why) == 1, raised.text
    assert raised.text.rindex("DEVICE_UNAVAILABLE") < raised.text.index(why)


def test_a_broken_session_is_refused_until_it_is_reset(stack: Stack, kernel: Kernel) -> None:
    session = kernel.state()["session_id"]
    broke = kernel.run("%%gpu 0.2\nbad[1, 1](x)")
    assert "illegal address" in broke.text
    assert "%gpu reset" in broke.text
    assert "CUDA error 700" not in broke.text
    refused = kernel.run("%%gpu 0.2\nprint('r' + 'an')")
    assert (refused.ename, "%gpu reset" in refused.evalue) == ("GpuError", True)
    assert kernel.state()["state"] == "parked"
    assert kernel.run("%gpu reset").status == "ok"
    # What names memory of before says so; it neither crashes nor reads what is at its address now.
    kernel.run("%%gpu 0.2\nother = cuda.to_device(np.full(8, 7.0))")
    for use in (
        "x.copy_to_host()",
        "add[1, 8](x, 1.0)",
        "view.copy_to_host()",
        "x[0]",
        "x[2:3].copy_to_host()",
    ):
        lost = kernel.run(f"%%gpu 0.2\n{use}")
        assert lost.ename == "GpuMemoryLostError", (use, lost.text)
    # The end of what is lost frees nothing of the new session.
    kernel.run("import gc; old = x; del x, view, old, stream, event; gc.collect()")
    kept = kernel.run(
        "%%gpu 0.2\nfor _ in range(50): cuda.to_device(np.ones(64))\nprint(other.copy_to_host().sum())"
    )
    assert "56.0" in kept.text, kept.text
    assert kernel.state()["session_id"] != session


def test_under_a_hold_the_cell_that_broke_the_session_is_named(stack: Stack, kernel: Kernel) -> None:
    assert kernel.run("%gpu attach 0.2").status == "ok"
    broke = kernel.run("bad[1, 1](x); cuda.synchronize()")
    assert f"failed in cell [{broke.number}] (illegal address)" in broke.text, broke.text[-900:]
    assert f"failed in cell [{broke.number}]" in kernel.run("%gpu status").text
    assert f"failed in cell [{broke.number}]" in refusal(kernel)


def test_what_fails_after_its_cell_is_of_that_cell(stack: Stack, kernel: Kernel) -> None:
    assert kernel.run("%gpu attach 0.2").status == "ok"
    broke = kernel.run("bad_later[1, 1](x)")
    assert (broke.status, "failed" in broke.text) == ("ok", False)
    wait_until(lambda: bool((kernel.state()["usage"] or {}).get("failure")), 20, "the failure")
    assert f"failed in cell [{broke.number}]" in refusal(kernel)


def refusal(kernel: Kernel) -> str:
    """What a cell that wants a share is told in place of running, and a reset."""
    refused = kernel.run("%%gpu 0.1\nprint('r' + 'an')")
    assert (refused.ename, "ran" in refused.text) == ("GpuError", False), refused.text
    assert kernel.run("%gpu reset").status == "ok"
    return str(refused.evalue)


def test_two_interrupts_at_the_end_of_a_cell_end_the_session(stack: Stack, kernel: Kernel) -> None:
    cell = kernel.start("%%gpu 0.2\nz = cuda.to_device(np.zeros(2)); forever[1, 1](z); print('o' + 'ver')")
    kernel.await_text(cell, "over", 30)
    wait_until(lambda: computes_on(stack), 30, "the kernel to compute")
    kernel.interrupt()
    kernel.await_text(cell, "Interrupt again", 10)
    time.sleep(0.5)
    kernel.interrupt()
    ended = kernel.finish(cell, 20)
    assert (ended.status, "KeyboardInterrupt" in ended.text) == ("error", True)
    wait_until(lambda: kernel.state()["session_id"] is None, 10, "the end of the session")
    assert not computes_on(stack)


def test_two_interrupts_of_a_call_end_the_session(stack: Stack, kernel: Kernel) -> None:
    cell = kernel.start(
        "%%gpu 0.2\nz = cuda.to_device(np.zeros(2)); forever[1, 1](z); print('o' + 'ver'); cuda.synchronize()"
    )
    kernel.await_text(cell, "over", 30)
    wait_until(lambda: computes_on(stack), 30, "the kernel to compute")
    kernel.interrupt()
    kernel.await_text(cell, "Interrupt again", 10)
    time.sleep(0.5)
    kernel.interrupt()
    ended = kernel.finish(cell, 20)
    assert (ended.status, "KeyboardInterrupt" in ended.text) == ("error", True)
    # Once before the second interrupt, once after it.
    assert ended.text.count("variables stay") == 2, ended.text[-900:]
    assert kernel.state()["session_id"] is None
    assert not computes_on(stack)


WORKER_GONE = "is gone with what was in its memory"
CONNECTION_LOST = "is lost, and with it what was in GPU memory"


def test_a_worker_that_dies_under_a_cell_is_said_once(stack: Stack, kernel: Kernel) -> None:
    cell = kernel.start(
        "%%gpu 0.2\nz = cuda.to_device(np.zeros(2)); forever[1, 1](z); print('o' + 'ver'); cuda.synchronize()"
    )
    kernel.await_text(cell, "over", 30)
    for worker in stack.workers():
        worker.kill()
    ended = kernel.finish(cell, 60)
    # The kernel's connection, or the server, may be the first to notice.
    said = [text for text in (WORKER_GONE, CONNECTION_LOST) for _ in range(ended.text.count(text))]
    assert (ended.status, len(said)) == ("error", 1), ended.text[-900:]
    assert "is kept" not in ended.text


def test_the_row_resets_what_a_cell_waits_for(stack: Stack, kernel: Kernel) -> None:
    cell = kernel.start("%%gpu 0.2\nz = cuda.to_device(np.zeros(2)); forever[1, 1](z); print('o' + 'ver')")
    kernel.await_text(cell, "over", 30)
    wait_until(lambda: computes_on(stack), 30, "the kernel to compute")
    stack.api("POST", f"gpupool/api/kernels/{kernel.id}/reset")
    kernel.finish(cell, 20)
    assert not computes_on(stack)


def test_a_cell_whose_time_is_over_ends_although_its_kernel_is_only_stopped(
    stack: Stack, kernel: Kernel
) -> None:
    cell = kernel.start(
        "%%gpu 0.2 --for 2s\nz = cuda.to_device(np.zeros(2)); forever[1, 1](z); cuda.synchronize()"
    )
    ended = kernel.finish(cell, 60)
    computing, state = computes_on(stack), kernel.state()["state"]
    assert kernel.run("%gpu reset").status == "ok"
    assert (ended.status, state, computing) == ("error", "parked", False)
    assert "DEVICE_UNAVAILABLE" in ended.text
    assert 'kernel "forever" has not ended' in ended.text
