"""Each process killed in the middle of a cell: a clear end for the cell, and the share free within 35 s."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

import psutil
import pytest
from gpupool.client.session.words import SILENT_POOL

from tests.support.stack import Kernel, Stack, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

LONG_CELL = """%%gpu 0.3
import time
import numpy as np
from numba import cuda
x = cuda.to_device(np.ones(1000))
for step in range(600):
    x.copy_to_host()
    time.sleep(0.1)
"""

SUM_CELL = """%%gpu 0.2
import numpy as np
from numba import cuda
print("the sum", cuda.to_device(np.ones(1000)).copy_to_host().sum())
"""


@pytest.fixture
def stack() -> Iterator[Stack]:
    with Stack("--no-restart") as running:
        yield running


def start_long_cell(kernel: Kernel) -> str:
    running = kernel.start(LONG_CELL)
    wait_until(lambda: kernel.state()["state"] == "attached", 30, "the cell's share")
    wait_until(lambda: (kernel.state()["usage"] or {}).get("calls", 0) > 0, 30, "the cell's first calls")
    return running


def test_kernel_killed_while_attached(stack: Stack) -> None:
    kernel = stack.kernel()
    pid = kernel.pid()
    start_long_cell(kernel)
    os.kill(pid, signal.SIGKILL)
    stack.wait_free(35)
    wait_until(lambda: not stack.workers(), 10, "the worker of the dead kernel to end")


def test_worker_killed_in_the_middle_of_a_cell(stack: Stack) -> None:
    kernel = stack.kernel()
    running = start_long_cell(kernel)
    (worker,) = stack.workers()
    worker.kill()
    result = kernel.finish(running, 30)
    assert result.status == "error"
    assert "worker" in result.text.lower() or "lost" in result.text.lower(), result.text
    stack.wait_free(35)


def test_jupyter_server_killed_in_the_middle_of_a_cell(stack: Stack) -> None:
    kernel = stack.kernel()
    pid = kernel.pid()
    start_long_cell(kernel)
    # The launcher would end pool and node with JupyterLab; here the pool must see by itself that nobody renews.
    stack.process.send_signal(signal.SIGSTOP)
    try:
        stack.kill("JupyterLab")
        stack.wait_free(35)
    finally:
        stack.process.send_signal(signal.SIGCONT)
        if _alive(pid):
            os.kill(pid, signal.SIGKILL)


def test_node_agent_killed_in_the_middle_of_a_cell(stack: Stack) -> None:
    kernel = stack.kernel()
    running = start_long_cell(kernel)
    stack.kill("the node")
    result = kernel.finish(running, 60)
    assert result.status == "error"

    def freed() -> bool:
        shares = [share for device in stack.devices() for share in device["shares"]]
        return not shares

    wait_until(freed, 35, "the dead node's shares to be given up", interval=0.5)


def test_pool_killed_in_the_middle_of_a_cell(stack: Stack) -> None:
    kernel = stack.kernel()
    running = start_long_cell(kernel)
    stack.kill("the pool")
    kernel.await_text(running, SILENT_POOL, 60)
    kernel.interrupt()
    result = kernel.finish(running, 60)
    assert result.status == "error"
    assert "CUDA calls of this cell waited" in result.text
    down = kernel.run("%%gpu 0.2\nprint('the body ' + 'ran')", seconds=40)
    assert down.status == "error"
    assert "the body ran" not in down.text
    assert "pool" in down.text.lower()


def test_a_pool_that_comes_back_in_time_costs_nothing() -> None:
    with Stack() as stack:
        kernel = stack.kernel()
        running = kernel.start(LONG_CELL.replace("600", "120"))
        wait_until(lambda: kernel.state()["state"] == "attached", 30, "the cell's share")
        stack.kill("the pool")
        result = kernel.finish(running, 60)
        assert result.status == "ok", result.text
        stack.wait_free(35)


def another_pool(stack: Stack, than: int) -> bool:
    with contextlib.suppress(KeyError):  # there is none yet
        return stack.pid("the pool") != than
    return False


def test_jupyterlab_and_its_kernels_outlast_the_keeper_of_their_pool() -> None:
    with Stack() as stack:
        kernel = stack.kernel()
        assert kernel.run("made = 'by hand'").status == "ok"
        first = stack.pid("the pool")
        os.kill(psutil.Process(first).ppid(), signal.SIGKILL)
        wait_until(lambda: another_pool(stack, first), 60, "another pool")
        wait_until(lambda: any(device["healthy"] for device in stack.devices()), 60, "its devices")
        result = kernel.run(f"{SUM_CELL}print(made)")
        assert (result.status, result.text.split("\n")[:2]) == ("ok", ["the sum 1000.0", "by hand"]), (
            result.text
        )
        assert stack.process.poll() is None


def test_a_pool_that_is_away_for_longer_than_a_lease_lives_is_waited_for() -> None:
    with Stack() as stack:
        kernel = stack.kernel()
        running = kernel.start(f"{LONG_CELL}print('the sum', x.copy_to_host().sum())".replace("600", "400"))
        wait_until(lambda: kernel.state()["state"] == "attached", 30, "the cell's share")
        session = kernel.state()["session_id"]
        pool = stack.pid("the pool")
        os.kill(pool, signal.SIGSTOP)  # it is not started again before it has ended
        try:
            kernel.await_text(running, SILENT_POOL, 60)
            view = kernel.state()
            assert (view["state"], view["silent"], view["message"]) == ("attached", True, SILENT_POOL)
            time.sleep(5)
        finally:
            os.kill(pool, signal.SIGKILL)
        result = kernel.finish(running, 120)
        assert result.status == "ok", result.text
        assert "the sum 1000.0" in result.text
        assert result.text.count(SILENT_POOL) == 1
        assert kernel.state()["session_id"] == session
        stack.wait_free(35)


def test_a_cell_that_begins_while_the_pool_is_silent_waits_on_the_share_that_is_held() -> None:
    with Stack() as stack:
        kernel = stack.kernel()
        assert kernel.run("%gpu attach 0.3").status == "ok"
        session = kernel.state()["session_id"]
        pool = stack.pid("the pool")
        os.kill(pool, signal.SIGSTOP)
        try:
            wait_until(lambda: kernel.state()["silent"], 60, "the silence to be told")
            assert kernel.run("%gpu attach 0.3").status == "ok"
            running = kernel.start(SUM_CELL)
            kernel.await_text(running, SILENT_POOL, 60)
        finally:
            os.kill(pool, signal.SIGKILL)
        result = kernel.finish(running, 120)
        assert result.status == "ok", result.text
        assert "the sum 1000.0" in result.text
        view = kernel.state()
        assert (view["state"], view["held"], view["session_id"]) == ("attached", True, session)


def test_a_node_agent_that_comes_back_adopts_its_workers() -> None:
    with Stack() as stack:
        kernel = stack.kernel()
        running = kernel.start(LONG_CELL.replace("600", "120"))
        wait_until(lambda: kernel.state()["state"] == "attached", 30, "the cell's share")
        (worker,) = stack.workers()
        stack.kill("the node")
        result = kernel.finish(running, 60)
        assert result.status == "ok", result.text
        assert [process.pid for process in stack.workers()] == [worker.pid]
        stack.wait_free(35)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
