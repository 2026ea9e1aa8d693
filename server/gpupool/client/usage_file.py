"""The usage file: what a session's processes may know about its use without loading the client runtime.

It lies beside the session file (``<session file>.usage``), is written by the holder of the lease whenever the pool
tells it new figures, and is read by the client's NVML, so that monitors started beside the program show them.
"""

from __future__ import annotations

import time
from pathlib import Path

from gpupool.client.session_file import write_private
from gpupool.client.types import Usage

SUFFIX = ".usage"
#: Written by the client runtime: the process that uses the session's devices.
PROCESS_SUFFIX = ".process"
#: Written by the client runtime: the last allocation that the share had no room for (:mod:`gpupool.client.refused_memory`).
REFUSED_SUFFIX = ".out_of_memory"


class UsageFile:
    """The usage file beside one session file."""

    def __init__(self, session_file: Path) -> None:
        self.path = session_file.with_name(session_file.name + SUFFIX)
        self._written: Usage | None = None

    def write(self, usage: Usage, now_ns: int | None = None) -> None:
        """Writes a report; ``now_ns`` is CLOCK_BOOTTIME.

        What the pool only repeats is not written again, so that readers see the age of a silent node's figures.
        """
        if usage == self._written:
            return
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME) if now_ns is None else now_ns
        # The time of all devices is counted together.
        busy = usage.busy / max(1, len(usage.memory_used))
        lines = [
            "version 1",
            f"time_ns {now}",
            f"busy_permille {round(1000 * min(max(busy, 0.0), 1.0))}",
            f"memory_used {','.join(str(used) for used in usage.memory_used)}",
        ]
        write_private(self.path, ("\n".join(lines) + "\n").encode())
        self._written = usage

    def remove(self) -> None:
        """Removes it, and what the process of the session left there."""
        self._written = None
        self.path.unlink(missing_ok=True)
        session_file = self.path.name.removesuffix(SUFFIX)
        for suffix in (PROCESS_SUFFIX, REFUSED_SUFFIX):
            self.path.with_name(session_file + suffix).unlink(missing_ok=True)
