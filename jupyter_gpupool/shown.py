"""What is shown of a kernel's session beside its state: auto mode, where its memory lies, what the kernel reports."""

from __future__ import annotations

from dataclasses import dataclass

from gpupool.client.obstacles import sentences
from gpupool.client.types import SessionInfo

from jupyter_gpupool.session_record import Session


@dataclass(frozen=True, slots=True)
class AutoMode:
    """What ``%gpu auto on`` asks for at each time; share None: what the kernel had last."""

    share: str | None
    count: int = 1
    strict: bool = False


@dataclass(frozen=True, slots=True)
class MemoryPlace:
    """Where a session's device memory lies, and what keeps it there.

    Attributes:
        place: ``device``, ``host``, ``image`` or ``none``.
        activity: what is being done with it: empty, ``parking``, ``resuming`` or ``moving``.
        obstacles: a sentence for each thing that cannot be done with it; known before it is wanted.
        enforcement: of the compute share: ``soft``, ``hard``, ``mps`` or ``none``; ``strict``: it is a cap.
    """

    place: str
    activity: str
    obstacles: tuple[str, ...]
    enforcement: str
    strict: bool

    @classmethod
    def of(cls, info: SessionInfo) -> MemoryPlace:
        return cls(
            place=info.memory_place,
            activity=info.memory_activity,
            obstacles=sentences(info.park_obstacle, info.move_obstacle),
            enforcement=info.enforcement,
            strict=info.strict,
        )


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """The last allocation that was refused, in bytes.

    Attributes:
        asked: how much was asked for.
        share: what the session may have on that device.
        used: what it had there.
        largest_free: the largest piece that could have been had.
        device: the process's ordinal of the device.
    """

    asked: int
    share: int
    used: int
    largest_free: int
    device: int = 0


@dataclass(slots=True)
class Shown:
    """All of it, for one kernel.

    Attributes:
        memory: None while the kernel has no session that the pool knows.
        failed_cell: which cell broke the session, as people call it; empty: not known.
        out_of_memory: None: there was none lately.
    """

    auto: AutoMode | None = None
    memory: MemoryPlace | None = None
    failed_cell: str = ""
    out_of_memory: OutOfMemory | None = None

    def follow(self, before: Session, after: Session) -> None:
        """Forgets what was said of a session that has ended, or of a share that has changed."""
        if before.session_id != after.session_id:
            self.memory, self.failed_cell, self.out_of_memory = None, "", None
        elif after.lease is not None and (before.lease is None or before.lease.shares != after.lease.shares):
            self.out_of_memory = None
