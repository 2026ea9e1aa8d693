"""When a GPU that nobody uses goes back: a pure ladder, active → idle → warned → release.

Two clocks, and both must have stood still: the kernel's (no cell runs, none has ended
lately) and the GPU's (no submitted work, none in flight). Neither alone tells the truth: a
thread may use the GPU while no cell runs, and a cell may compute on the CPU for an hour.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Rung(StrEnum):
    ACTIVE = "active"
    IDLE = "idle"
    WARNED = "warned"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class IdlePolicy:
    """Seconds without use before release (0: never), and how long before it to warn."""

    idle_seconds: float = 600.0
    warn_seconds: float = 60.0

    @property
    def warn_at(self) -> float:
        return max(0.0, self.idle_seconds - self.warn_seconds)


@dataclass(frozen=True, slots=True)
class Signals:
    """What is known at ``now``; times are of one monotonic clock, in seconds.

    Attributes:
        attached_at: when the lease began.
        cell_running: an ``execute_request`` of the kernel is open.
        last_cell_at: when the last one ended (or ``attached_at``).
        gpu_idle_seconds: since the last submitted work; None: not known, counts as in use.
        gpu_in_flight: work has been submitted and is not finished.
        kept_until: Keep was pressed; no release before.
    """

    now: float
    attached_at: float
    cell_running: bool
    last_cell_at: float
    gpu_idle_seconds: float | None
    gpu_in_flight: bool
    kept_until: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """``countdown``: seconds until release, None while nothing counts down."""

    rung: Rung
    idle_seconds: float
    countdown: float | None


def judge(policy: IdlePolicy, signals: Signals) -> Verdict:
    """Where on the ladder a lease stands."""
    idle = idle_seconds(signals)
    if policy.idle_seconds <= 0 or idle <= 0:
        return Verdict(Rung.ACTIVE if idle <= 0 else Rung.IDLE, idle, None)
    countdown = max(policy.idle_seconds - idle, signals.kept_until - signals.now)
    if countdown <= 0:
        return Verdict(Rung.RELEASE, idle, 0.0)
    if countdown <= policy.warn_seconds:
        return Verdict(Rung.WARNED, idle, countdown)
    return Verdict(Rung.IDLE, idle, None)


def idle_seconds(signals: Signals) -> float:
    """Seconds since anything used the kernel's GPU; 0 while something does."""
    if signals.cell_running or signals.gpu_in_flight or signals.gpu_idle_seconds is None:
        return 0.0
    kernel_idle = signals.now - max(signals.attached_at, signals.last_cell_at)
    return max(0.0, min(kernel_idle, signals.gpu_idle_seconds))
