"""What borrowing nodes saves: a made-up month of notebooks, on pools of a fixed size and on one that borrows.

Arrivals are a Poisson process whose rate follows the hour of the day and the day of the week. How long people work is
log-normal: half are done after some twenty minutes (`Month.median`), a few stay for a day. The same seed gives the same month.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Final

from gpupool.collector import collect_seldom
from gpupool.simulation import replay_figures
from gpupool.simulation.quiet import only_warnings
from gpupool.simulation.replay_growth import Elastic
from gpupool.simulation.replay_meter import Meter
from gpupool.simulation.replay_nodes import nodes_of
from gpupool.simulation.replay_run import Replay, Rules
from gpupool.simulation.replay_trace import Task

from benchmarks.results import machine, publish

PER_NODE: Final = 8
DEVICE_MIB: Final = 80 * 1024
#: Sizes of fixed pools, as parts of the largest one.
SIZES: Final = (1.0, 0.8, 0.7, 0.6, 0.5)
#: Seconds after which a borrowed node that nobody needs goes back.
IDLE: Final = (300.0, 1200.0, 3600.0)
#: From asking for a node until it serves.
START: Final = 120.0
_DAY: Final = 86_400.0
#: Requests of each hour of a working day, relative to the busiest.
_HOURS: Final = (
    0.10, 0.07, 0.05, 0.05, 0.05, 0.08, 0.15, 0.30, 0.60, 0.85, 0.95, 0.95,
    0.80, 0.90, 1.00, 1.00, 0.95, 0.80, 0.55, 0.40, 0.35, 0.30, 0.22, 0.15,
)  # fmt: skip
_WEEKEND: Final = 0.3
#: Milli-GPU and devices, and how often they are asked for.
_SHARES: Final = ((100, 1, 15), (200, 1, 30), (500, 1, 25), (1000, 1, 22), (1000, 2, 5), (1000, 8, 3))
_SPREAD: Final = 1.5
_LONGEST_S: Final = _DAY


@dataclass(frozen=True, slots=True)
class Month:
    """What is played.

    Attributes:
        gpus: devices of the largest fixed pool, and the most that is borrowed.
        days: how long it is.
        seed: which month.
        median: half of the people are done after so many seconds.
        look: seconds between two looks at what has to be borrowed.
    """

    gpus: int
    days: float
    seed: int = 1
    median: float = 20 * 60.0
    look: float = 30.0


def tasks_of(month: Month) -> list[Task]:
    """Tasks that keep most of the devices busy in the busiest hours."""
    gpus, median = month.gpus, month.median
    generator = random.Random(month.seed)  # noqa: S311 (a made-up month, no secret)
    per_task = (
        sum(milli * count * often for milli, count, often in _SHARES) / sum(s[2] for s in _SHARES) / 1000
    )
    seconds = min(median * math.exp(_SPREAD**2 / 2), _LONGEST_S)
    # Such a rate fills three quarters of the devices, if it lasts.
    busiest = 0.75 * gpus / (per_task * seconds)
    tasks: list[Task] = []
    at = 0.0
    while True:
        at += generator.expovariate(busiest)
        if at >= month.days * _DAY:
            return tasks
        rate = _HOURS[int(at % _DAY // 3600)] * (_WEEKEND if at // _DAY % 7 >= 5 else 1.0)
        if generator.random() >= rate:
            continue
        ((milli, count, _),) = generator.choices(_SHARES, [share[2] for share in _SHARES])
        work = min(generator.lognormvariate(math.log(median), _SPREAD), _LONGEST_S)
        name, user = f"t{len(tasks)}", f"user{generator.randrange(max(1, gpus))}"
        tasks.append(Task(name, at, max(10.0, work), milli, count, user=user))


def measure(
    month: Month, sizes: Sequence[float] = SIZES, idle: Sequence[float] = IDLE, jobs: int = 1
) -> dict[str, Any]:
    """Runs the month on each pool.

    Args:
        month: what is played.
        sizes: of fixed pools, as parts of the largest.
        idle: of pools that borrow, seconds.
        jobs: so many pools at the same time, each in a process of its own.
    """
    pools: list[tuple[int, float | None]] = [(max(PER_NODE, int(month.gpus * size)), None) for size in sizes]
    pools += [(0, one) for one in idle]
    runs = _runs(month, pools, jobs)
    fixed = [run for run in runs if run["idle_s"] is None]
    for run in runs:
        if run["idle_s"] is not None:
            like = _as_good(fixed, run)
            run["as_good_as_devices"] = None if like is None else like["devices"]
            run["saved_percent"] = (
                None if like is None else 100.0 * (1.0 - run["device_hours"] / like["device_hours"])
            )
    return {
        "gpus": month.gpus, "days": month.days, "seed": month.seed, "median_s": month.median,
        "look_s": month.look, "requests": runs[0]["tasks"], "start_s": START, "runs": runs, "machine": machine(),
    }  # fmt: skip


def _runs(month: Month, pools: Sequence[tuple[int, float | None]], jobs: int) -> list[dict[str, Any]]:
    if jobs == 1:
        return [_run(month, *pool) for pool in pools]
    with ProcessPoolExecutor(
        jobs, get_context("spawn"), initializer=only_warnings, max_tasks_per_child=1
    ) as processes:
        # Those that borrow take the longest.
        started = {pool: processes.submit(_run, month, *pool) for pool in reversed(pools)}
        return [started[pool].result() for pool in pools]


def _as_good(fixed: Sequence[dict[str, Any]], run: dict[str, Any]) -> dict[str, Any] | None:
    """The smallest fixed pool on which people wait no longer on average; None: on none."""
    good = [one for one in fixed if one["wait_mean_s"] <= run["wait_mean_s"]]
    return min(good, key=lambda one: one["devices"], default=None)


def _run(month: Month, devices: int, idle: float | None) -> dict[str, Any]:
    """One pool: of ``devices`` of its own, or one that borrows all that it has."""
    collect_seldom()
    tasks, days = tasks_of(month), month.days
    nodes = max(1, month.gpus // PER_NODE)
    elastic = None if idle is None else Elastic(nodes, PER_NODE, DEVICE_MIB, idle, START, month.look)
    meter = Meter(0.0, days * _DAY)
    rules = Rules(elastic=elastic, tick=600.0, says=False)
    replay = Replay(nodes_of(devices, PER_NODE, DEVICE_MIB), tasks, rules, meter)
    began = time.process_time()
    replay.run()
    most = devices if elastic is None else elastic.maximum * elastic.devices
    hours = devices * days * 24 if elastic is None else meter.borrowed_hours()
    return {
        "devices": most,
        "idle_s": None if elastic is None else elastic.idle,
        "device_hours": hours,
        "used_percent": 100.0 * meter.mean_milli() / 1000 * days * 24 / hours if hours else 0.0,
        "nodes_borrowed": 0 if replay.growth is None else replay.growth.asked,
        **replay_figures.waits(replay.fates),
        "processor_s": time.process_time() - began,
        "series": replay_figures.series(meter),
    }


def main(
    json: bool, month: Month, sizes: Sequence[float], idle: Sequence[float], jobs: int, plot: str
) -> int:
    """Measures and prints; 0, or 1 with one sentence on standard error."""

    def figures() -> dict[str, Any]:
        found = measure(month, sizes, idle, jobs)
        if plot:
            from pathlib import Path

            from benchmarks.elasticity_plot import picture

            Path(plot).write_text(picture(found))
        return found

    return publish("elasticity", figures, report, json=json)


def report(figures: dict[str, Any]) -> str:
    """The figures for people."""
    lines = [
        f"{figures['requests']} requests in {figures['days']:g} days, seed {figures['seed']}; half of them end after "
        f"{figures['median_s'] / 60:g} min; a borrowed node serves {figures['start_s']:g} s after it was asked for",
        "",
        f"{'pool':26}{'device hours':>13}{'used':>7}{'waited':>8}{'p50':>10}{'p99':>10}{'mean':>10}{'nodes':>7}{'saves':>7}",
    ]
    for run in figures["runs"]:
        idle = run["idle_s"]
        name = (
            f"{run['devices']} fixed" if idle is None else f"up to {run['devices']}, idle {idle / 60:g} min"
        )
        waits = [replay_figures.span(run[f"wait_{key}_s"]) for key in ("p50", "p99", "mean")]
        saved = run.get("saved_percent")
        lines.append(
            f"{name:26}{run['device_hours']:13,.0f}{run['used_percent']:6.0f}%{run['waited_percent']:7.1f}%"
            + "".join(f"{text:>10}" for text in waits)
            + f"{run['nodes_borrowed'] or '-':>7}{'-' if saved is None else f'{saved:.0f}%':>7}"
        )
    return "\n".join(lines) + "\n"
