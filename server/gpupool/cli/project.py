"""`gpupool project`: the tree of projects, what each deserves, holds and waits for."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType

from gpupool.cli.common import completing, exits, quantities, show, watch
from gpupool.cli.common.options import Endpoint, Json, TokenFile, client, whole
from gpupool.client.errors import PoolRefusedError
from gpupool.client.projects import ProjectList, ProjectsClient, ProjectStatus

app = typer.Typer(no_args_is_help=True, help="Projects: their quotas, and how the rest is divided.")

Path = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="Path of the project: research, or research/vision below it.",
        autocompletion=completing.projects,
    ),
]


@app.command("list", cls=watch.WatchCommand, epilog=exits.HELP)
def list_(
    pool: Endpoint = None, token_file: TokenFile = None, json: Json = False, every: watch.Watch = None
) -> None:
    """Show the tree: what each project deserves, holds, waits for, and its fair share of now. Figures are GPUs.

    KEPT is the part of HELD that is not taken back for others.

    \b
    Examples:
      gpupool project list
      gpupool project list --watch
    """

    async def work() -> watch.Shown:
        async with client(pool, token_file) as connection:
            found = await ProjectsClient(connection).projects()
        data = {
            "projects": [_plain(project) for project in found.projects],
            "warnings": found.warnings,
            "capacity_milli": found.capacity_milli,
        }
        alerts = (str(said) for project in found.projects for said in project.alerts)
        return watch.Shown(_tree(found), data, (*found.warnings, *alerts))

    watch.look(work, as_json=json, every=every)


@app.command("show", cls=watch.WatchCommand, epilog=exits.HELP)
def show_(
    path: Path,
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
    every: watch.Watch = None,
) -> None:
    """Show one project with all that is set, and who belongs to it.

    \b
    Examples:
      gpupool project show research/vision
    """

    async def work() -> watch.Shown:
        async with client(pool, token_file) as connection:
            project = _find(await ProjectsClient(connection).projects(), path)
        return watch.Shown(_one(project), _plain(project), tuple(map(str, project.alerts)))

    watch.look(work, as_json=json, every=every)


@app.command("set", epilog=exits.HELP)
def set_(
    path: Path,
    deserved: Annotated[
        str | None,
        typer.Option(
            metavar="GPUS|rest",
            help="Number of GPUs that the project always gets. rest: everything that its siblings leave of "
            "their parent's [default: 0].",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        str | None,
        typer.Option(
            metavar="GPUS|none",
            help="Number of GPUs that the project never exceeds [default: none].",
            show_default=False,
        ),
    ] = None,
    weight: Annotated[
        int | None,
        typer.Option(
            parser=whole(0, 1_000_000),
            metavar="NUMBER",
            help="Weight for sharing unreserved GPUs with its siblings [default: 1].",
            show_default=False,
        ),
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option(
            parser=whole(-1_000_000, 1_000_000),
            metavar="NUMBER",
            help="Among siblings, the higher priority gets unreserved GPUs first [default: 0].",
            show_default=False,
        ),
    ] = None,
    min_run: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|parent",
            help="Time that its leases run before they may be taken back [default: its parent's, else one "
            "minute].",
            show_default=False,
        ),
    ] = None,
    member: Annotated[
        list[str] | None,
        typer.Option(
            metavar="USER|@GROUP",
            help="A user who may use the project, @GROUP of JupyterHub, or '*' for everybody. May be "
            "repeated. Replaces the former members.",
            show_default=False,
        ),
    ] = None,
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Make a project, or change the settings that you name. For administrators.

    \b
    Examples:
      gpupool project set research --deserved 6
      gpupool project set research/vision --deserved 4 --limit 8 --weight 3 --member ann --member bob
    """
    changes: dict[str, Any] = {}
    if deserved is not None:
        changes["deserved_milli"] = quantities.milli_or(quantities.REST, deserved)
    if limit is not None:
        changes["limit_milli"] = quantities.milli_or(quantities.NONE, limit)
    if weight is not None:
        changes["weight"] = weight
    if priority is not None:
        changes["priority"] = priority
    if min_run is not None:
        changes["min_run_seconds"] = quantities.seconds_or("parent", min_run)
    if member is not None:
        changes["members"] = tuple(member)

    async def work() -> tuple[ProjectStatus, tuple[str, ...]]:
        async with client(pool, token_file) as connection:
            projects = ProjectsClient(connection)
            made = await projects.change_project(path, changes)
            return made, (await projects.projects()).warnings

    made, warnings = exits.run_async(work())
    if json:
        show.as_json(_plain(made))
    else:
        print(f"{path} deserves {quantities.gpus_word(made.real_deserved_milli)}")
        for warning in warnings:
            exits.say(f"warning: {warning}")


