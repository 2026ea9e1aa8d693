"""What one may ask for: a field for each option, with its row of the option table.

A new option is a field here, one of the same name in ``RequestLease`` (:file:`pool.proto`), and whatever acts on it. The
magics, the command line, :func:`gpupool.attach`, the REST body, its schema and the page's types have it then.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self, TypedDict

from gpupool.filters import FilterError, named
from gpupool.filters import parse as parse_filter
from gpupool.filters import parse_all as parse_filters
from gpupool.names import MAXIMUM_DEPTH, MAXIMUM_PATH, NAME_RULE, is_name, is_project
from gpupool.request.option import (
    EVERYWHERE,
    WORDS,
    Known,
    Option,
    Place,
    RequestError,
    option,
    options_of,
)
from gpupool.request.values import Choice, Part, Seconds, Switch, Text, Texts, Whole
from gpupool.shares import MAXIMUM_DEVICES, NODE_CHOICES, WHOLE_DEVICE_MILLI, Share
from gpupool.text import printable

#: What a request says of being taken back. ``interactive``: not while its project is within what it deserves, and with
#: notice above that; ``guaranteed``: never, and refused above what is deserved; ``preemptible``: with notice, always.
KINDS: Final = ("interactive", "guaranteed", "preemptible")
#: Priorities inside a project that a request may name: 1 up to this.
MOST_PRIORITY: Final = 1000
#: Longest wait that has an end, and longest lease that has one, seconds.
LONGEST_SECONDS: Final = 366 * 24 * 3600.0

_TIMES: Final = ("30s", "1m", "10m", "1h", "2h")
_DEVICE: Final = re.compile(r"[A-Za-z0-9*?][A-Za-z0-9 ._*?()-]{0,62}", re.ASCII)


def checked_project(text: str) -> str:
    """A path such as ``research/vision``; empty: the user's only project, else ``default``. Raises ValueError."""
    if text and not is_project(text):
        raise ValueError(
            f"{text[:40]!r} is no project; a project is a path such as research/vision: names of {NAME_RULE}, "
            f"joined by '/', at most {MAXIMUM_DEPTH} of them and {MAXIMUM_PATH} characters."
        )
    return text


def _condition(text: str) -> str:
    """Terminals and logs must not obey it."""
    try:
        return str(parse_filter(printable(text)))
    except ValueError as error:
        raise ValueError(f"{error}.") from None


def _node_pool(text: str) -> str:
    if not is_name(text):
        raise ValueError(f"{text[:40]!r} is no node pool; a node pool has a name such as a100: {NAME_RULE}.")
    return text


def _type(text: str) -> str:
    if not all(_DEVICE.fullmatch(name) for name in text.split("|")):
        raise ValueError(
            f"{text[:40]!r} is no type of GPU; write a part of its name such as H100, or H100|A100."
        )
    return named(text)


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """One request for shares of GPUs.

    Attributes:
        share: of each device; None: the default of whoever is asked.
        count: even shares on that many devices.
        nodes: on how many nodes these may lie: ``one``; ``any`` number, when no single one has room;
            ``auto``: one if there is a node that could ever serve it, else any number.
        wait_seconds: longest wait in the queue; None: the default of whoever is asked, negative: without end.
        hold: the share is kept after the cell, until it is detached or idle.
        duration_seconds: the lease ends by itself after this time; 0: no deadline.
        strict: a hard cap on device time, for a new session; a resumed one keeps what it has.
        project: whose quota it counts against; empty: the user's only project, else ``default``.
        kind: whether it may be taken back for others, one of :data:`KINDS`.
        priority: inside its project, higher is served first; 0: the kind's.
        filters: what its devices must be like, each as :mod:`gpupool.filters` writes them.
        pools: node pools it may be placed in, the most wanted first; empty: all.
        no_isolation: a part of an open device, whose memory all its sessions share; else its memory is its own.
    """

    share: Share | None = option(
        None,
        Part(),
        "a part of one GPU (0.2, 20%) or memory (2560MiB, 2.5GiB); default: the server's, or 0.2 without one",
        metavar="SHARE",
        where=EVERYWHERE - {Place.COMMAND},
        reason="bad-share",
    )
    count: int = option(
        1,
        Whole(
            1, MAXIMUM_DEVICES, "of GPUs", examples=tuple(str(one) for one in range(1, MAXIMUM_DEVICES + 1))
        ),
        f"the same share of N GPUs, at most {MAXIMUM_DEVICES}",
        "-n",
        "--num-gpus",
        metavar="N",
        keyword="n",
        reason="bad-share",
    )
    nodes: str = option(
        "auto",
        Choice(NODE_CHOICES),
        "where several GPUs may be. one: on one node; any: on several nodes if no node has room; auto (default): one if "
        "the pool has a node that is large enough, else any",
        "--nodes",
        metavar="auto|one|any",
    )
    wait_seconds: float | None = option(
        None,
        Seconds(LONGEST_SECONDS, endless=True, examples=("0", *_TIMES, "forever")),
        "the longest time to wait in the queue: 90, 90s, 10m, 2h, forever; 0: don't wait",
        "--wait",
        metavar="TIME",
        unit="seconds; -1: without end",
        key="wait",
    )
    hold: bool = option(
        False,
        Switch(),
        "keep the GPU after the cell, until detached or idle",
        "--hold",
        where=frozenset({Place.CELL, Place.BODY}),
    )
    duration_seconds: float = option(
        0.0,
        Seconds(LONGEST_SECONDS, examples=_TIMES),
        "give the GPU back after this time, or earlier: 600, 10m, 2h; 0: no time limit",
        "--for",
        metavar="TIME",
        unit="seconds",
        key="for",
        keyword="duration",
        where=EVERYWHERE - {Place.AUTO, Place.PAGE},
    )
    strict: bool = option(
        False,
        Switch(),
        "cap GPU time hard at the share, also while the GPU is idle",
        "--strict",
    )
    project: str = option(
        "",
        Text(checked_project),
        "the project whose quota it counts against; default: the server's, else your only one, else 'default'",
        "--project",
        metavar="PATH",
        known=Known.PROJECTS,
        reason="unknown-project",
    )
    kind: str = option(
        "interactive",
        Choice(KINDS),
        "whether the pool may take it back for others. interactive (default): only above what the project deserves; "
        "guaranteed: never, but refused if the quota has no room; preemptible: whenever somebody needs it. The pool gives "
        "notice first and keeps the memory",
        "--kind",
        metavar="KIND",
    )
    priority: int = option(
        0,
        Whole(1, MOST_PRIORITY, unset=0, examples=("50", "100", "200")),
        f"inside the project, higher goes first (1 to {MOST_PRIORITY}; default 100, preemptible 50)",
        "--priority",
        metavar="N",
    )
    filters: tuple[str, ...] = option(
        (),
        Texts(_condition),
        "what the GPUs must be like: name=*H100*|*A100*, memory>=40GiB, driver>=580, node=n1|n2, software=no, "
        "label.zone=a; several: all must hold",
        "--filter",
        metavar="CONDITION",
        known=Known.CONDITIONS,
    )
    pools: tuple[str, ...] = option(
        (),
        Texts(_node_pool),
        "node pool to take them from; several: the first that has room, in this order",
        "--node-pool",
        metavar="NAME",
        key="node_pools",
        known=Known.NODE_POOLS,
    )
    no_isolation: bool = option(
        False,
        Switch(),
        "a part of an open GPU, whose memory all its sessions share without walls",
        "--no-isolation",
        where=frozenset({Place.COMMAND, Place.BODY, Place.PAGE}),
    )

    @property
    def patience(self) -> float | None:
        """Longest wait in the queue, seconds; None: without end."""
        wait = self.wait_seconds
        return None if wait is None or wait < 0 else wait

    def with_defaults(self, *, share: str, wait_seconds: float, project: str = "") -> Self:
        """With what counts where it names no share, no wait and no project."""
        return replace(
            self,
            share=self.share or Share.parse(share),
            wait_seconds=wait_seconds if self.wait_seconds is None else self.wait_seconds,
            project=self.project or project,
        )


