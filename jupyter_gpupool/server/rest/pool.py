"""The pool as one user sees it, and what she may ask of it."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from jupyter_gpupool.server.rest.explanations import Explanation


class DeviceShare(TypedDict):
    """A part of one device as one holder has it."""

    lease_id: str
    session_id: str
    user: str
    mine: bool
    kernel_id: str | None
    """Of this Jupyter server; null: it is none of its kernels."""
    label: str
    milli: int
    mib: int
    state: str
    in_use: bool


class Device(TypedDict):
    """One GPU, real or software."""

    id: str
    node: str
    name: str
    software: bool
    healthy: bool
    health_reason: str
    drained: bool
    """Its node takes no new leases; `healthy` is false then too."""
    total_mib: int
    usable_mib: int
    """The total less the reserve."""
    free_milli: int
    free_mib: int
    used_bytes: int
    shares: list[DeviceShare]


class QueueEntry(TypedDict):
    """A request that waits."""

    place: int
    """1 is next."""
    user: str
    mine: bool
    kernel_id: str | None
    """Of this Jupyter server; null: it is none of its kernels."""
    label: str
    milli: int
    mib: int
    count: int
    reason: str
    eta_seconds: float | None
    """Null: not known."""
    project: str
    explanation: Explanation | None
    wants: list[str]
    """Devices that are kept free of later requests for this one."""


class Totals(TypedDict):
    """Sums over healthy devices."""

    milli: int
    free_milli: int


class Pool(TypedDict):
    """The whole pool; one that does not answer has `ok` false and nothing in it."""

    ok: bool
    error: NotRequired[str]
    """Why it does not answer."""
    wrong_setting: str | None
    """Which setting keeps the server from asking the pool."""
    startable: Literal["no", "lends", "borrows"]
    """Whether one may be started with `POST api/pool/start`, because none is configured and none answers; and whether it lends
    the GPUs of the server's machine, or borrows GPUs from an engine such as Slurm."""
    user: str
    """Whom the server asks for; empty: it shows a token, and the pool has not said yet whose."""
    devices: list[Device]
    lenders: list[str]
    """Engines that lend nodes when somebody needs them; told only where there is no device."""
    queue: list[QueueEntry]
    """The first places, and those of the user."""
    queue_left_out: int | None
    """How many more wait; null: the queue is not known."""
    totals: Totals


class ProjectChoice(TypedDict):
    """A project that may be asked for; quantities in milli-GPU."""

    path: str
    deserved: int
    """What it always gets of the present pool."""
    limit: int | None
    """What it never exceeds, the limits above it included; null: no limit."""
    held: int
    """What its leases hold."""
    free: int | None
    """What is left of the limit that is reached first; null: no limit."""


class Projects(TypedDict):
    """The projects that the user may ask for."""

    project: str
    """What a request without a project counts against; empty: name one."""
    projects: list[ProjectChoice]
    error: str | None
    """Why `projects` is not known."""


class ServerDefaults(TypedDict):
    """What this Jupyter server knows by itself."""

    share: str
    wait_seconds: float
    """Of the queue; negative: without end."""
    idle_minutes: float
    """Without use, before the GPU goes back; 0: it never does."""
    idle_minutes_most: float
    never_allowed: bool
    warn_seconds: float
    user: str
    """Whom the server asks for; empty: it shows a token, and the pool has not said yet whose."""
    admin: bool
    version: str
    """Empty where the code was not installed."""


class Defaults(ServerDefaults, Projects):
    """What Attach asks for when a person says nothing, and which projects there are to choose from."""


class Choices(TypedDict):
    """What a request can name in this pool, for completion."""

    projects: list[str]
    names: list[str]
    """Of devices."""
    nodes: list[str]
    labels: dict[str, list[str]]
    """Of nodes: the values of each."""
    node_pools: list[str]
