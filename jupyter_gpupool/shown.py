"""What is shown of a kernel's session beside its state: the auto mode, and where its memory lies."""

from __future__ import annotations

from dataclasses import dataclass

from gpupool.client.obstacles import sentences
from gpupool.client.types import SessionInfo


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


@dataclass(slots=True)
class Shown:
    """Both, for one kernel; ``memory`` is None while the kernel has no session that the pool knows."""

    auto: AutoMode | None = None
    memory: MemoryPlace | None = None
