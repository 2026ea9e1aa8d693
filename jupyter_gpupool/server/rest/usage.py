"""What sessions use."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

Work = Literal["", "running", "draining", "stopped"]


class LargerShare(TypedDict):
    """A share with room for what was refused."""

    share: str | None
    """As people write it; null: no device of the pool has so much."""
    mib: int
    """Its memory, of each device; of the largest share that there is where `share` is null."""
    free: bool
    """It is to be had now, with what the program holds."""
    count: int
    """Devices, each with such a share."""


class RefusedMemory(TypedDict):
    """An allocation that was refused, in bytes."""

    asked: int
    share: int
    """What the session may have on the device."""
    used: int
    largest_free: int
    """The largest piece that could have been had."""
    needed: int
    """A share of this size would have had room."""
    device: int
    """Which of the kernel's devices."""


class OutOfMemory(RefusedMemory):
    """The last allocation that was refused, in bytes, and the share that would have had room for it."""

    larger_share: LargerShare | None
    """Null: nobody knows of one."""


class Usage(TypedDict):
    """What a session has used, what runs now, and what broke it."""

    device_seconds: float
    utilization: float
    """Device time over wall time, 0..1."""
    memory_bytes: int
    memory_peak_bytes: int
    bytes_to_device: int
    bytes_from_device: int
    asks: int
    """Calls that waited for an answer."""
    calls: int
    in_flight: bool
    work: Work
    """What its devices do. `draining`: on after its lease has ended; `stopped`: it goes on with the next lease."""
    kernel: str
    """Short name of the kernel under way; empty where it has none."""
    work_seconds: float
    """How long what is under way has run."""
    failure: int
    """The CUDA error that ended what the session can do; 0: none."""
    failure_name: str
    """As people say it: `illegal address`."""
    failed_kernel: str
    failed_cell: str
    """The cell that broke it, such as `[3]`."""
    out_of_memory: OutOfMemory | None


class UsageSample(TypedDict):
    """Use over the second that ended at `t`."""

    t: float
    """Unix seconds of the server."""
    utilization: float
    """Device time over wall time, 0..1."""
    memory_bytes: int
    to_device_bps: float
    """Bytes per second over the wire."""
    from_device_bps: float
    """Bytes per second over the wire."""
