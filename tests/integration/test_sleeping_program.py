"""A laptop sleeps while its program computes: the pool takes the share back, and the program goes on when it wakes.

The program and `gpupool run` are stopped for longer than a lease lives without renewal. The program wakes first, and
launches kernels under a lease that is over; nobody waits for them, so no answer can tell it. None is lost, and none is
executed twice: it counts them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.test_taken_back_program import Running
from tests.support.pool_node import PoolAndNode

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def stack() -> Iterator[PoolAndNode]:
    with PoolAndNode(real_worker=True, gpus=1) as running:
        yield running


def send(signal_number: int, *processes: int) -> None:
    for process in processes:
        os.kill(process, signal_number)


def program_of(running: Running) -> int:
    """The process that computes, below the command."""
    [program] = [
        child.pid
        for child in psutil.Process(running.process.pid).children(recursive=True)
        if any(part.endswith("sleeper.py") for part in child.cmdline())
    ]
    return int(program)


def test_a_program_that_slept_goes_on_and_loses_no_launch(stack: PoolAndNode, tmp_path: Path) -> None:
    sleeper = Running(stack, tmp_path, "sleeper")
    try:
        sleeper.await_text("counting")
        program = program_of(sleeper)
        for _ in range(2):
            send(signal.SIGSTOP, sleeper.process.pid, program)
            stack.wait_free()
            send(signal.SIGCONT, program)
            # What it launches now reaches a worker without a lease: its holder is still asleep.
            stack.wait(lambda: psutil.Process(program).status() != psutil.STATUS_STOPPED, 10, "it to wake")
            send(signal.SIGCONT, sleeper.process.pid)
            stack.wait(lambda: bool(shares(stack)), 30, "a share again")
        sleeper.end()
    finally:
        sleeper.process.kill()
    stack.wait_free()


def shares(stack: PoolAndNode) -> list[object]:
    return [share for device in stack.devices() for share in device["shares"]]
