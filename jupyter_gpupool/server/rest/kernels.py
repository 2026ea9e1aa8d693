"""Kernels and their sessions."""

from __future__ import annotations

from typing import Literal, NotRequired

from gpupool.client.session.record import State
from typing_extensions import TypeAliasType, TypedDict

from jupyter_gpupool.server.rest.explanations import KernelQueuePlace
from jupyter_gpupool.server.rest.sentences import Said
from jupyter_gpupool.server.rest.usage import Usage, UsageSample

#: Where device memory lies.
MemoryPlace = TypeAliasType("MemoryPlace", Literal["device", "host", "image", "none"])
Activity = Literal["", "parking", "resuming", "moving"]
Enforcement = Literal["soft", "hard", "mps", "none"]
Holder = Literal["sidebar", "magic", "attach", "auto"]


class Share(TypedDict):
    """What a session holds: the same of each device."""

    milli: int
    """Milli-GPU of one device."""
    mib: int
    """Memory of one device, MiB."""
    count: int
    """Devices."""


class Auto(TypedDict):
    """What `%gpu auto on` asks for."""

    share: str | None
    """Null: what the kernel had last."""
    count: int
    strict: bool
    """The share is a hard cap on device time."""


class Memory(TypedDict):
    """Where the device memory of a session lies."""

    place: MemoryPlace
    activity: Activity
    """What is being done with it; empty: nothing."""
    obstacles: list[Said]
    """What cannot be done with it, and why."""
    enforcement: Enforcement
    """Of the compute share."""
    strict: bool
    """The compute share is a hard cap."""


class Notice(TypedDict):
    """The pool will take a share back."""

    reason: str
    seconds_left: int
    explanation: str
    said: Said
    """For whom, and what becomes of the session."""
    returns: bool
    """The kernel asks again by itself; its calls wait meanwhile."""


class Idle(TypedDict):
    """The idle ladder of a held lease, in seconds where nothing else is said."""

    seconds: int
    """Since anything used the GPU: the smaller of the two clocks."""
    kernel_seconds: int
    """Since the last cell ended; 0 while one runs."""
    gpu_seconds: int | None
    """Since the last work on the GPU; null: not known, counts as in use."""
    warn_at: int | None
    """Null: never released."""
    release_at: int | None
    """Null: never released."""
    countdown: int | None
    choice_minutes: float | None
    """What was chosen for this kernel: 0 never, null the server's default."""
    default_minutes: float


class FreedShare(Share):
    """What was freed."""

    device: str
    """The first of its devices."""


class KeptMemory(TypedDict):
    """What was kept of device memory, and where."""

    bytes: int
    place: MemoryPlace


class Released(TypedDict):
    """The last release that nobody at this kernel asked for, or a Detach."""

    reason: str
    message: str
    """Why, what was freed, what was kept and where; or why what was kept went away later."""
    draining: bool
    """The pool does not lend the share to others yet."""
    at: float
    """Unix time, seconds."""
    age_seconds: int
    """How long ago that is, whatever the clock of the reader says."""
    freed: FreedShare
    memory: KeptMemory
    undo_seconds: int
    """For how long Undo is still offered; 0: it is not."""


class Session(TypedDict):
    """What the session of a kernel is and does, without whose it is."""

    session_id: str | None
    state: State
    held: bool
    share: Share | None
    project: str | None
    """Whose quota the last share that was asked for counts against; empty: the user's own."""
    device: str | None
    """The first of its devices."""
    software: bool | None
    """Whether its devices are computed on a processor; null: it holds none."""
    queue: KernelQueuePlace | None
    idle: Idle | None
    released: Released | None
    """Kept until the next attach."""
    notice: Notice | None
    """Set from the moment that the pool says it will take the share back."""
    returning: bool
    """Its share was taken back for others, and it waits for it to come again."""
    silent: bool
    """The pool has not answered for so long that the share may be gone: calls wait until it says."""
    memory: Memory | None
    """Null while there is no session, or the pool has not told."""
    message: str | None
    usage: Usage | None


class Kernel(Session):
    """A kernel of this Jupyter server, and its session."""

    kernel_id: str
    name: str
    path: str
    """Of its notebook; empty: it has none."""
    label: str
    """What people call it."""
    busy: bool
    by: Holder | None
    """The Attach button, a `%%gpu` cell, `%gpu attach` or `%gpu auto`."""
    auto: Auto | None
    """Set while CUDA calls of the kernel attach a GPU by themselves."""
    devices: list[str]
    """All of them, on one node or several."""
    reason: str | None
    """A `Reason`, or why the last request was refused."""
    samples: NotRequired[list[UsageSample]]
    """Only in answers to a poll that asked for them."""


class Kernels(TypedDict):
    """All kernels of this Jupyter server."""

    kernels: list[Kernel]


class UsageAnswer(Session):
    """A kernel's session, and what it has used since."""

    samples: list[UsageSample]
    """Oldest first."""
