"""How much of this machine parked sessions may take: host memory for what left the devices, disk for images."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

#: The part of the machine's memory that is lent to parked sessions when nothing else is said: one in so many.
DEFAULT_PART: Final = 4
_PROC: Final = Path("/proc")
_CGROUPS: Final = Path("/sys/fs/cgroup")


def default_park_memory_mib() -> int:
    """A quarter of :func:`machine_memory_mib`."""
    return machine_memory_mib() // DEFAULT_PART


def machine_memory_mib(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """Memory of the machine, of this container, or of the job or the service that this is: what is least.

    Args:
        proc: where the kernel tells of processes.
        cgroups: where control groups are mounted, those of version 1 by controller.

    Returns:
        MiB; 0 when the machine's memory cannot be read.
    """
    total = 0
    try:
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemTotal:"):
                total = int(line.split()[1]) // 1024
    except (OSError, ValueError, IndexError):
        return 0
    return min([total, *_limits_mib(proc, cgroups)])


def _limits_mib(proc: Path, cgroups: Path) -> list[int]:
    """The limits of the control groups of this process, from its own to the root of what it sees (cgroups(7))."""
    found: list[int] = []
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    for line in ["0::/", *lines]:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            root, name = cgroups, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = cgroups / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = root / path.lstrip("/")
        for folder in [group, *group.parents]:
            # The root of the machine has none, nor has a group of elsewhere; "max" is none.
            with contextlib.suppress(OSError, ValueError):
                found.append(int((folder / name).read_text()) >> 20)
            if folder == root:
                break
    return found
