"""What is shown of a kernel's session beside its state: auto mode, where its memory lies, what the kernel reports."""

from __future__ import annotations

from dataclasses import dataclass

from gpupool.client.refused_memory import LargerShare, RefusedMemory
from gpupool.client.session.record import Session
from gpupool.client.types import SessionInfo
from gpupool.sentences import Sentence
from gpupool.sentences.obstacles import sentences


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
        obstacles: what cannot be done with it, and why; known before it is wanted.
        enforcement: of the compute share: ``soft``, ``hard``, ``mps`` or ``none``; ``strict``: it is a cap.
    """

    place: str
    activity: str
    obstacles: tuple[Sentence, ...]
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
class Lacking:
    """The last allocation that was refused, and a share with room for it; None: nobody knows of one."""

    refused: RefusedMemory
    larger: LargerShare | None = None


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
    out_of_memory: Lacking | None = None

    def follow(self, before: Session, after: Session) -> None:
        """Forgets what was said of a session that has ended, or of a share that has changed."""
        if before.session_id != after.session_id:
            self.memory, self.failed_cell, self.out_of_memory = None, "", None
        elif after.lease is not None and (before.lease is None or before.lease.shares != after.lease.shares):
            self.out_of_memory = None
