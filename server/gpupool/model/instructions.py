"""What the machine wants done. The shell stores the step in the ledger first, then does these, in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpupool.model.state import RequestRecord
from gpupool.scheduler.model import Decision, PlacedShare
from gpupool.sentences import Sentence


@dataclass(frozen=True, slots=True)
class ToNode:
    """Base of messages to a node's agent; dropped when the connection is gone."""

    node: str
    connection: int
    request: int
    session_id: str


@dataclass(frozen=True, slots=True)
class StartWorker(ToNode):
    """Start a worker for a session; whoever shows `token` is its client, and whoever shows `move_key` takes it over."""

    epoch: int
    shares: tuple[PlacedShare, ...]
    token: str = field(repr=False)
    move_key: str = field(repr=False)
    user: str
    strict: bool = False
    #: Address of the session's present worker on another node, which the new one fetches the session from.
    image_source: str = ""
    #: The session lies on the node's disk.
    from_image: bool = False


@dataclass(frozen=True, slots=True)
class ApplyLease(ToNode):
    """Grant, renew or resize the lease of a running worker."""

    epoch: int
    shares: tuple[PlacedShare, ...]


@dataclass(frozen=True, slots=True)
class RevokeLease(ToNode):
    """End the lease of a running worker; the session stays."""

    epoch: int


@dataclass(frozen=True, slots=True)
class StopWorker(ToNode):
    """End a worker: what it keeps on its node is gone then."""

    reason: str


@dataclass(frozen=True, slots=True)
class ParkMemory(ToNode):
    """Moves the memory of a parked session to `place`: `host` or `image`."""

    epoch: int
    place: str


@dataclass(frozen=True, slots=True)
class LiveLease:
    """A lease that still lives; `shares` empty: extend it as last applied."""

    session_id: str
    epoch: int
    shares: tuple[PlacedShare, ...]


@dataclass(frozen=True, slots=True)
class AnswerHeartbeat:
    """Says which leases of the node live; a worker without one fences itself."""

    node: str
    connection: int
    number: int
    leases: tuple[LiveLease, ...]


@dataclass(frozen=True, slots=True)
class DropNode:
    """End a node's stream: its agent must say hello again."""

    node: str
    connection: int


@dataclass(frozen=True, slots=True)
class TellQueued:
    """Tells a waiting caller its place and why it waits."""

    user: str
    key: str
    place: int
    said: Sentence
    eta: float | None

    @property
    def explanation(self) -> str:
        """The words, with all names."""
        return str(self.said)


@dataclass(frozen=True, slots=True)
class TellGranted:
    """Tells a caller that its lease is there and its worker serves."""

    user: str
    key: str
    lease_id: str


@dataclass(frozen=True, slots=True)
class TellRefused:
    """`request` and `decision`: what was decided, by the scheduler or the rules of the queue; None: nothing was."""

    user: str
    key: str
    reason: str
    said: Sentence
    request: RequestRecord | None = None
    decision: Decision | None = None

    @property
    def explanation(self) -> str:
        """The words, with all names."""
        return str(self.said)


@dataclass(frozen=True, slots=True)
class TellResized:
    """Answer to a Resized event; `said` nothing: done."""

    lease_id: str
    reason: str
    said: Sentence

    @property
    def explanation(self) -> str:
        """The words, with all names."""
        return str(self.said)


@dataclass(frozen=True, slots=True)
class Fault:
    """The pool failed at something by a mistake of its own, and goes on without it. For its log alone.

    Attributes:
        what: it failed at.
        user: whose request it was.
        key: of that request.
        error: with its traceback.
    """

    what: str
    user: str
    key: str
    error: Exception


@dataclass(frozen=True, slots=True)
class Journal:
    """A line for the ledger's journal, stored with the step it explains."""

    kind: str
    said: Sentence
    user: str = ""
    lease_id: str = ""
    session_id: str = ""
    node: str = ""
    data: Mapping[str, object] = field(default_factory=dict)

    @property
    def explanation(self) -> str:
        """The words, with all names."""
        return str(self.said)


Instruction = (
    StartWorker | ApplyLease | RevokeLease | StopWorker | ParkMemory | AnswerHeartbeat | DropNode
    | TellQueued | TellGranted | TellRefused | TellResized | Fault | Journal
)  # fmt: skip
