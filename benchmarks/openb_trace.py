"""The openb trace: the GPU nodes of a production cluster, and what was asked of it, as arrivals that overload it.

The experiment is that of FGD's authors: the tasks in an order drawn from a seed, then more of them drawn with replacement until
the demand is 130 % of the capacity. Nothing leaves; what finds no room is dropped.
"""

from __future__ import annotations

import csv
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from gpupool.client.errors import GpupoolError
from gpupool.scheduler.placement.model import Demand, DeviceSpec, NodeSpec

#: Names the folder of the trace, if it is not beside the repository.
FOLDER_VARIABLE: Final = "GPUPOOL_OPENB"
NODES_FILE: Final = "openb_node_list_gpu_node.csv"
PODS_FILE: Final = "openb_pod_list_default.csv"
#: Demand of all arrivals, in capacities.
ARRIVED: Final = 1.3

_REPOSITORY: Final = Path(__file__).resolve().parents[1]


class NoTraceError(GpupoolError):
    """The trace is not there, or a file is not one of its files."""


def folder() -> Path:
    """Where the trace lies. Raises NoTraceError."""
    named = os.environ.get(FOLDER_VARIABLE)
    found = Path(named) if named else _REPOSITORY.parent / "shared" / "openb"
    if not (found / NODES_FILE).is_file():
        raise NoTraceError(
            f"no openb trace in {found}: take data/csv of github.com/hkust-adsl/kubernetes-scheduler-simulator "
            f"and name its folder in {FOLDER_VARIABLE}, or the files with --nodes and --pods."
        )
    return found


def read_nodes(path: Path, order: int | None = None) -> list[NodeSpec]:
    """The nodes of a file. ``order`` renames them by chance, which decides between nodes that a policy finds equal.

    Raises:
        NoTraceError: the file is not a list of nodes.
        OSError: it cannot be read.
    """
    rows = list(_rows(path, ("sn", "cpu_milli", "memory_mib", "gpu", "model")))
    places = list(range(len(rows)))
    if order is not None:
        random.Random(order).shuffle(places)  # noqa: S311
    nodes = []
    for place, row in zip(places, rows, strict=True):
        devices = (DeviceSpec(row["model"]),) * _number(path, row, "gpu")
        cpu, memory = _number(path, row, "cpu_milli"), _number(path, row, "memory_mib")
        nodes.append(NodeSpec(f"{place:06d}-{row['sn']}", devices, cpu, memory))
    if not nodes:
        raise NoTraceError(f"{path} lists no nodes.")
    return nodes


def read_pods(path: Path) -> list[Demand]:
    """What the tasks of a file ask for, in its order.

    Raises:
        NoTraceError: the file is not a list of tasks.
        OSError: it cannot be read.
    """
    pods = []
    for row in _rows(path, ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")):
        count = _number(path, row, "num_gpu")
        spec = row.get("gpu_spec") or ""
        try:
            pods.append(
                Demand(
                    milli=_number(path, row, "gpu_milli") if count else 0,
                    count=count,
                    cpu_milli=_number(path, row, "cpu_milli"),
                    memory_mib=_number(path, row, "memory_mib"),
                    models=frozenset(filter(None, spec.split("|"))) if count else frozenset(),
                )
            )
        except ValueError as error:
            raise NoTraceError(f"{path}: {row['name']}: {error}.") from error
    if not pods:
        raise NoTraceError(f"{path} lists no tasks.")
    return pods


def arrivals(pods: Sequence[Demand], capacity_milli: int, seed: int) -> list[Demand]:
    """The tasks in the order of ``seed``, and more of them until they ask for :data:`ARRIVED` times the capacity."""
    chance = random.Random(seed)  # noqa: S311
    order = list(pods)
    chance.shuffle(order)
    asked = sum(demand.total_milli for demand in order)
    if not asked:
        return order
    while True:
        demand = chance.choice(pods)
        if asked + demand.milli > ARRIVED * capacity_milli:
            return order
        asked += demand.total_milli
        order.append(demand)


def _rows(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        try:
            reader = csv.DictReader(file)
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise NoTraceError(f"{path} has no column {', '.join(missing)}.")
            yield from reader
        except (csv.Error, UnicodeDecodeError) as error:
            raise NoTraceError(f"{path}: {error}.") from error


def _number(path: Path, row: Mapping[str, str], column: str) -> int:
    try:
        value = int(row[column])
    except (TypeError, ValueError):
        value = -1
    if not 0 <= value < 1 << 40:
        raise NoTraceError(f"{path}: {column} is {row[column]!r}, not a whole number.")
    return value
