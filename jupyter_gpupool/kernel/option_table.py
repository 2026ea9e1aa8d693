"""The options of ``%%gpu``, ``%gpu attach`` and ``%gpu auto on``: one table for the parser, the help and completion."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gpupool.terms import MOST_PRIORITY

SHARE_HELP: Final = (
    "a part of one GPU (0.2, 20%%) or memory (2560MiB, 2.5GiB); default: the server's, or 0.2 without one"
)


class Values(StrEnum):
    """What can stand behind an option, for completion."""

    NONE = "none"
    COUNTS = "counts"
    NODES = "nodes"
    TIMES = "times"
    WAITS = "waits"
    PROJECTS = "projects"
    TYPES = "types"
    KINDS = "kinds"
    PRIORITIES = "priorities"
    FILTERS = "filters"
    POOLS = "pools"


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        field: its name among the parsed arguments.
        metavar: what its value is called; empty: it has none.
        repeated: it may be given several times.
        auto, line: it makes sense for ``%gpu auto on`` and ``%gpu attach`` too.
    """

    name: str
    field: str
    help: str
    metavar: str = ""
    values: Values = Values.NONE
    repeated: bool = False
    auto: bool = True
    line: bool = True


#: Percent signs are doubled, as argparse wants them.
OPTIONS: Final = (
    Option("-n", "count", "the same share of N GPUs", "N", Values.COUNTS),
    Option(
        "--nodes",
        "nodes",
        "where several GPUs may lie: on one node; on any, when no single one has room; "
        "auto (default): on one, if a node could ever serve it, else on any",
        "auto|one|any",
        Values.NODES,
    ),
    Option(
        "--wait",
        "wait",
        "wait at most so long in the queue: 90, 90s, 10m, 2h; 0: not at all; forever",
        "TIME",
        Values.WAITS,
    ),
    Option("--hold", "hold", "keep the GPU after the cell, until detached or idle", auto=False, line=False),
    Option(
        "--for",
        "duration",
        "give the GPU back after so long at the latest: 600, 10m, 2h",
        "TIME",
        Values.TIMES,
        auto=False,
    ),
    Option("--strict", "strict", "cap GPU time hard at the share, also while the GPU is idle"),
    Option("--exclusive", "exclusive", "a whole GPU, which nobody else has a share of meanwhile"),
    Option(
        "--project",
        "project",
        "the project whose quota it counts against; default: the server's",
        "PATH",
        Values.PROJECTS,
    ),
    Option(
        "--type",
        "types",
        "what the GPU is called: H100 (any whose name has it), H100|A100",
        "NAME",
        Values.TYPES,
        repeated=True,
    ),
    Option(
        "--kind",
        "kind",
        "whether it may be taken back for others: interactive (default), only above what the project deserves; "
        "guaranteed, never; preemptible, whenever it is needed. Always with notice, memory kept",
        "KIND",
        Values.KINDS,
    ),
    Option(
        "--priority",
        "priority",
        f"inside the project, higher goes first (1 to {MOST_PRIORITY}; default 100, preemptible 50)",
        "N",
        Values.PRIORITIES,
    ),
    Option(
        "--filter",
        "filters",
        "what the GPUs must be like: name=*H100*|*A100*, memory>=40GiB, driver>=580, node=n1|n2, software=no, "
        "label.zone=a; several: all must hold",
        "CONDITION",
        Values.FILTERS,
        repeated=True,
    ),
    Option(
        "--node-pool",
        "pools",
        "node pool to take them from; several: the first that has room, in this order",
        "NAME",
        Values.POOLS,
        repeated=True,
    ),
)
