"""Leases: the grants of shares to holders, with the word that they will end and changes of their size."""

from __future__ import annotations

from dataclasses import dataclass

from gpupool.filters import Filter
from gpupool.model.node_records import node_of_device
from gpupool.model.project_records import DEFAULT_PROJECT
from gpupool.scheduler.model import PlacedShare
from gpupool.sentences import Sentence

#: Lease states. A `starting` lease waits for its worker; a `releasing` one is over for its holder, but
#: its share is not free yet; an `ended` one holds nothing.
LEASE_STATES = ("starting", "attached", "releasing", "ended")


@dataclass(frozen=True, slots=True)
class Notice:
    """A lease will be taken back.

    Attributes:
        reason: ``reclaim``, ``preempt``, ``consolidate``, ``drain`` (its node is emptied) or ``budget`` (its user's
            GPU-seconds will be used up).
        until: when.
        said: one sentence for its holder: for whom, and what becomes of it.
        for_request: the request that needs the room; empty: none.
        target: where its session will go on at once; empty: it waits its turn.
        heard: its holder has been told, with the answer to a renewal.
    """

    reason: str
    until: float
    said: Sentence
    for_request: str = ""
    target: tuple[PlacedShare, ...] = ()
    heard: bool = False

    @property
    def explanation(self) -> str:
        """The words, with all names."""
        return str(self.said)


@dataclass(frozen=True, slots=True)
class Resize:
    """A size change that the worker has not confirmed yet; both sizes stay taken until then.

    `request`: number of the instruction that the worker must confirm; 0: it has to be told again. Not stored.
    `done`: it has, but not yet the workers of the other parts of its gang. Not stored.
    """

    shares: tuple[PlacedShare, ...]
    request: int
    since: float
    done: bool = False


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The grant of shares to one holder.

    Attributes:
        key: idempotency key of the request it answers; unique per user.
        renew_by: revoked when not renewed by then; None: held without renewals. Not stored.
        covered_at: when an answered heartbeat, or the grant itself, last covered it. Not stored.
        since: when the current state began. Not stored.
        confirm_request: number of the instruction that the worker must confirm. Not stored.
        close_session: the session closes with this lease.
        gang: the first lease of the gang that it is a part of, which stands for the whole towards the holder:
            it alone is renewed. Empty: it is the whole.
        part: its place in the gang, from 0.
        ready: of a `starting` part: its worker serves it, those of other parts may not yet. Not stored.
        address: where that worker is. Not stored.
        project: whose quota it counts against.
        kind: whether it may be taken back, one of `gpupool.request.gpu_request.KINDS`.
        priority: in its project; higher is served first.
        notice: it will be taken back soon.
        filters: what its request wanted its devices to be like. Not stored; after a restart of the pool a session may be asked to
            move where its holder's next request does not follow, and waits then.
    """

    id: str
    session_id: str
    user: str
    key: str
    label: str
    holder: str
    epoch: int
    shares: tuple[PlacedShare, ...]
    state: str
    granted_at: float
    new_session: bool
    reservation: bool = False
    ends_at: float | None = None
    reason: str = ""
    ended_at: float | None = None
    close_session: bool = False
    resize: Resize | None = None
    renew_by: float | None = None
    covered_at: float = 0.0
    since: float = 0.0
    confirm_request: int = 0
    gang: str = ""
    part: int = 0
    ready: bool = False
    address: str = ""
    project: str = DEFAULT_PROJECT
    kind: str = "interactive"
    priority: int = 100
    notice: Notice | None = None
    filters: tuple[Filter, ...] = ()

    @property
    def live(self) -> bool:
        """Whether it serves its holder (or is about to)."""
        return self.state in ("starting", "attached")

    @property
    def holds(self) -> bool:
        """Whether its shares are taken."""
        return self.state != "ended"

    @property
    def node(self) -> str:
        """The node whose worker serves it; while a session moves this is not yet the session's."""
        return node_of_device(self.shares[0].device_id)

    @property
    def milli(self) -> int:
        """Milli-GPU that are taken of all its devices together: during a resize the larger of both sizes."""
        return sum(share.milli for share in self.taken())

    def taken(self) -> tuple[PlacedShare, ...]:
        """What is taken per device: during a resize the larger of both sizes."""
        if self.resize is None:
            return self.shares
        return tuple(
            PlacedShare(old.device_id, max(old.milli, new.milli), max(old.mib, new.mib))
            for old, new in zip(self.shares, self.resize.shares, strict=True)
        )

    def takes_like(self, other: LeaseRecord) -> bool:
        """Whether both take the same of the same devices for the same user and project: most changes change none of it."""
        return (
            self.holds == other.holds
            and self.shares == other.shares
            and self.resize == other.resize
            and (self.user, self.project) == (other.user, other.project)
        )
