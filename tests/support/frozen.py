"""Stops a process for a while, so that it is neither dead nor answering."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.patience import until_late


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Inside, no thread of ``pid`` runs. ``kill`` alone returns before that is true."""
    os.kill(pid, signal.SIGSTOP)
    try:
        deadline = until_late(10)
        while not _stopped(pid):
            assert time.monotonic() < deadline, f"process {pid} does not stop"
            time.sleep(0.001)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _stopped(pid: int) -> bool:
    states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in _tasks(pid)]
    return all(state == "T" for state in states)


def _tasks(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").iterdir())
