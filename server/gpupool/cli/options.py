"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from gpupool.cli import completing
from gpupool.client.pool import PoolClient
from gpupool.durations import DurationError, parse_duration
from gpupool.request.gpu_request import MOST_PRIORITY
from gpupool.shares import MAXIMUM_DEVICES, NODE_CHOICES, Share, ShareError


def duration(text: str) -> float:
    """Seconds of ``90``, ``90s``, ``1.5m``, ``2h`` or ``7d``."""
    try:
        return parse_duration(text)
    except DurationError as error:
        raise typer.BadParameter(str(error)) from None


def wait(text: str) -> float:
    """A duration, or ``forever``."""
    return math.inf if text.strip() == "forever" else duration(text)


def count(text: str) -> int:
    """A number of GPUs, as many as the pool grants to one ask."""
    if not (text.isascii() and text.isdigit()) or len(text) > 3 or not 1 <= int(text) <= MAXIMUM_DEVICES:
        raise typer.BadParameter(f"{text!r} is no number of GPUs from 1 to {MAXIMUM_DEVICES}")
    return int(text)


def whole(low: int, high: int) -> Callable[[str], int]:
    """Reads a whole number within bounds; what is wrong is named, which typer's own bounds do not."""

    def read(text: str) -> int:
        digits = text.strip().removeprefix("-")
        number = int(text) if digits.isascii() and digits.isdigit() and len(digits) < 12 else None
        if number is None or not low <= number <= high:
            raise typer.BadParameter(f"{text!r} is no whole number from {low} to {high}")
        return number

    return read


def nodes(text: str) -> str:
    """On how many nodes several GPUs may lie."""
    if text not in NODE_CHOICES:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(NODE_CHOICES)}")
    return text


def filter_text(text: str) -> str:
    """A condition for devices, checked here so that a wrong one reaches no queue."""
    # Here, because the scheduler's package takes a while to load, which commands without filters need not.
    from gpupool.filters import FilterError, parse

    try:
        return str(parse(text))
    except FilterError as error:
        raise typer.BadParameter(str(error)) from None


class Kind(enum.Enum):
    """Whether a lease may be taken back for others."""

    INTERACTIVE = "interactive"
    GUARANTEED = "guaranteed"
    PREEMPTIBLE = "preemptible"


def wait_seconds(seconds: float) -> float | None:
    """As :meth:`PoolClient.request` takes it."""
    return None if math.isinf(seconds) else seconds


Endpoint = Annotated[
    str | None,
    typer.Option(
        "--pool",
        help="Where the pool is: host:port or unix:/path [default: $GPUPOOL_ENDPOINT or the local socket].",
        show_default=False,
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        help="File that holds your token (mode 0600) [default: $GPUPOOL_TOKEN_FILE].", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Part = Annotated[
    str | None,
    typer.Option(
        "--partial", "-p", help="Share of each GPU: 0.2, 20%, 2560MiB or 2.5GiB.", show_default=False
    ),
]
Memory = Annotated[
    str | None,
    typer.Option("--memory", "-m", help="The same by memory: MiB, or 2.5GiB.", show_default=False),
]
Count = Annotated[
    int,
    typer.Option(
        "--num-gpus",
        "-n",
        parser=count,
        metavar="NUMBER",
        help=f"Even shares of that many GPUs, at most {MAXIMUM_DEVICES}.",
    ),
]
Nodes = Annotated[
    str,
    typer.Option(
        "--nodes",
        parser=nodes,
        metavar="auto|one|any",
        help="Where several GPUs may lie: on one node; on any, when no single one has room; auto: on one, if a node"
        " could ever serve it, else on any.",
    ),
]
Wait = Annotated[
    float,
    typer.Option(
        parser=wait, metavar="TIME", help="Wait in the queue that long (60, 5m, forever); 0 does not wait."
    ),
]
WaitAgain = Annotated[
    float,
    typer.Option(
        parser=wait,
        metavar="TIME",
        help="When the share is taken back for others, wait that long for another (60, 5m, forever): calls wait, memory"
        " is kept. 0: CUDA calls fail instead.",
    ),
]
For = Annotated[
    float,
    typer.Option(
        "--for",
        parser=duration,
        metavar="TIME",
        help="Give it back after this time (90s, 30m, 2h); 0: not by itself.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Cap GPU time hard at the share, also while the GPU is idle."),
]
Filters = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        parser=filter_text,
        metavar="CONDITION",
        help="What the GPUs must be like: name=*H100*|*A100*, memory>=40GiB, driver>=580, node=n1|n2, software=no or "
        "label.zone=a. May be given several times: all must hold.",
        show_default=False,
        autocompletion=completing.filters,
    ),
]
NodePools = Annotated[
    list[str] | None,
    typer.Option(
        "--node-pool",
        metavar="NAME",
        help="Node pool to take them from. Given several times: the first that has room, in this order.",
        show_default=False,
        autocompletion=completing.node_pools,
    ),
]
Project = Annotated[
    str,
    typer.Option(
        metavar="PATH",
        help="Project whose quota this counts against [default: your only one, else 'default'].",
        show_default=False,
        autocompletion=completing.projects,
    ),
]
AskKind = Annotated[
    Kind,
    typer.Option(
        "--kind",
        help="Whether it may be taken back for others: interactive, only above what the project deserves; guaranteed, "
        "never, and refused above it; preemptible, whenever it is needed. Always with notice, memory kept.",
    ),
]
Priority = Annotated[
    int | None,
    typer.Option(
        parser=whole(1, MOST_PRIORITY),
        metavar="NUMBER",
        help="Inside the project, higher goes first [default: 100, preemptible 50].",
        show_default=False,
    ),
]
NoIsolation = Annotated[
    bool,
    typer.Option(
        "--no-isolation", help="A part of an open GPU, whose memory all its sessions share without walls."
    ),
]
OnBehalfOf = Annotated[
    str, typer.Option("--user", help="For another user (admins only).", show_default=False)
]


def share(partial: str | None, memory: str | None) -> Share:
    """The share of ``-p`` or ``-m``; exactly one of them is needed."""
    if (partial is None) == (memory is None):
        raise typer.BadParameter("say how much: either -p (a part of each GPU) or -m (memory of each)")
    try:
        if partial is not None:
            return Share.parse(partial)
        assert memory is not None
        return Share.parse(f"{memory}MiB" if memory.strip().isdecimal() else memory)
    except ShareError as error:
        raise typer.BadParameter(str(error)) from None


def client(endpoint: str | None, token_file: Path | None) -> PoolClient:
    return PoolClient(endpoint, token_file)
