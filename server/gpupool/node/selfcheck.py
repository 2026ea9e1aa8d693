"""What a node says of itself when the pool's health report asks: disk, parked memory, MPS, NVML, math libraries, its address."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpupool.client import cpu_math
from gpupool.engines import mps
from gpupool.node.address import pool_host, reaches_only_here
from gpupool.node.math_libraries import MathLibraries

#: Below so much disk images and logs of workers are in danger; below the second, workers do not start.
LITTLE_DISK_MIB: Final = 2048
NO_DISK_MIB: Final = 128
_MEMINFO: Final = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True)
class Check:
    """One line: ``status`` is ``ok``, ``warn`` or ``fail``."""

    name: str
    status: str
    detail: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What does not change while the agent runs.

    Attributes:
        directory: where workers, images and logs lie.
        mps_mode: ``off``, ``auto`` or ``require``.
        daemon: the MPS daemon that workers are clients of.
        math_libraries: NVIDIA's, to which workers give operations.
        reaches_host_memory: kernels can use all memory of the worker that launches them.
    """

    directory: Path
    endpoint: str | None
    advertise_host: str
    software: bool
    watched_by_nvml: bool
    park_memory_mib: int
    park_disk_mib: int
    mps_mode: str
    daemon: mps.MpsDaemon | None
    math_libraries: MathLibraries
    reaches_host_memory: bool = False


def checks(facts: NodeFacts, parked_mib: int) -> list[Check]:
    """All of them; ``parked_mib``: host memory that parked sessions take now. Reads files: call it in a thread."""
    park = park_memory(facts.park_memory_mib, parked_mib, _available_mib(_MEMINFO))
    return [
        _disk(facts),
        park,
        _mps(facts),
        _device_health(facts),
        _math_libraries(facts),
        _address(facts),
        _host_memory(facts),
    ]


def _disk(facts: NodeFacts) -> Check:
    try:
        free = shutil.disk_usage(facts.directory).free >> 20
    except OSError as error:
        return Check(
            "disk", "fail", f"{facts.directory} cannot be read ({error.strerror})", "look at the disk"
        )
    detail = f"{free} MiB free for {facts.directory}"
    if free < NO_DISK_MIB:
        return Check("disk", "fail", detail, "free some: workers cannot write their state")
    if free < LITTLE_DISK_MIB:
        return Check("disk", "warn", detail, "free some, or lower --park-disk-mib and --image-cache-mib")
    if free < facts.park_disk_mib:
        detail += f", less than the {facts.park_disk_mib} MiB that parked sessions may take"
        return Check("disk", "warn", detail, "lower --park-disk-mib or free some")
    return Check("disk", "ok", detail)


def park_memory(budget_mib: int, parked_mib: int, available_mib: int | None) -> Check:
    """Whether what may still be parked fits in the machine; ``available_mib`` None: not known."""
    name = "park memory"
    if not budget_mib:
        return Check(
            name, "ok", "none: parked sessions keep their memory on the device (--park-memory-mib 0)"
        )
    promised = max(0, budget_mib - parked_mib)
    detail = f"{parked_mib} of {budget_mib} MiB taken"
    if available_mib is None:
        return Check(name, "ok", detail)
    detail += f", the machine has {available_mib} MiB available"
    if available_mib < promised:
        hint = "lower --park-memory-mib, or give the machine's other programs less"
        return Check(name, "warn", f"{detail}, less than the {promised} MiB that may still be parked", hint)
    return Check(name, "ok", detail)


def _available_mib(meminfo: Path) -> int | None:
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) // 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


def _mps(facts: NodeFacts) -> Check:
    name = "MPS"
    if facts.daemon is None:
        return Check(name, "ok", f"workers are no clients of MPS (--mps {facts.mps_mode})")
    try:
        now = mps.find_daemon(facts.daemon.pipes)
    except mps.MpsUnusableError as error:
        return Check(
            name, "fail", f"{error}", "start the daemon again, then the node agent: workers cannot begin"
        )
    if now.pid != facts.daemon.pid:
        detail = f"the control daemon is process {now.pid}, no longer {facts.daemon.pid}"
        return Check(name, "warn", detail, "sessions that began before may have failed; begin them anew")
    return Check(
        name, "ok", f"workers are clients of the daemon at {now.pipes}; parked memory stays on devices"
    )


def _device_health(facts: NodeFacts) -> Check:
    name = "device health"
    if facts.software:
        return Check(name, "ok", "software GPUs, nothing to watch")
    if facts.watched_by_nvml:
        return Check(name, "ok", "watched by NVML")
    return Check(
        name, "warn", "NVML does not answer: a device that breaks is still lent", "install nvidia-ml-py"
    )


def _math_libraries(facts: NodeFacts) -> Check:
    name = "math libraries"
    found = facts.math_libraries
    if facts.software and not found.folders:
        library = cpu_math.blas_library()
        if library is None:
            return Check(
                name, "warn", "software GPUs compute without OpenBLAS, slowly", "install numpy on the node"
            )
        return Check(name, "ok", "software GPUs compute by NumPy's OpenBLAS")
    there = ", ".join(f"{library} {major}" for library, major in (found.versions or {}).items()) or "none"
    if not found.missing:
        return Check(name, "ok", there)
    return Check(
        name,
        "warn",
        f"{there}; missing: {', '.join(found.missing)}",
        "install jupyter-gpupool[cuda13] on the node ([cuda12] for drivers before 580), or name folders with --math-libraries",
    )


def _address(facts: NodeFacts) -> Check:
    name = "address"
    elsewhere = pool_host(facts.endpoint)
    if elsewhere is not None and reaches_only_here(facts.advertise_host):
        detail = f"kernels are told {facts.advertise_host}, which other machines cannot reach"
        return Check(
            name, "warn", detail, "give this machine's address with --listen-host or --advertise-host"
        )
    return Check(name, "ok", f"kernels dial {facts.advertise_host}")


def _host_memory(facts: NodeFacts) -> Check:
    name = "host memory"
    if not facts.reaches_host_memory:
        return Check(name, "ok", "kernels reach no memory of their worker but what it gives them")
    return Check(
        name,
        "warn",
        "kernels can read and write their worker's memory (--allow-host-access)",
        "load the driver's module with uvm_disable_hmm=1",
    )
