"""What a replay came to: waits, how full the pool was, refusals; for all tasks and for each project or user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from gpupool.scheduler.model import PlacedShare
from gpupool.simulation.replay_meter import Meter
from gpupool.simulation.replay_run import Fate, Replay
from gpupool.simulation.replay_trace import Task

#: Parts of the tasks, in percent, whose longest wait is given, for plots.
QUANTILES: Final = (*range(100), 99.1, 99.2, 99.3, 99.4, 99.5, 99.6, 99.7, 99.8, 99.9, 100)


def waits(fates: Iterable[Fate]) -> dict[str, Any]:
    """Seconds until the first shares, of those who got any; the rest is counted by the reason of its refusal."""
    fates = list(fates)
    waited = sorted(fate.waited for fate in fates if fate.waited is not None)
    again = [fate for fate in fates if fate.taken_back]
    return {
        "tasks": len(fates),
        "granted": len(waited),
        "refused": dict(sorted(Counter(fate.refused for fate in fates if fate.refused).items())),
        "waited_percent": 100.0 * sum(seconds > 0 for seconds in waited) / len(waited) if waited else 0.0,
        "wait_mean_s": sum(waited) / len(waited) if waited else 0.0,
        "wait_p50_s": percentile(waited, 50),
        "wait_p90_s": percentile(waited, 90),
        "wait_p99_s": percentile(waited, 99),
        "wait_longest_s": waited[-1] if waited else 0.0,
        "taken_back": sum(fate.taken_back for fate in again),
        "waited_again_mean_s": sum(fate.waited_again for fate in again) / len(again) if again else 0.0,
    }


def occupancy(meter: Meter, devices: int) -> dict[str, Any]:
    """How full `devices` were on average over time."""
    milli, busy = meter.mean_milli(), meter.mean_devices()
    return {
        "allocated_gpus": milli / 1000,
        "allocated_percent": 100.0 * milli / (1000 * devices),
        "devices_in_use": busy,
        "devices_in_use_percent": 100.0 * busy / devices,
    }


def by_group(replay: Replay) -> dict[str, Any]:
    """Waits of each project, or of each user where nobody names a project."""
    groups: dict[str, list[Fate]] = {}
    for fate in replay.fates:
        groups.setdefault(fate.task.project or fate.task.user, []).append(fate)
    return {name: waits(groups[name]) for name in sorted(groups)}


def quantiles(fates: Iterable[Fate]) -> list[list[float]]:
    """(percent, seconds): so many percent of the tasks waited at most so long."""
    waited = sorted(fate.waited for fate in fates if fate.waited is not None)
    return [[percent, percentile(waited, percent)] for percent in QUANTILES]


def series(meter: Meter) -> dict[str, Any]:
    """Means of every bin: GPUs allocated, devices in use, asks waiting, devices borrowed."""
    return {
        "begin_s": meter.begin,
        "bin_s": meter.bin_seconds,
        "allocated_gpus": [round(held[0] / meter.bin_seconds / 1000, 3) for held in meter.bins],
        "devices_in_use": [round(held[1] / meter.bin_seconds, 3) for held in meter.bins],
        "waiting": [round(held[2] / meter.bin_seconds, 3) for held in meter.bins],
        "borrowed_gpus": [round(held[3] / meter.bin_seconds, 3) for held in meter.bins],
    }


def demand(tasks: Sequence[Task], begin: float, end: float, *, whole: bool) -> float:
    """GPUs asked for on average, if nobody ever waited. Tasks that ask by memory count as what that is of no device: 0."""
    meter = Meter(begin, end)
    moments: list[tuple[float, int, int, Task]] = []
    for number, task in enumerate(tasks):
        moments += [(task.at, 1, number, task), (task.at + task.seconds, 0, number, task)]
    moments.sort(key=lambda moment: moment[:3])
    now = 0.0
    for at, arrives, number, task in moments:
        meter.advance(now, at, 0)
        now = at
        milli = 1000 if whole else task.milli or 0
        shares = tuple(PlacedShare(f"{number}/{part}", milli, 0) for part in range(task.count))
        meter.hold(str(number), shares if arrives else ())
    return meter.mean_milli() / 1000


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` percent of the sorted values do not exceed; 0 without values."""
    if not ordered:
        return 0.0
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, min(len(ordered), int(rank)) - 1)]


def span(seconds: float) -> str:
    """A time as people say it: ``40 s``, ``12 min``, ``3.4 h``, ``2.1 d``."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"
