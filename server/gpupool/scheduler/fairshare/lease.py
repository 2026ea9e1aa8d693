"""Leases and waiting requests as the rules of projects see them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeldLease:
    """What a lease takes of the pool.

    Attributes:
        milli: of all its devices together.
        kind: ``interactive``, ``guaranteed`` or ``preemptible``.
        granted_at: seconds, any clock; only the order matters.
    """

    id: str
    project: str
    milli: int
    kind: str = "interactive"
    priority: int = 100
    granted_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request that waits; `milli` of all its devices together.

    Attributes:
        held_up: of that, what it could not be granted whatever others held: it raises no fair share.
    """

    id: str
    project: str
    milli: int
    priority: int = 100
    held_up: int = 0


def seniority(lease: HeldLease) -> tuple[int, float, str]:
    """The smaller, the longer it is kept: higher priority first, then granted first."""
    return (-lease.priority, lease.granted_at, lease.id)
