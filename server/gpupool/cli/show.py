"""Results on standard output: JSON for programs, tables for people."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from typing import Any, Final, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpupool.client.types import Device, GrantedShare, Notice
from gpupool.shares import format_milli
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


def console() -> Console:
    """Tables are as wide as the terminal; in a pipe, wide enough to be whole."""
    made = Console(highlight=False, soft_wrap=False)
    if not made.is_terminal:
        made.width = 160
    return made


class Lines:
    """A table of other people's words: cells are shown as they are, never read as Rich's markup."""

    def __init__(self, columns: tuple[str, ...], right: tuple[str, ...], wrapped: tuple[str, ...]) -> None:
        self.table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for column in columns:
            justify: Literal["left", "right"] = "right" if column in right else "left"
            self.table.add_column(column, justify=justify, no_wrap=column not in wrapped)

    @property
    def count(self) -> int:
        return self.table.row_count

    def add(self, *cells: str | Text) -> None:
        self.table.add_row(*(cell if isinstance(cell, Text) else coloured(cell) for cell in cells))

    def __rich__(self) -> Table:
        return self.table


def coloured(text: str, colour: str = "") -> Text:
    return Text(printable(text), style=colour)


def table(*columns: str, right: tuple[str, ...] = (), wrapped: tuple[str, ...] = ("WHY",)) -> Lines:
    """An empty table; ``right`` names the columns of figures, ``wrapped`` those of sentences."""
    return Lines(columns, right, wrapped)


#: What becomes of a lease with a notice, by its reason; others are asked back.
_NOTICES: Final = {"consolidate": "to be moved", "budget": "ends"}


def state(name: str, notice: Notice | None) -> str:
    """``attached``, or ``attached, asked back in 28 s``."""
    if notice is None:
        return name
    what = _NOTICES.get(notice.reason, "asked back")
    return f"{name}, {what} in {seconds(max(0.0, notice.seconds_left))}"


def ask_name(ask_id: str) -> str:
    """What people type for an ask: the beginning of the key in its id, which has its user before that."""
    return ask_id.rpartition("\n")[2][:12]


def some(names: Sequence[str], most: int = 4) -> str:
    """``ann, bob and 7 more``; ``nobody``."""
    if not names:
        return "nobody"
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def mib(amount: int) -> str:
    return f"{amount} MiB"


def used(device: Device) -> str:
    return f"{device.used_bytes // MIB} / {device.total_mib} MiB"


def shares(granted: tuple[GrantedShare, ...]) -> str:
    """``0.2 of node1/0, 0.2 of node1/1``."""
    return ", ".join(f"{format_milli(s.milli)} ({s.mib} MiB) of {s.device_id}" for s in granted)


def seconds(amount: float | None) -> str:
    """A time as people say it; ``-`` when unknown."""
    if amount is None:
        return "-"
    if amount < 90:
        return f"{amount:.0f} s"
    return f"{amount / 60:.0f} min" if amount < 5400 else f"{amount / 3600:.1f} h"


def until(unix: float | None) -> str:
    return "-" if unix is None else seconds(max(0.0, unix - time.time()))
