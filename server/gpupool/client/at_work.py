"""What a session's devices do now, in words, for every list that shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

#: Errors of CUDA after which a session can do nothing until it is reset.
FAILURES: Final[Mapping[int, str]] = {
    214: "uncorrectable memory error",
    220: "uncorrectable NVLink error",
    700: "illegal address",
    702: "launch timeout",
    709: "context is destroyed",
    710: "assertion failed",
    714: "hardware stack error",
    715: "illegal instruction",
    716: "misaligned address",
    717: "invalid address space",
    718: "invalid program counter",
    719: "launch failed",
}
#: A kernel that runs for longer is named.
LONG_SECONDS: Final = 2.0


class AtWork(Protocol):
    """What is needed of a :class:`gpupool.client.types.Usage`, of a lease or of a share that is held."""

    @property
    def work(self) -> str: ...
    @property
    def kernel(self) -> str: ...
    @property
    def work_seconds(self) -> float: ...


def failure_name(error: int) -> str:
    """``illegal address (CUDA error 700)``."""
    known = FAILURES.get(error)
    return f"{known} (CUDA error {error})" if known else f"CUDA error {error}"


def in_words(at_work: AtWork) -> str:
    """``forever 14 s``, ``draining: forever since 12 s``, ``stopped: forever``; empty: nothing to be told."""
    kernel, seconds = at_work.kernel or "work", f"{at_work.work_seconds:.0f} s"
    match at_work.work:
        case "draining":
            return f"draining: {kernel} since {seconds}"
        case "stopped":
            return f"stopped: {kernel}"
        case "running" if at_work.work_seconds > LONG_SECONDS:
            return f"{kernel} {seconds}"
    return ""
