"""What a session has used, and what its devices do now."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """Counters since the session's start, and what its devices do now; seconds and bytes.

    Attributes:
        work: empty (nothing), ``running``, ``draining`` (its lease has ended) or ``stopped`` (it goes on with the
            next lease).
        kernel: short name of the kernel under way; empty: none, or something without a name.
        work_seconds: how long the work under way has had the device.
        failure: the CUDA error after which the session can do nothing until it is reset; 0: none.
        busy: device time in each of the last seconds; 1 is one device all the time.
    """

    device_seconds: float = 0.0
    kernels: int = 0
    calls: int = 0
    posts: int = 0
    asks: int = 0
    ask_seconds: float = 0.0
    bytes_to_device: int = 0
    bytes_from_device: int = 0
    memory_used: tuple[int, ...] = ()
    memory_peak: tuple[int, ...] = ()
    idle_seconds: float = 0.0
    in_flight: bool = False
    client_connected: bool = False
    state: str = ""
    work: str = ""
    kernel: str = ""
    work_seconds: float = 0.0
    failure: int = 0
    failed_kernel: str = ""
    busy: float = 0.0
