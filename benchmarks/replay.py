"""How long people wait for a GPU: the openb trace in true time, on pools of a size that it keeps busy."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from gpupool.pool.model.consolidation import Consolidation
from gpupool.scheduler.placement import DEFAULT_POLICY
from gpupool.simulation import replay_figures, replay_trace
from gpupool.simulation.replay_meter import Meter
from gpupool.simulation.replay_nodes import NodeShape, nodes_of
from gpupool.simulation.replay_run import Replay, Rules

from benchmarks import openb_trace
from benchmarks.results import machine, publish

#: Sizes of the pool. On 36 devices the trace asks for as much as there is, on 48 for three quarters.
DEVICES: Final = (32, 36, 40, 48)
#: ``whole``: whoever asks for a part of a device gets all of it, as in pools that cannot share.
MODES: Final = ("shares", "whole")
#: 98 % of the trace's tasks arrive from here on; before, hardly anything runs.
BUSY_FROM_S: Final = 116 * 86400.0
PER_NODE: Final = 8
#: Seconds between two looks at a queue in which nothing happens: without projects and notices there is nothing to see.
_TICK: Final = 600.0
DEVICE_MIB: Final = 80 * 1024


def measure(
    devices: Sequence[int] = DEVICES,
    modes: Sequence[str] = MODES,
    pods: Path | None = None,
    nodes: Path | None = None,
    per_node: int = PER_NODE,
    policy: str = DEFAULT_POLICY,
    hints: bool = False,
    series: bool = False,
    most_devices: int | None = None,
    consolidate: Consolidation = Consolidation.IDLE,
) -> dict[str, Any]:
    """Runs the trace once for each size and mode.

    Args:
        nodes: a list of nodes that is the pool, instead of `devices` in equal nodes.
        hints: every task says how long it will take.
        most_devices: tasks of more devices are left out.
        consolidate: which leases go on elsewhere for a request that fits nowhere.
        series: also means of every hour and quantiles of the waits, for plots.

    Raises:
        NoTraceError, BadTraceError: there is no trace, or a file is not one.
        OSError: a file cannot be read.
    """
    pods = pods or openb_trace.folder() / openb_trace.PODS_FILE
    trace = replay_trace.read(pods)
    if most_devices is not None:
        trace = replay_trace.at_most(trace, most_devices)
    pools = [_listed(nodes)] if nodes else [nodes_of(number, per_node, DEVICE_MIB) for number in devices]
    rules = Rules(policy=policy, consolidate=consolidate, hints=hints, tick=_TICK)
    begin = BUSY_FROM_S if trace.end > BUSY_FROM_S else trace.tasks[0].at
    return {
        "trace": pods.stem,
        "left_out": dict(trace.left_out),
        "begin_s": begin,
        "end_s": trace.end,
        "policy": policy,
        "consolidate": consolidate.value,
        "hints": hints,
        "asked_gpus": {
            mode: replay_figures.demand(trace.tasks, begin, trace.end, whole=mode == "whole")
            for mode in modes
        },
        "runs": [run(trace, shapes, mode, begin, rules, series) for shapes in pools for mode in modes],
        "machine": machine(),
    }


def run(
    trace: replay_trace.Trace,
    shapes: Sequence[NodeShape],
    mode: str,
    begin: float,
    rules: Rules,
    series: bool,
) -> dict[str, Any]:
    """The trace once, on one pool."""
    devices = sum(len(shape.devices) for shape in shapes)
    fitting = replay_trace.fitting(trace, max(len(shape.devices) for shape in shapes), devices)
    tasks = [task.as_whole() if mode == "whole" else task for task in fitting.tasks]
    meter = Meter(begin, trace.end)
    replay = Replay(shapes, tasks, rules, meter)
    begun = time.process_time()
    replay.run()
    seconds = time.process_time() - begun
    figures = {
        "devices": devices,
        "nodes": len(shapes),
        "mode": mode,
        "moved": replay.happened["taken back: consolidate"],
        **replay_figures.waits(replay.fates),
        **replay_figures.occupancy(meter, devices),
        "too_large": len(trace.tasks) - len(tasks),
        "last_granted_s": max(
            (f.task.at + f.waited for f in replay.fates if f.waited is not None), default=0.0
        ),
        "events": replay.handled,
        "events_per_s": replay.handled / seconds if seconds else 0.0,
    }
    if series:
        figures["quantiles"] = replay_figures.quantiles(replay.fates)
        figures["series"] = replay_figures.series(meter)
    return figures


def main(
    json: bool,
    devices: Sequence[int],
    modes: Sequence[str],
    pods: Path | None,
    nodes: Path | None,
    per_node: int,
    policy: str,
    hints: bool,
    series: bool,
    most_devices: int | None,
    consolidate: Consolidation,
) -> int:
    """Measures and prints; 0, or 1 with one sentence on standard error."""

    def figures() -> dict[str, Any]:
        return measure(
            devices, modes, pods, nodes, per_node, policy, hints, series, most_devices, consolidate
        )

    return publish("replay", figures, report, json=json)


def report(figures: dict[str, Any]) -> str:
    """The figures for people."""
    days = (figures["end_s"] - figures["begin_s"]) / 86400
    asked = ", ".join(f"{gpus:.1f} ({mode})" for mode, gpus in figures["asked_gpus"].items())
    left_out = "; ".join(f"{number} {why}" for why, number in figures["left_out"].items()) or "none"
    lines = [
        f"{figures['trace']}: GPUs asked for on average over {days:.1f} days: {asked}",
        f"tasks left out: {left_out}",
        "",
        f"{'devices':>8} {'mode':8}{'waited':>8}{'p50':>9}{'p90':>9}{'p99':>9}{'longest':>9}{'mean':>9}"
        f"{'allocated':>11}{'in use':>8}",
    ]
    for row in figures["runs"]:
        texts = [
            replay_figures.span(row[f"wait_{name}_s"]) for name in ("p50", "p90", "p99", "longest", "mean")
        ]
        lines.append(
            f"{row['devices']:8} {row['mode']:8}{row['waited_percent']:7.1f}%"
            + "".join(f"{text:>9}" for text in texts)
            + f"{row['allocated_percent']:10.1f}%{row['devices_in_use_percent']:7.1f}%"
        )
    return "\n".join(lines) + "\n"


def _listed(path: Path) -> tuple[NodeShape, ...]:
    """The nodes of a file with openb's columns, those with devices."""
    specs = [spec for spec in openb_trace.read_nodes(path) if spec.devices]
    if not specs:
        raise replay_trace.BadTraceError(f"{path} lists no node with devices.")
    return tuple(
        NodeShape(spec.id, (DEVICE_MIB,) * len(spec.devices), kind=spec.devices[0].model) for spec in specs
    )
