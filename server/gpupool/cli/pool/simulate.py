"""`gpupool pool simulate`: what would happen with more devices, another policy, or other quotas."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from gpupool.cli.common import exits, quantities, show
from gpupool.cli.common.options import Json, duration
from gpupool.cli.pool.serve_options import Policy
from gpupool.names import is_project
from gpupool.pool.model.consolidation import Consolidation
from gpupool.simulation.quiet import only_warnings

if TYPE_CHECKING:
    from gpupool.model.state import LimitRecord, ProjectRecord

#: Without a ledger to take them from: devices, devices of a node, GiB of a device.
_DEVICES: Final = 8
_PER_NODE: Final = 8
_GIB: Final = 80
_SETTINGS: Final = ("limit", "weight", "priority", "min-run")


def simulate(
    trace: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A list of requests (CSV), or a ledger or a backup, whose past is the list."
        ),
    ],
    devices: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=16384,
            help="Devices of the pool [default: the ledger's, else 8; with --borrow 0].",
            show_default=False,
        ),
    ] = None,
    per_node: Annotated[int, typer.Option(min=1, max=64, help="Devices of a node.")] = _PER_NODE,
    device_memory: Annotated[int, typer.Option(min=1, max=4096, help="GiB of a device.")] = _GIB,
    borrow: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=4096,
            metavar="NODES",
            help="Nodes at most that the pool borrows while somebody needs them, of --per-node devices each.",
            show_default=False,
        ),
    ] = None,
    borrow_idle: Annotated[
        str, typer.Option(metavar="TIME", help="A borrowed node goes back after this time without use.")
    ] = "10m",
    borrow_start: Annotated[
        str, typer.Option(metavar="TIME", help="From asking for a node until it serves.")
    ] = "2m",
    policy: Policy = None,
    project: Annotated[
        list[str] | None,
        typer.Option(
            help="PATH=GPUS[,limit=GPUS][,weight=N][,priority=N][,min-run=TIME]: a project and its quota. "
            "May be repeated. Replaces the ledger's projects.",
            show_default=False,
        ),
    ] = None,
    consolidate: Annotated[
        Consolidation,
        typer.Option(help="Sessions that may move to make room, as for `gpupool pool serve`."),
    ] = Consolidation.IDLE,
    quota: Annotated[
        list[str] | None,
        typer.Option(
            metavar="USER=GPUS",
            help="The largest number of GPUs that a user may hold at one time, such as ann=0.5; * for all others. May be "
            "repeated. Replaces the ledger's limits.",
            show_default=False,
        ),
    ] = None,
    patience: Annotated[
        str | None,
        typer.Option(help="Drop requests that have waited this long [default: none].", show_default=False),
    ] = None,
    hints: Annotated[
        bool, typer.Option("--hints", help="Every request states its duration, as with --for.")
    ] = False,
    whole: Annotated[bool, typer.Option("--whole", help="A whole device for every share.")] = False,
    json: Json = False,
) -> None:
    """Show what would have happened: the requests of a file, or of this pool's past, on a pool of your choice.

    The pool is the real one; its nodes and its time are simulated, so a month takes minutes. A list has the columns
    at,share,seconds and, if wanted, user,project,count,kind,priority: who asks when for how much, and works how long.

    \b
    Examples:
      gpupool pool simulate requests.csv --devices 16
      gpupool pool simulate requests.csv --project research=6,weight=3 --project teaching=2,limit=4
      gpupool pool simulate requests.csv --devices 8 --borrow 4 --borrow-idle 20m
      gpupool pool simulate ~/.local/state/gpupool/pool.sqlite --devices 12 --quota '*=2'
    """
    projects = tuple(_project(text) for text in project or ())
    limits = tuple(_limit(text) for text in quota or ())
    seconds = None if patience is None else duration(patience)
    if devices == 0 and borrow is None:
        raise typer.BadParameter("a pool without devices needs --borrow", param_hint="--devices")
    idle, start = duration(borrow_idle), duration(borrow_start)
    with exits.clear_errors():
        from gpupool.scheduler.placement import DEFAULT_POLICY, POLICIES
        from gpupool.simulation import replay_trace, simulation
        from gpupool.simulation.replay_growth import Elastic
        from gpupool.simulation.replay_history import is_ledger, read_history
        from gpupool.simulation.replay_nodes import nodes_of
        from gpupool.simulation.replay_run import Rules

        if policy is not None and policy not in POLICIES:
            raise typer.BadParameter(f"{policy!r} is not one of {', '.join(POLICIES)}")
        own = devices if devices is not None else 0 if borrow else _DEVICES
        shapes = nodes_of(own, per_node, device_memory * 1024)
        if is_ledger(trace):
            past = read_history(trace)
            requests = past.trace
            if devices is None and past.nodes:
                shapes = past.nodes
            projects = projects or past.projects
            limits = limits or past.limits
        else:
            requests = replay_trace.read(trace)
        rules = Rules(
            policy=policy or DEFAULT_POLICY,
            consolidate=consolidate,
            projects=projects,
            limits=limits,
            hints=hints,
            patience=seconds,
            elastic=Elastic(borrow, per_node, device_memory * 1024, idle, start) if borrow else None,
        )
        only_warnings()
        figures = simulation.simulate(requests, shapes, rules, whole=whole)
    if json:
        show.as_json(figures)
    else:
        print(simulation.report(figures), end="")


def _project(text: str) -> ProjectRecord:
    from gpupool.model.state import ProjectRecord

    first, *rest = text.split(",")
    path, equals, deserved = first.partition("=")
    if not equals or not is_project(path):
        raise typer.BadParameter(
            f"{text!r} is no project; write for example research/vision=2,limit=4,weight=3"
        )
    values: dict[str, str] = {}
    for setting in rest:
        name, equals, value = setting.partition("=")
        if not equals or name not in _SETTINGS or name in values:
            raise typer.BadParameter(
                f"{setting!r} is not one of {', '.join(f'{n}=…' for n in _SETTINGS)}, each once"
            )
        values[name] = value
    return ProjectRecord(
        path,
        quantities.milli_or(quantities.REST, deserved),
        quantities.milli(values["limit"]) if "limit" in values else None,
        _whole(values.get("weight", "1")),
        _whole(values.get("priority", "0")),
        duration(values["min-run"]) if "min-run" in values else None,
    )


def _limit(text: str) -> LimitRecord:
    from gpupool.model.state import LimitRecord

    user, milli = quantities.quota(text)
    return LimitRecord(user, milli=milli)


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 6:
        raise typer.BadParameter(f"{text!r} is not a whole number")
    return int(text)
