"""What is known of the GPU session of one holder: its state, who holds it, what is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from gpupool.client.session.words import PROGRAM_WORDS, Words
from gpupool.client.types import Grant, LeaseRequest, Notice, QueuePlace
from gpupool.shares import Share


class State(StrEnum):
    """States of a session; the words of every API, log, event and screen."""

    NONE = "none"
    QUEUED = "queued"
    ATTACHED = "attached"
    WARNED = "warned"
    PARKED = "parked"
    CLOSED = "closed"
    LOST = "lost"


#: States in which shares of devices are held.
HOLDING = frozenset({State.ATTACHED, State.WARNED})


@dataclass(frozen=True, slots=True)
class Hold:
    """The hold that outlives cells: who asked (``sidebar``, ``attach``, ``auto`` or ``command``) and for how much."""

    by: str
    share: Share


@dataclass(frozen=True, slots=True)
class Asking:
    """A request that the pool has not answered yet, and who becomes a holder when it is granted.

    ``again``: for a lease that was taken back for others, with the holders that it had.
    ``gives_back``: for what a cell had beyond the hold; nobody waits for the answer.
    """

    request: LeaseRequest
    scope: str | None
    by: str
    hold: bool
    resize: bool = False
    again: bool = False
    gives_back: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """The session of one process: a kernel's launch, a program, a command. A restart begins with a new one.

    Attributes:
        strict: its compute share is a hard cap, as its first attach asked.
        size_unsure: the lease may be larger than what is known of it: the pool has not answered a change of its size.
        request: what the lease was asked for with.
        notice: the pool will take the lease back; ``resting``: in a moment, so calls wait already.
        returns: whether a lease that is taken back for others is asked for again by itself.
        words: how its holder is told what happens to it.
    """

    state: State = State.NONE
    session_id: str | None = None
    strict: bool = False
    lease: Grant | None = field(default=None, repr=False)
    size_unsure: bool = False
    hold: Hold | None = None
    scopes: frozenset[str] = frozenset()
    asking: Asking | None = None
    queue: QueuePlace | None = None
    countdown: int | None = None
    reason: str | None = None
    message: str | None = None
    request: LeaseRequest | None = None
    notice: Notice | None = None
    resting: bool = False
    returns: bool = True
    words: Words = field(default=PROGRAM_WORDS, repr=False)

    @property
    def returning(self) -> bool:
        """Its lease was taken back for others, and it waits for another one: calls wait as well."""
        return self.asking is not None and self.asking.again

    @property
    def waiting(self) -> bool:
        """It asks for a lease and has none, also before the pool has told it a place in the queue."""
        return self.asking is not None and self.lease is None

    @property
    def held(self) -> bool:
        return self.hold is not None or bool(self.scopes)

    @property
    def by(self) -> str | None:
        """Who holds the lease; a running cell counts as ``magic``."""
        if self.hold is not None:
            return self.hold.by
        return "magic" if self.scopes else None
