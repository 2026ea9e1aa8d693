"""What can happen to a GPU session, and what may have to be done about it.

The vocabulary of the state machine in :mod:`gpupool.client.session.state`.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpupool.client.types import Grant, LeaseRequest, Notice, QueuePlace
from gpupool.shares import Share

# --- events -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AttachWanted:
    """Somebody wants shares. ``scope`` names what runs with them; ``hold`` asks to keep them after it."""

    request: LeaseRequest
    by: str
    scope: str | None = None
    hold: bool = False


@dataclass(frozen=True, slots=True)
class ResizeWanted:
    """Somebody wants another size of the live lease."""

    share: Share


@dataclass(frozen=True, slots=True)
class Queued:
    """The request waits, or its place has changed."""

    place: QueuePlace


@dataclass(frozen=True, slots=True)
class Granted:
    """The lease is there, and its worker serves."""

    grant: Grant


@dataclass(frozen=True, slots=True)
class Refused:
    """The pool said no, or did not answer (``pool-down``)."""

    reason: str
    explanation: str


@dataclass(frozen=True, slots=True)
class Resized:
    """The live lease has another size now."""

    grant: Grant


@dataclass(frozen=True, slots=True)
class ResizeRefused:
    """The lease keeps its size; ``unanswered``: or it has the new one, and the pool could not say so."""

    lease_id: str
    unanswered: bool = False


@dataclass(frozen=True, slots=True)
class LeaseRenewed:
    """The pool has answered: the lease lives."""

    lease_id: str


@dataclass(frozen=True, slots=True)
class RequestCancelled:
    """The one who asked does not wait any longer."""


@dataclass(frozen=True, slots=True)
class ScopeLeft:
    """A cell or a ``with`` block ended. Unknown scopes are ignored: leaving twice is harmless."""

    scope: str


@dataclass(frozen=True, slots=True)
class DetachWanted:
    """Drops the hold; with ``force`` also the scopes that run.

    ``unused_seconds``: how long nothing had used the GPU, when that is why.
    """

    reason: str = "release"
    force: bool = False
    unused_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Warned:
    """Nothing has used the GPU for long; it goes back in ``countdown`` seconds."""

    countdown: int


@dataclass(frozen=True, slots=True)
class Used:
    """The GPU is in use again, or somebody pressed Keep."""


@dataclass(frozen=True, slots=True)
class NoticeTold:
    """The pool will take the lease back, or (None) will not after all."""

    lease_id: str
    notice: Notice | None


@dataclass(frozen=True, slots=True)
class LastMoments:
    """The lease ends in a moment: what runs must come to rest."""

    lease_id: str


@dataclass(frozen=True, slots=True)
class LeaseEnded:
    """The pool ended the lease, or has been silent for so long that it must have.

    ``session_alive`` False: its memory is gone as well. ``held_seconds``: for how long it was held.
    """

    lease_id: str
    reason: str
    session_alive: bool = True
    detail: str = ""
    held_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The pool closed or lost the session while it was parked; ``reason``: why, where it says so."""

    session_id: str
    lost: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ResetWanted:
    """Somebody ends the GPU session, with all that is in its memory; its process stays."""


@dataclass(frozen=True, slots=True)
class HolderEnded:
    """The process ended: shut down, died, or was restarted."""

    reason: str = "exit"


Event = (
    AttachWanted
    | ResizeWanted
    | Queued
    | Granted
    | Refused
    | Resized
    | ResizeRefused
    | LeaseRenewed
    | RequestCancelled
    | ScopeLeft
    | DetachWanted
    | Warned
    | Used
    | NoticeTold
    | LastMoments
    | LeaseEnded
    | SessionEnded
    | ResetWanted
    | HolderEnded
)


# --- instructions -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequestLease:
    """Ask the pool for a lease."""

    request: LeaseRequest


@dataclass(frozen=True, slots=True)
class ResizeLease:
    """Ask the pool for another size of the live lease; ``gives_back``: for a smaller one, which nobody waits for."""

    lease_id: str
    share: Share
    gives_back: bool = False


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Leave the queue."""


@dataclass(frozen=True, slots=True)
class ReleaseLease:
    """Give the lease back; the session parks."""

    lease_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class CloseSession:
    """End the session: its GPU memory is lost."""

    session_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Reject:
    """Answer to an :class:`AttachWanted` or :class:`ResizeWanted` that needs no pool to be wrong."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class AskAgain:
    """Ask for a lease that was taken back; nobody waits for the answer but the process's own calls."""

    request: LeaseRequest


@dataclass(frozen=True, slots=True)
class HandOver:
    """Give the lease back as soon as the process is done with it."""

    lease_id: str
    notice: Notice


@dataclass(frozen=True, slots=True)
class Publish:
    """Rewrite the session file, then tell everybody who watches."""


Instruction = (
    RequestLease
    | ResizeLease
    | CancelRequest
    | ReleaseLease
    | CloseSession
    | Reject
    | AskAgain
    | HandOver
    | Publish
)
