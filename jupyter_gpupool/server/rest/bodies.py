"""What may be sent. Handlers check it themselves and say what is wrong; a key that is not listed is passed over."""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypeAliasType, TypedDict

from jupyter_gpupool.server.rest.usage import RefusedMemory

#: A request for GPUs: the properties come from the table of options.
GpuRequest = TypeAliasType("GpuRequest", dict[str, Any])
#: One that names its share.
AttachOptions = TypeAliasType("AttachOptions", dict[str, Any])


class DetachBody(TypedDict):
    """How a GPU is taken from a kernel."""

    force: NotRequired[bool]
    """From a running cell, too."""


class KeepBody(TypedDict):
    """For how long an idle GPU is kept."""

    minutes: NotRequired[float | None]
    """Null: the server's default."""


class IdleBody(TypedDict):
    """After how long without use a GPU goes back."""

    minutes: float | None
    """0: never; null: the server's default."""


class ResizeBody(TypedDict):
    """Another share."""

    share: str | float
    """As in a request: `0.2`, `20%`, `2560MiB`, `2.5GiB`."""


class DrainBody(TypedDict):
    """Whether a node takes new leases."""

    node: str
    drained: bool
    reason: NotRequired[str]
    """At most 200 characters."""
    evict: NotRequired[bool]
    """Leases that it has are taken back."""


class QuotaChange(TypedDict):
    """What is changed of a project, in milli-GPU; null: nothing set. What is left out stays."""

    deserved: NotRequired[int | None]
    limit: NotRequired[int | None]
    weight: NotRequired[int]


class ProjectBody(QuotaChange):
    """What is changed of which project."""

    path: str


class ScopeBody(TypedDict):
    """A cell that ended."""

    scope: str
    """Which one."""


class ReportBody(TypedDict):
    """What only the kernel knows of its session; what is left out stays, null takes it back."""

    failed_cell: NotRequired[str | None]
    """The cell whose error ended the session, such as `[3]`."""
    out_of_memory: NotRequired[RefusedMemory | None]
    """The last refused allocation."""


class CellBody(TypedDict):
    """For whom a kernel asks: a cell, or itself."""

    scope: NotRequired[str | None]
    """The cell; without one the kernel asks to hold."""
    hold: NotRequired[bool]
    """The share stays after the cell."""
    outlives_cell: NotRequired[bool]
    """Code in a thread asks, which may run longer than the cell that started it."""


class AutoBody(TypedDict):
    """Whether calls attach by themselves."""

    on: NotRequired[bool]
