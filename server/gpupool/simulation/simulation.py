"""What would happen to those who ask, on another pool or under other rules: a trace, replayed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpupool.model.state import DEFAULT_PROJECT, ProjectRecord
from gpupool.simulation import replay_figures
from gpupool.simulation.replay_meter import Meter
from gpupool.simulation.replay_nodes import NodeShape
from gpupool.simulation.replay_run import Replay, Rules
from gpupool.simulation.replay_trace import Trace, fitting


def simulate(
    trace: Trace, shapes: Sequence[NodeShape], rules: Rules, *, whole: bool = False
) -> dict[str, Any]:
    """Replays a trace and says what came of it.

    Projects that the trace names and the rules do not are made: they deserve nothing, and have their part of what is left.

    Returns:
        Waits, refusals and what was taken back, of all and of each project (of each user, where nobody names a project),
        and how full the pool was between the first and the last arrival.
    """
    own = sum(len(shape.devices) for shape in shapes)
    elastic = rules.elastic
    devices = own + (0 if elastic is None else elastic.maximum * elastic.devices)
    per_node = [len(shape.devices) for shape in shapes] + ([] if elastic is None else [elastic.devices])
    kept = fitting(trace, max(per_node), devices)
    tasks = [task.as_whole() if whole else task for task in kept.tasks]
    known = {project.path for project in rules.projects}
    named = {task.project for task in tasks if task.project and task.project != DEFAULT_PROJECT}
    made = sorted(
        path for path in named if path not in known and not any(k.startswith(f"{path}/") for k in known)
    )
    rules = replace(rules, projects=(*rules.projects, *(ProjectRecord(path) for path in made)))
    begin = tasks[0].at if tasks else 0.0
    # The time over which the trace asks; of a short one until the first to come would have been done.
    end = max(trace.end, begin + 1.0)
    meter = Meter(begin, end)
    replay = Replay(shapes, tasks, rules, meter)
    replay.run()
    return {
        "trace": trace.name,
        "left_out": dict(kept.left_out),
        "devices": devices,
        "nodes": len(shapes),
        "policy": rules.policy,
        "consolidate": rules.consolidate.value,
        "seconds": end - begin,
        **replay_figures.waits(replay.fates),
        **replay_figures.occupancy(meter, devices),
        **_borrowed(replay, meter, own),
        "groups": replay_figures.by_group(replay),
        "projects_made": made,
        "explanations": _explanations(replay),
    }


def _borrowed(replay: Replay, meter: Meter, own: int) -> dict[str, Any]:
    """Device hours that a pool with borrowed nodes took, and those that all its devices would have taken all the time."""
    if replay.growth is None:
        return {}
    hours = meter.seconds / 3600.0
    return {
        "own_device_hours": own * hours,
        "borrowed_device_hours": meter.borrowed_hours(),
        "borrowed_nodes": replay.growth.asked,
    }


def _explanations(replay: Replay) -> dict[str, str]:
    """What the first who was refused for a reason was told."""
    first: dict[str, str] = {}
    for fate in replay.fates:
        if fate.refused:
            first.setdefault(fate.refused, fate.explanation)
    return first


def report(figures: dict[str, Any]) -> str:
    """The figures for people."""
    left_out = "".join(f"; left out: {number} {why}" for why, number in figures["left_out"].items())
    lines = [
        f"{figures['tasks']} requests within {replay_figures.span(figures['seconds'])} on {figures['devices']} devices of "
        f"{figures['nodes']} nodes, policy {figures['policy']}{left_out}",
        f"allocated {figures['allocated_percent']:.1f} % of the devices on average, in use "
        f"{figures['devices_in_use_percent']:.1f} %",
    ]
    if "borrowed_nodes" in figures:
        lines.append(
            f"borrowed {figures['borrowed_device_hours']:,.0f} device hours on {figures['borrowed_nodes']} nodes, beside "
            f"{figures['own_device_hours']:,.0f} of its own; all {figures['devices']} devices all the time would be "
            f"{figures['devices'] * figures['seconds'] / 3600:,.0f}"
        )
    if figures["projects_made"]:
        lines.append(f"projects made for this: {', '.join(figures['projects_made'])}")
    lines += [
        "",
        f"{'':19}{'requests':>8}{'waited':>8}{'p50':>9}{'p99':>9}{'longest':>9}{'mean':>9}{'refused':>9}{'taken back':>12}",
    ]
    rows = [("all", figures), *figures["groups"].items()]
    for name, row in rows:
        texts = [replay_figures.span(row[f"wait_{key}_s"]) for key in ("p50", "p99", "longest", "mean")]
        lines.append(
            f"{name[:19]:20}{row['tasks']:7}{row['waited_percent']:7.1f}%"
            + "".join(f"{text:>9}" for text in texts)
            + f"{sum(row['refused'].values()):9}{row['taken_back']:12}"
        )
    if figures["explanations"]:
        lines.append("")
    lines += [f"refused ({reason}), for example: {text}" for reason, text in figures["explanations"].items()]
    return "\n".join(lines) + "\n"
