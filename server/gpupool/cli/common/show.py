"""Results on standard output: JSON for programs, tables for people."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from typing import Any, Final, Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from gpupool.client import at_work
from gpupool.client.types import Device, GrantedShare, Notice, SessionInfo
from gpupool.shares import format_share
from gpupool.text import printable

MIB = 1024 * 1024


def as_json(value: Any) -> None:
    """Prints dataclasses, lists and dictionaries; a pipe that closed early is no error."""
    print(json.dumps(value, default=_plain, indent=2))


def as_json_line(value: Any) -> None:
    """The same in one line, seen at once by who reads a pipe."""
    print(json.dumps(value, default=_plain), flush=True)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # Fields kept out of repr() are secrets, or too long for a list.
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.repr}
    raise TypeError(f"{type(value).__name__} is not shown as JSON")


#: Of a pipe, in characters.
_UNBOUNDED: Final = 10_000


def console() -> Console:
    """Tables are as wide as the terminal; in a pipe, as wide as they are: no column is left out and no line broken."""
    made = Console(highlight=False, soft_wrap=False)
    if not made.is_terminal:
        made.width = _UNBOUNDED
    return made


def fields(value: object) -> dict[str, object]:
    """The fields of a dataclass by their names, nothing below them converted."""
    return {name: getattr(value, name) for name in type(value).__dataclass_fields__}  # type: ignore[attr-defined]


#: Between two columns.
_GAP: Final = 2
#: A column of sentences is worth showing when it is at least this wide.
_LEAST_WRAPPED: Final = 16


class Lines:
    """A table of other people's words: cells are shown as they are, never read as Rich's markup.

    Args:
        less_wanted: columns that are left out where the terminal is too narrow, the first of these first, before
            anything is shortened.
    """

    def __init__(
        self,
        columns: tuple[str, ...],
        right: tuple[str, ...],
        wrapped: tuple[str, ...],
        less_wanted: tuple[str, ...] = (),
    ) -> None:
        self._columns = columns
        self._right = right
        self._wrapped = wrapped
        self._less_wanted = less_wanted
        self._rows: list[tuple[Text, ...]] = []

    @property
    def count(self) -> int:
        return len(self._rows)

    def add(self, *cells: str | Text) -> None:
        self._rows.append(tuple(cell if isinstance(cell, Text) else coloured(cell) for cell in cells))

    def _width(self, place: int) -> int:
        """What a column takes; one of sentences can make do with less."""
        column = self._columns[place]
        cells = max((row[place].cell_len for row in self._rows), default=0)
        if column in self._wrapped:
            cells = min(cells, _LEAST_WRAPPED)
        return max(cells, cell_len(column))

    def _shown(self, width: int) -> list[int]:
        """Places of the columns for which there is room."""
        shown = list(range(len(self._columns)))
        for column in self._less_wanted:
            if sum(self._width(place) + _GAP for place in shown) <= width:
                break
            shown.remove(self._columns.index(column))
        return shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
        places = self._shown(options.max_width)
        for column in (self._columns[place] for place in places):
            justify: Literal["left", "right"] = "right" if column in self._right else "left"
            wraps = column in self._wrapped
            # A word that is longer than its column goes on below: its end is often what tells it from others.
            made.add_column(
                column, justify=justify, no_wrap=not wraps, overflow="fold" if wraps else "ellipsis"
            )
        for row in self._rows:
            made.add_row(*(row[place] for place in places))
        yield made


def coloured(text: str, colour: str = "") -> Text:
    """What others wrote, without what a terminal would obey."""
    return Text(printable(text), style=colour)


def table(
    *columns: str,
    right: tuple[str, ...] = (),
    wrapped: tuple[str, ...] = ("WHY",),
    less_wanted: tuple[str, ...] = (),
) -> Lines:
    """An empty table; ``right`` names the columns of figures, ``wrapped`` those of sentences."""
    return Lines(columns, right, wrapped, less_wanted)


#: What becomes of a lease with a notice, by its reason; others are asked back.
_NOTICES: Final = {"consolidate": "to be moved", "budget": "ends"}


def state(name: str, notice: Notice | None, doing: str = "") -> str:
    """``attached``, ``attached, forever 14 s`` or ``attached, asked back in 28 s``; ``doing``: of the devices, in words."""
    if doing and name in ("parked", "releasing"):
        name = doing  # what goes on without a lease says more than that there is none
    elif doing:
        name = f"{name}, {doing}"
    if notice is None:
        return name
    what = _NOTICES.get(notice.reason, "asked back")
    return f"{name}, {what} in {seconds(max(0.0, notice.seconds_left))}"


def session_state(session: SessionInfo, *, place: bool = False) -> str:
    """The state of a session with what its devices do; ``place``: where the memory of a parked one lies, too."""
    if session.state in ("closed", "lost"):
        return f"{session.state} ({session.reason})" if session.reason else session.state
    if session.usage.failure:
        return f"failed: {at_work.failure_name(session.usage.failure)}"
    name = f"parked ({session.memory_place})" if place and session.state == "parked" else session.state
    doing = at_work.in_words(session.usage)
    if doing and session.state == "parked":
        name = "parked"
    return state(name, session.notice, doing)


def percent(part: float) -> str:
    """``87 %``, at most 100."""
    return f"{100 * min(1.0, max(0.0, part)):.0f} %"


def session_busy(session: SessionInfo) -> str:
    """Of all its devices, together."""
    return percent(session.usage.busy / max(1, len(session.device_ids)))


def request_name(request_id: str) -> str:
    """What people type for a request: the beginning of the key in its id, which has its user before that."""
    return request_id.rpartition("\n")[2][:12]


def some(names: Sequence[str], most: int = 4) -> str:
    """``ann, bob and 7 more``; ``nobody``."""
    if not names:
        return "nobody"
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def mib(amount: int) -> str:
    """An amount of memory, always in MiB: columns compare better so."""
    return f"{amount} MiB"


def device_name(device: Device) -> str:
    """What a person calls it; CUDA's own name of the software GPU also says whose it is."""
    return "software GPU" if device.software and "software gpu" in device.name.lower() else device.name


def used(device: Device) -> str:
    """Memory in use and in all, MiB."""
    return f"{device.used_bytes // MIB} / {device.total_mib} MiB"


def shares(granted: tuple[GrantedShare, ...]) -> str:
    """``0.2 of node1/0, 0.2 of node1/1``."""
    return ", ".join(f"{format_share(s.milli)} ({s.mib} MiB) of {s.device_id}" for s in granted)


def seconds(amount: float | None) -> str:
    """A time as people say it; ``-`` when unknown."""
    if amount is None:
        return "-"
    if amount < 90:
        return f"{amount:.0f} s"
    if amount < 5400:
        return f"{amount / 60:.0f} min"
    return f"{amount / 3600:.1f}".removesuffix(".0") + " h"


def until(unix: float | None) -> str:
    """The time that is left, ``-`` without an end; never negative."""
    return "-" if unix is None else seconds(max(0.0, unix - time.time()))
