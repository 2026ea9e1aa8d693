"""Whether a worker computes, seen from outside: kernels of tests that never end sleep between two looks, and use hardly any
processor time then."""

from __future__ import annotations

import os
from pathlib import Path

#: In a second: a kernel that is stopped leaves a worker a tenth of this, one that sleeps a millisecond at a time twice.
SOME = 500


def effort(pid: int) -> int:
    """How often its threads have gone to sleep so far, and the time that they have computed, in half milliseconds."""
    sleeps = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            lines = (task / "status").read_text().splitlines()
        except OSError:
            continue  # the thread has ended
        sleeps += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches:"))
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sleeps + 2000 * (int(fields[11]) + int(fields[12])) // os.sysconf("SC_CLK_TCK")
