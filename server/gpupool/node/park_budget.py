"""How much of this machine parked sessions may take: host memory for what left the devices, disk for images."""

from __future__ import annotations

from pathlib import Path
from typing import Final

#: The part of the machine's memory that is lent to parked sessions when nothing else is said: one in so many.
DEFAULT_PART: Final = 4
_MEMINFO = Path("/proc/meminfo")
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def default_park_memory_mib() -> int:
    """A quarter of :func:`machine_memory_mib`."""
    return machine_memory_mib() // DEFAULT_PART


def machine_memory_mib() -> int:
    """Memory of the machine or of this container, whichever is less; 0 when it cannot be read.

    A container's limit is that of the control group at the root of what the process sees. A limit further down
    (of a systemd unit, or of control groups of version 1) is not seen: ``--park-memory-mib`` says it.
    """
    total = 0
    try:
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemTotal:"):
                total = int(line.split()[1]) // 1024
    except (OSError, ValueError, IndexError):
        return 0
    try:
        limit = int(_CGROUP_LIMIT.read_text()) >> 20
    except (OSError, ValueError):  # no container, or "max"
        return total
    return min(total, limit)
