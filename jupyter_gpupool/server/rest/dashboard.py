"""What the dashboard shows: history, nodes, projects."""

from __future__ import annotations

from typing_extensions import TypedDict

from jupyter_gpupool.server.rest.sentences import Said


class Columns(TypedDict):
    """A value for each point: means, null where nobody looked."""

    t: list[float]
    """Beginning of the point, Unix seconds."""
    capacity_milli: list[float | None]
    held_milli: list[float | None]
    used_milli: list[float | None]
    idle_milli: list[float | None]
    """Held and not used."""
    capacity_mib: list[float | None]
    held_mib: list[float | None]
    memory_mib: list[float | None]
    waiting_milli: list[float | None]
    waiting: list[float | None]
    """How many requests waited."""
    to_device_bps: list[float | None]
    """Bytes per second."""
    from_device_bps: list[float | None]
    """Bytes per second."""


class Sums(TypedDict):
    """Sums over the time of a series."""

    seconds: float
    """How long of it was looked at."""
    capacity_hours: float
    """GPU hours, as all that follow."""
    held_hours: float
    used_hours: float
    idle_hours: float
    waiting_hours: float
    memory_gib_hours: float
    to_device_bytes: int
    from_device_bytes: int


class Member(Sums):
    """One of those that a series is the sum of."""

    name: str
    """`(others)`: those whose names this user does not get."""
    user: str
    """Of a client."""
    label: str


#: `from` is a word of Python.
Span = TypedDict("Span", {"from": float, "to": float})


class Series(Span):
    """What was held and used over time; `from` and `to` are Unix seconds."""

    step: float
    """Seconds from a point to the next."""
    points: Columns
    total: Sums
    members: list[Member]


class History(Series):
    """What was held and used over time, as this user may see it; `from` and `to` are Unix seconds."""

    admin: bool


class Node(TypedDict):
    """A machine that lends GPUs."""

    name: str
    connected: bool
    lost: bool
    silent_seconds: float
    drained: bool
    """It takes no new leases."""
    drain_reason: str
    node_pool: str
    sharing: str
    """`isolated`, `whole` or `open`."""
    devices: int
    """How many."""
    leases: int
    """How many."""


class Project(TypedDict):
    """A project and where it stands: sums over everything below it."""

    path: str
    deserved_milli: int | None
    """Null: what its siblings leave."""
    limit_milli: int | None
    """Null: none."""
    weight: int
    """Its part of what nobody deserves, against its siblings."""
    priority: int
    allocated_milli: int
    waiting_milli: int
    fair_share_milli: int
    real_deserved_milli: int
    """What `deserved_milli` comes to of the present pool."""
    alerts: list[Said]
    """What is nearly used up, for administrators."""


class Administration(TypedDict):
    """Nodes and projects as this user may see them."""

    admin: bool
    """She may change them."""
    nodes: list[Node]
    projects: list[Project]
    warnings: list[str]
    capacity_milli: int
