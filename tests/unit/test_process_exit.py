"""A process that exits is noticed at once, and only when somebody still wants to know."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path

from jupyter_gpupool.server.kernels.process_exit import when_exited


async def test_a_killed_process_is_told_once() -> None:
    process = subprocess.Popen(["sleep", "60"])
    gone = asyncio.Event()
    calls: list[str] = []

    def then() -> None:
        calls.append("gone")
        gone.set()

    stop = when_exited(process.pid, then)
    assert not gone.is_set()
    os.kill(process.pid, signal.SIGKILL)
    await asyncio.wait_for(gone.wait(), 10)
    process.wait()
    await asyncio.sleep(0.05)
    stop()
    assert calls == ["gone"]


async def test_a_cancelled_watch_says_nothing_and_leaves_no_descriptor() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    process = subprocess.Popen(["sleep", "60"])
    calls: list[str] = []
    stop = when_exited(process.pid, lambda: calls.append("gone"))
    stop()
    stop()
    process.kill()
    process.wait()
    await asyncio.sleep(0.05)
    assert calls == []
    assert len(list(Path("/proc/self/fd").iterdir())) == before


async def test_a_process_that_does_not_exist_is_no_error() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    calls: list[str] = []
    when_exited(process.pid, lambda: calls.append("gone"))()
    assert calls == []
