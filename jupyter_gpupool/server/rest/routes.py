"""The table of routes: what is served, and what is said of it, comes from here."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final, TypeAlias

from typing_extensions import TypeAliasType

from jupyter_gpupool.server.rest import bodies, dashboard, kernel_side, kernels, pool
from jupyter_gpupool.server.rest.route import LINES, Query, Route

#: A description in the words of OpenAPI 3.1.
Description = TypeAliasType("Description", dict[str, Any])
#: Templates by the id of the sentence; of two forms `by` names the parameter that decides.
Catalogue = TypeAliasType("Catalogue", "dict[str, str | dict[str, str]]")
#: Whatever is answered as one JSON object: a handler cannot answer anything else.
Answer: TypeAlias = (
    pool.Pool
    | pool.Defaults
    | pool.Choices
    | kernels.Kernel
    | kernels.Kernels
    | kernels.UsageAnswer
    | kernel_side.OwnKernel
    | dashboard.History
    | dashboard.Administration
    | dashboard.Node
    | dashboard.Project
)

#: Who is not logged in, or not allowed.
_LOGGED_IN: Final = frozenset({HTTPStatus.FORBIDDEN})
_CHECKED: Final = frozenset({HTTPStatus.BAD_REQUEST})
_ANSWERED_BY_POOL: Final = frozenset({HTTPStatus.CONFLICT, HTTPStatus.SERVICE_UNAVAILABLE})
_OF_KERNEL: Final = _LOGGED_IN | _ANSWERED_BY_POOL | {HTTPStatus.NOT_FOUND}
_BY_KERNEL: Final = _LOGGED_IN | _ANSWERED_BY_POOL

_SINCE: Final = "Unix time of the server, seconds; below 0 it is counted from now."


def _verb(
    verb: str, does: str, *body: Any, method: str = "POST", status: HTTPStatus = HTTPStatus.OK
) -> Route:
    """Something that is done with a kernel, which is the answer."""
    return Route(
        method,
        f"api/kernels/{{kernel_id}}/{verb}",
        does,
        kernels.Kernel,
        body=body,
        refusals=_OF_KERNEL | _CHECKED if body else _OF_KERNEL,
        status=status,
    )


def _own(verb: str, does: str, *body: Any) -> Route:
    """Something that a kernel asks for itself."""
    refusals = _BY_KERNEL | _CHECKED if body else _BY_KERNEL
    return Route("POST", f"self/{verb}", does, kernel_side.OwnKernel, body=body, refusals=refusals)


ROUTES: Final = (
    # what pages and the widget ask
    Route("GET", "api/pool", "Devices, shares and the queue.", pool.Pool, refusals=_LOGGED_IN),
    Route(
        "POST",
        "api/pool/start",
        "Starts a pool on this server's machine, unless `startable` is `no`, and answers when its GPUs can be asked for. "
        "It ends with this server.",
        pool.Pool,
        refusals=_LOGGED_IN | {HTTPStatus.CONFLICT},
    ),
    Route(
        "GET",
        "api/defaults",
        "What Attach asks for when a person says nothing, and the user's projects. A pool that does not answer leaves "
        "`projects` empty, and `error` says why.",
        pool.Defaults,
        refusals=_LOGGED_IN,
    ),
    Route(
        "GET",
        "api/catalogue",
        "The words of the pool's sentences: templates by the id of the sentence. A browser keeps them by their `ETag`.",
        Catalogue,
        refusals=_LOGGED_IN,
    ),
    Route(
        "GET",
        "api/kernels",
        "All kernels of this server.",
        kernels.Kernels,
        query=(Query("samples_since", f"Adds what each kernel has used since then. {_SINCE}", "number"),),
        refusals=_LOGGED_IN | _CHECKED,
    ),
    _verb(
        "attach",
        "Holds a share for the kernel until it is detached. Answers when the kernel is attached or queued.",
        bodies.GpuRequest,
        status=HTTPStatus.ACCEPTED,
    ),
    _verb("detach", "Takes the GPU from the kernel, which keeps its memory.", bodies.DetachBody),
    _verb("reset", "Ends the kernel's GPU session with all that is in its memory."),
    _verb("keep", "No idle release for so many minutes.", bodies.KeepBody),
    _verb("idle", "After how many minutes without use the GPU of this kernel goes back.", bodies.IdleBody),
    _verb(
        "undo",
        "Attaches what was released last, with the same terms and its memory.",
        status=HTTPStatus.ACCEPTED,
    ),
    _verb("resize", "Another share on the same device.", bodies.ResizeBody),
    _verb("queue", "Leaves the queue.", method="DELETE"),
    _verb(
        "take",
        "Asks for something else in the place of what the kernel waits for; a cell that waits goes on with it.",
        bodies.GpuRequest,
        status=HTTPStatus.ACCEPTED,
    ),
    Route(
        "GET",
        "api/kernels/{kernel_id}/usage",
        "What the kernel has used, in samples of one second.",
        kernels.UsageAnswer,
        query=(Query("since", f"Samples after that time only. {_SINCE}", "number"),),
        refusals=_OF_KERNEL | _CHECKED,
    ),
    # the dashboard
    Route(
        "GET",
        "api/history",
        "What was held and used over time.",
        dashboard.History,
        query=(
            Query("view", "`cluster` by default; the views are those of `gpupool report history`."),
            Query("name", "Of what is looked at."),
            Query("from", "Unix seconds; by default an hour ago.", "number"),
            Query("to", "Unix seconds; by default now.", "number"),
            Query("points", "At most so many; by default 240.", "number"),
            Query("by", "What the members are."),
        ),
        refusals=_LOGGED_IN | _CHECKED | _ANSWERED_BY_POOL,
    ),
    Route(
        "GET",
        "api/administration",
        "Nodes and projects as this user may see them, and whether she may change them.",
        dashboard.Administration,
        refusals=_LOGGED_IN | _ANSWERED_BY_POOL,
    ),
    Route(
        "POST",
        "api/administration/drain",
        "Lets a node take no new leases, or take them again. For administrators.",
        dashboard.Node,
        body=(bodies.DrainBody,),
        refusals=_LOGGED_IN | _CHECKED | _ANSWERED_BY_POOL,
    ),
    Route(
        "POST",
        "api/administration/project",
        "Changes what a project deserves, its limit or its weight. For administrators.",
        dashboard.Project,
        body=(bodies.ProjectBody,),
        refusals=_LOGGED_IN | _CHECKED | _ANSWERED_BY_POOL,
    ),
    Route("GET", "api/openapi.json", "This description.", Description, refusals=_LOGGED_IN),
    # what kernels ask for themselves
    Route(
        "POST",
        "self/attach",
        "Attaches a GPU to the kernel that asks, and tells on the way where it waits: a JSON object a line, "
        "`queued` and `waiting`, at last `attached` or `refused`.",
        kernel_side.AttachLine,
        body=(bodies.GpuRequest, bodies.CellBody),
        refusals=_BY_KERNEL | _CHECKED,
        media=LINES,
    ),
    _own("release", "A `%%gpu` cell has ended.", bodies.ScopeBody),
    _own("detach", "Drops the hold of this kernel."),
    _own("reset", "Ends this kernel's GPU session; answers when the pool has closed it."),
    _own("report", "What only the kernel knows of its session.", bodies.ReportBody),
    _own("resize", "Another share on the same device.", bodies.ResizeBody),
    _own("keep", "No idle release for so many minutes.", bodies.KeepBody),
    _own(
        "auto",
        "Has the kernel's CUDA calls attach a GPU by themselves from now on, or not any more.",
        bodies.GpuRequest,
        bodies.AutoBody,
    ),
    Route("GET", "self/status", "This kernel's session.", kernel_side.OwnKernel, refusals=_BY_KERNEL),
    Route("GET", "self/pool", "Devices, shares and the queue.", pool.Pool, refusals=_BY_KERNEL),
    Route("GET", "self/choices", "What a request can name in this pool.", pool.Choices, refusals=_BY_KERNEL),
)
