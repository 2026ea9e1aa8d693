"""What every ``gpupool bench`` command does with its figures: shows them beside their bounds, with the machine."""

from __future__ import annotations

import datetime
import json as json_text
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from gpupool.client.errors import GpupoolError

from benchmarks.worker_process import WorkerError

Figures: TypeAlias = dict[str, Any]
#: Key of the figure, what it means, ``<=`` or ``>=``, bound.
Target: TypeAlias = tuple[str, str, str, float]


def machine() -> dict[str, Any]:
    """The machine that the figures belong to: cpu, cores, kernel, date (UTC, ISO 8601)."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def publish(
    name: str, measure: Callable[[], Figures], report: Callable[[Figures], str], *, json: bool
) -> int:
    """Measures and prints; 0, or 1 with one sentence on standard error."""
    try:
        figures = measure()
    except (WorkerError, GpupoolError, OSError) as error:
        sys.stderr.write(f"gpupool bench {name}: {error}\n")
        return 1
    sys.stdout.write(json_text.dumps(figures, indent=2) + "\n" if json else report(figures))
    return 0


def beside_bounds(
    targets: Iterable[Target], figures: Mapping[str, Any], *, digits: int, title: str = ""
) -> list[str]:
    """A line for each target; one that is not met ends with ``missed``."""
    rows = [(meaning, float(figures[key]), relation, bound) for key, meaning, relation, bound in targets]
    width = 2 + max(len(meaning) for meaning, _, _, _ in rows)
    lines = [f"{title:{width}}{'measured':>10}{'target':>10}"]
    for meaning, value, relation, bound in rows:
        met = value <= bound if relation == "<=" else value >= bound
        target = f"{relation} {bound:g}"
        lines.append(f"{meaning:{width}}{value:10.{digits}f}{target:>10}{'' if met else '  missed'}")
    return lines


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