class AttachOptions(TypedDict, total=False):
    """The keywords of :func:`gpupool.attach`, for type checkers; a test compares them with the table."""

    n: int
    nodes: str
    wait: str | float | None
    duration: str | float | None
    strict: bool
    exclusive: bool
    project: str
    type: str
    kind: str
    priority: int
    filters: tuple[str, ...] | list[str]
    node_pools: tuple[str, ...] | list[str]


#: Other ways to write a field.
SPELLINGS: Final = (
    Option(
        "partial",
        "share",
        None,
        Part(),
        "share of each GPU: 0.2, 20%, 2560MiB or 2.5GiB",
        ("--partial", "-p"),
        metavar="TEXT",
        where=frozenset({Place.COMMAND}),
        reason="bad-share",
    ),
    Option(
        "memory",
        "share",
        None,
        Part(bare="MiB"),
        "the same by memory: MiB, or 2.5GiB",
        ("--memory", "-m"),
        metavar="TEXT",
        where=frozenset({Place.COMMAND}),
        reason="bad-share",
    ),
    Option(
        "exclusive",
        "share",
        False,
        Switch(),
        "a whole GPU; nobody else gets a share of it",
        ("--exclusive",),
        keyword="exclusive",
        where=WORDS,
        reason="bad-share",
    ),
    Option(
        "type",
        "filters",
        (),
        Texts(_type),
        "what the GPU is called: H100 (any whose name has it), H100|A100",
        ("--type",),
        metavar="NAME",
        keyword="type",
        where=WORDS | {Place.COMMAND},
        known=Known.NAMES,
    ),
)


def table(place: Place, record: type[GpuRequest] = GpuRequest) -> tuple[Option, ...]:
    """What may be written in a place: the record's own fields, then other ways to write them."""
    return tuple(row for row in (*options_of(record), *SPELLINGS) if place in row.where)


def made_of(given: dict[str, Any], record: type[GpuRequest] = GpuRequest) -> GpuRequest:
    """The request that checked values make, each under its row's name; what is not given is as by default.

    Raises:
        RequestError: two of them contradict each other.
    """
    values = dict(given)
    partial, memory = values.pop("partial", None), values.pop("memory", None)
    if partial is not None and memory is not None:
        raise RequestError(
            "Say how much either by a part (-p) or by memory (-m) of each GPU, not by both.", "bad-share"
        )
    share = values.get("share") or partial or memory
    if values.pop("exclusive", False):
        if share is not None and share.milli != WHOLE_DEVICE_MILLI:
            raise RequestError(
                f"Exclusive is a whole GPU, which nobody shares; {share.written} is a part of one. "
                "Leave the share out, or do not ask for an exclusive one.",
                "bad-share",
            )
        share = Share.parse("1")
    values["share"] = share
    filters = tuple(dict.fromkeys((*values.pop("type", ()), *values.get("filters", ()))))
    try:
        parse_filters(filters)
    except FilterError as error:
        raise RequestError(f"{error}.", "bad-request") from None
    values["filters"] = filters
    known = {one.name for one in fields(record)}
    return record(**{name: value for name, value in values.items() if name in known})
