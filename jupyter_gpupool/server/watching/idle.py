"""When a GPU that nobody uses goes back: a pure ladder, active → idle → warned → release.

Two clocks, and both must have stood still: the kernel's (no cell runs, none has ended
lately) and the GPU's (no submitted work, none in flight). Neither alone tells the truth: a
thread may use the GPU while no cell runs, and a cell may compute on the CPU for an hour.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

#: The longest time that anybody may choose (a month), seconds.
LONGEST_SECONDS: Final = 31 * 24 * 3600.0


class Rung(StrEnum):
    """How far an idle kernel has come on the way to losing its GPU; each follows the one before."""

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
class IdleLimits:
    """What an administrator allows, in seconds; a kernel's own choice stays within it.

    Attributes:
        default_seconds: for kernels that chose nothing; 0: they are never released.
        warn_seconds: how long before the release the user is warned.
        most_seconds: the longest that a kernel may choose, and Keep may put off; 0: :data:`LONGEST_SECONDS`.
        never_allowed: a kernel may choose that it is never released.
    """

    default_seconds: float = 600.0
    warn_seconds: float = 60.0
    most_seconds: float = 24 * 3600.0
    never_allowed: bool = False

    @property
    def never(self) -> bool:
        """Whether a kernel may choose it; what is everybody's default is nobody's privilege."""
        return self.never_allowed or self.default_seconds <= 0

    @property
    def longest(self) -> float:
        """Seconds; no shorter than the default, which an administrator may set beyond the limit."""
        most = self.most_seconds if self.most_seconds > 0 else LONGEST_SECONDS
        return min(LONGEST_SECONDS, max(most, self.default_seconds))

    def policy(self, choice: float | None) -> IdlePolicy:
        """For a kernel that chose so many seconds (0: never; None: the default).

        A choice from before the limits were lowered counts as far as they allow it.
        """
        seconds = self.default_seconds if choice is None else choice
        if choice is not None and (choice > self.longest or (choice <= 0 and not self.never)):
            seconds = self.longest
        return IdlePolicy(seconds, self.warn_seconds)


@dataclass(frozen=True, slots=True)
class Signals:
    """What is known at ``now``; times are of one monotonic clock, in seconds.

    Attributes:
        attached_at: when the lease began.
        cell_running: an ``execute_request`` of the kernel is open.
        last_cell_at: when the last one ended (or ``attached_at``).
        gpu_idle_seconds: since the last submitted work; None: not known, counts as in use.
        gpu_in_flight: work has been submitted and is not finished.
        last_work_at: when it was last so. What runs for an hour was submitted an hour ago, and is not idle since.
        kept_until: Keep was pressed; no release before.
    """

    now: float
    attached_at: float
    cell_running: bool
    last_cell_at: float
    gpu_idle_seconds: float | None
    gpu_in_flight: bool
    last_work_at: float = 0.0
    kept_until: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where on the ladder a lease stands, in seconds.

    Attributes:
        idle_seconds: since anything used the kernel's GPU; 0 while something does.
        countdown: until release; None while nothing counts down.
        kernel_seconds: since the last cell ended; 0 while one runs.
        gpu_seconds: since the last submitted work; 0 while some is in flight, None: not known.
    """

    rung: Rung
    idle_seconds: float
    countdown: float | None
    kernel_seconds: float = 0.0
    gpu_seconds: float | None = None


def judge(policy: IdlePolicy, signals: Signals) -> Verdict:
    """Where on the ladder a lease stands."""
    kernel, gpu = kernel_seconds(signals), gpu_seconds(signals)
    idle = 0.0 if gpu is None else min(kernel, gpu)
    rung, countdown = _rung(policy, idle, signals.kept_until - signals.now)
    return Verdict(rung, idle, countdown, kernel, gpu)


def climb(policy: IdlePolicy, signals: Signals, *, warned: bool) -> tuple[Verdict, float]:
    """Where a lease stands at a look at it, and until when it is kept.

    Nobody loses a GPU unwarned (``warned``: the last look did): where the limits were lowered meanwhile,
    or nobody could look for some time, the whole time of a warning begins now.
    """
    verdict = judge(policy, signals)
    if verdict.rung is Rung.RELEASE and not warned and policy.warn_seconds > 0:
        signals = replace(signals, kept_until=signals.now + policy.warn_seconds)
        verdict = judge(policy, signals)
    return verdict, signals.kept_until


def _rung(policy: IdlePolicy, idle: float, kept_seconds: float) -> tuple[Rung, float | None]:
    if policy.idle_seconds <= 0 or idle <= 0:
        return Rung.ACTIVE if idle <= 0 else Rung.IDLE, None
    countdown = max(policy.idle_seconds - idle, kept_seconds)
    if countdown <= 0:
        return Rung.RELEASE, 0.0
    return (Rung.WARNED, countdown) if countdown <= policy.warn_seconds else (Rung.IDLE, None)


def kernel_seconds(signals: Signals) -> float:
    """Seconds since the kernel ran a cell, or got its GPU; 0 while a cell runs."""
    if signals.cell_running:
        return 0.0
    return max(0.0, signals.now - max(signals.attached_at, signals.last_cell_at))


def gpu_seconds(signals: Signals) -> float | None:
    """Seconds since work was submitted or ended, or the GPU was given; 0 while some is in flight, None: not known."""
    if signals.gpu_in_flight:
        return 0.0
    if signals.gpu_idle_seconds is None:
        return None
    rested = signals.now - max(signals.attached_at, signals.last_work_at)
    return max(0.0, min(rested, signals.gpu_idle_seconds))
