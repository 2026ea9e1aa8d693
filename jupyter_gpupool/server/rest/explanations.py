"""Why a request waits, and what would help."""

from __future__ import annotations

from typing_extensions import TypedDict

from jupyter_gpupool.server.rest.bodies import AttachOptions
from jupyter_gpupool.server.rest.sentences import Said


class Help(TypedDict):
    """What would help a request."""

    action: str
    said: Said
    request: AttachOptions | None
    """What would be granted now; null: it is not a matter of asking otherwise."""
    kernels: list[str]
    """Kernels of this server, after whose Detach the request itself would be granted."""


class Explanation(TypedDict):
    """Why a request waits, and what would help."""

    reason: str
    """An id: those of refusals, `turn` (others are before it), `notice` (room is being asked back)."""
    said: Said
    facts: dict[str, str]
    """The numbers behind the sentence, by name."""
    helps: list[Help]
    """The best first."""
    project: str
    place: int
    """In the queue; 0: it does not wait."""
    eta_seconds: float | None
    """Null: not known."""


class QueuePlace(TypedDict):
    """Where a request waits."""

    place: int
    """1 is next."""
    reason: str
    eta_seconds: float | None
    """Null: not known."""
    explanation: Explanation | None


class Asked(TypedDict):
    """What a kernel asked for, as Attach takes it."""

    share: str
    count: int
    project: str


class KernelQueuePlace(QueuePlace):
    """Where the request of a kernel waits."""

    takes: bool
    """Something else may be taken in its place."""
    cell: bool
    """A cell waits for it, and gets what is taken."""
    asked: Asked