@app.command("remove", epilog=exits.HELP)
def remove(path: Path, pool: Endpoint = None, token_file: TokenFile = None, json: Json = False) -> None:
    """Remove a project that holds nothing. For administrators. Removing what is not there is no error.

    \b
    Examples:
      gpupool project remove research/vision
    """

    async def work() -> bool:
        async with client(pool, token_file) as connection:
            return await ProjectsClient(connection).remove_project(path)

    existed = exits.run_async(work())
    if json:
        show.as_json({"path": path, "existed": existed})
    elif existed:
        print(f"removed {path}")
    else:
        exits.say(f"there was no project {path}")


def _find(known: ProjectList, path: str) -> ProjectStatus:
    for project in known.projects:
        if project.settings.path == path:
            return project
    paths = ", ".join(project.settings.path for project in known.projects[:8])
    raise PoolRefusedError("unknown-project", f"there is no project {path[:64]!r}; there are {paths}")


def _plain(project: ProjectStatus) -> dict[str, Any]:
    figures = asdict(project)
    settings: dict[str, Any] = figures.pop("settings")
    # Of the user whom a list is for; this one is for nobody in particular.
    del figures["open"]
    return {**settings, **figures, "alerts": list(map(str, project.alerts))}


def _tree(found: ProjectList) -> RenderableType:
    columns = (
        "DESERVES",
        "LIMIT",
        "HELD",
        "KEPT",
        "WAITING",
        "FAIR SHARE",
        "WEIGHT",
        "PRIORITY",
        "GPU HOURS",
    )
    lines = show.table(
        *("PROJECT", *columns, "MEMBERS"),
        right=columns,
        wrapped=("MEMBERS",),
        less_wanted=("PRIORITY", "WEIGHT", "GPU HOURS", "KEPT", "MEMBERS", "FAIR SHARE", "LIMIT"),
    )
    # Path by path, so that each stands under its parent; the pool lists all parents before all children.
    for project in sorted(found.projects, key=lambda project: project.settings.path.split("/")):
        settings = project.settings
        depth = settings.path.count("/")
        name = settings.path.rpartition("/")[2]
        lines.add(
            f"{'  ' * depth}{name}",
            quantities.gpus(project.real_deserved_milli),
            quantities.gpus(settings.limit_milli),
            quantities.measured(project.allocated_milli),
            quantities.measured(project.protected_milli),
            quantities.measured(project.waiting_milli),
            quantities.measured(project.fair_share_milli),
            str(settings.weight),
            str(settings.priority),
            f"{project.decayed_gpu_seconds / 3600:.1f}",
            _members(settings.members, 4),
        )
    total = show.coloured(f"The pool has {quantities.gpus_word(found.capacity_milli)}.", "dim")
    return Group(lines, total)


def _members(names: tuple[str, ...], most: int) -> str:
    return "everybody" if "*" in names else show.some(names, most)


def _one(project: ProjectStatus) -> RenderableType:
    settings = project.settings
    set_ = "" if settings.deserved_milli is not None else " (what its siblings leave)"
    run = "its parent's" if settings.min_run_seconds is None else show.seconds(settings.min_run_seconds)
    lines = show.table("", "")
    for name, value in (
        ("project", settings.path),
        ("deserves", f"{quantities.gpus_word(project.real_deserved_milli)}{set_}"),
        ("limit", f"{quantities.gpus(settings.limit_milli, 'none')}"),
        ("weight, priority", f"{settings.weight}, {settings.priority}"),
        ("least time", run),
        ("members", _members(settings.members, 1000)),
        (
            "holds",
            f"{quantities.measured(project.allocated_milli)}, of it kept {quantities.measured(project.protected_milli)}",
        ),
        ("waits for", quantities.measured(project.waiting_milli)),
        ("fair share now", quantities.measured(project.fair_share_milli)),
        ("used lately", f"{project.decayed_gpu_seconds / 3600:.2f} GPU hours, older ones count less"),
    ):
        lines.add(name, value)
    return lines
