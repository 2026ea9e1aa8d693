"""Who asked for how much, when and for how long: the tasks that a replay lets arrive.

From the openb trace, or from a file of one's own with a line for each task::

    at,user,project,share,count,seconds
    0,alice,research/vision,0.5,1,3600
    12.5,bob,default,1,2,600
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from gpupool.client.errors import GpupoolError
from gpupool.request.gpu_request import KINDS
from gpupool.shares import MAXIMUM_DEVICES, WHOLE_DEVICE_MILLI, Share, ShareError

#: Columns of a file of one's own; `OPTIONAL` ones may be missing or empty.
COLUMNS: Final = ("at", "share", "seconds")
OPTIONAL: Final = ("user", "project", "count", "kind", "priority")
OPENB_COLUMNS: Final = (
    "name", "num_gpu", "gpu_milli", "qos", "creation_time", "deletion_time", "scheduled_time"
)  # fmt: skip
_MAXIMUM_TASKS: Final = 5_000_000
#: Seconds, about thirty years.
_LONGEST: Final = 1e9
_NAME: Final = re.compile(r"[A-Za-z0-9_.@/-]{0,128}", re.ASCII)


class BadTraceError(GpupoolError):
    """A file is no list of tasks. ``str()`` is one sentence that names the line and the value."""


@dataclass(frozen=True, slots=True)
class Task:
    """Somebody asks at `at` (seconds from the beginning), and works for `seconds` once the shares are there.

    Attributes:
        milli: of each device; None: `mib` says how much.
        count: devices.
        project: empty: the user's default.
    """

    name: str
    at: float
    seconds: float
    milli: int | None
    count: int = 1
    mib: int | None = None
    user: str = "user"
    project: str = ""
    kind: str = "interactive"
    priority: int | None = None

    def as_whole(self) -> Task:
        """The same task on whole devices."""
        return replace(self, milli=WHOLE_DEVICE_MILLI, mib=None)


@dataclass(frozen=True, slots=True)
class Trace:
    """Tasks in the order of their arrival. `left_out`: what of the file is not among them, by reason."""

    name: str
    tasks: tuple[Task, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def end(self) -> float:
        """The last arrival."""
        return self.tasks[-1].at if self.tasks else 0.0


def read(path: Path) -> Trace:
    """The tasks of a file, of openb's columns or of our own.

    Raises:
        BadTraceError: it is neither, or a value cannot be.
        OSError: it cannot be read.
    """
    with path.open(newline="", encoding="utf-8") as file:
        try:
            reader = csv.DictReader(file)
            columns = tuple(reader.fieldnames or ())
            if not set(COLUMNS) - set(columns):
                return own(path.name, _numbered(path.name, reader))
            if not set(OPENB_COLUMNS) - set(columns):
                return openb(path.name, _numbered(path.name, reader))
        except (csv.Error, UnicodeDecodeError) as error:
            raise BadTraceError(f"{path} is no CSV file: {error}.") from error
    raise BadTraceError(
        f"{path} has the columns {', '.join(columns) or '(none)'}; a trace has {', '.join(COLUMNS)}, and if wanted "
        f"{', '.join(OPTIONAL)}, or the columns of openb's list of tasks."
    )


def own(name: str, rows: Iterable[tuple[str, Mapping[str, str]]]) -> Trace:
    """Tasks from lines of our own format, each with the words that name its place. Raises BadTraceError."""
    tasks = []
    for place, row in rows:
        share = _share(place, row)
        kind = row.get("kind") or "interactive"
        if kind not in KINDS:
            raise BadTraceError(f"{place}: kind is {kind!r}, not one of {', '.join(KINDS)}.")
        priority = row.get("priority") or ""
        tasks.append(
            Task(
                place,
                _number(place, row, "at"),
                _number(place, row, "seconds"),
                share.milli,
                _count(place, row),
                share.mib,
                _text(place, row, "user") or "user",
                _text(place, row, "project"),
                kind,
                _whole(place, row, "priority") if priority else None,
            )
        )
    return _trace(name, tasks, Counter())


def openb(name: str, rows: Iterable[tuple[str, Mapping[str, str]]]) -> Trace:
    """Tasks of the openb trace: they run as long as they ran there, from being scheduled to being deleted.

    Left out are tasks without a GPU, which a pool of GPUs does not see, and those that never ran, of which nobody knows
    how long they would have. A user is what the trace calls quality of service, because it names nobody.

    Raises:
        BadTraceError: a value cannot be.
    """
    tasks = []
    left_out: Counter[str] = Counter()
    for place, row in rows:
        count = _whole(place, row, "num_gpu")
        if count == 0:
            left_out["without a GPU"] += 1
            continue
        if not row["scheduled_time"]:
            left_out["never ran"] += 1
            continue
        if count > MAXIMUM_DEVICES:
            left_out[f"above {MAXIMUM_DEVICES} devices"] += 1
            continue
        milli = _whole(place, row, "gpu_milli")
        if not 1 <= milli <= WHOLE_DEVICE_MILLI:
            raise BadTraceError(f"{place}: gpu_milli is {milli}, not within 1..{WHOLE_DEVICE_MILLI}.")
        seconds = _number(place, row, "deletion_time") - _number(place, row, "scheduled_time")
        quality = (_text(place, row, "qos") or "none").lower()
        tasks.append(
            Task(
                row["name"],
                _number(place, row, "creation_time"),
                max(0.0, seconds),
                milli,
                count,
                user=quality,
            )
        )
    return _trace(name, tasks, left_out)


def at_most(trace: Trace, count: int) -> Trace:
    """Without the tasks of more devices than `count`, which are counted."""
    kept = tuple(task for task in trace.tasks if task.count <= count)
    if len(kept) == len(trace.tasks):
        return trace
    if not kept:
        raise BadTraceError(f"{trace.name} lists no task of at most {count} devices.")
    left_out = {**trace.left_out, f"more than {count} devices": len(trace.tasks) - len(kept)}
    return Trace(trace.name, kept, left_out)


def fitting(trace: Trace, largest_node: int, devices: int) -> Trace:
    """Without the tasks that no pool of these sizes could ever hold, which are counted."""
    limit = max(largest_node, 1)
    kept = tuple(task for task in trace.tasks if task.count <= min(limit, devices))
    dropped = len(trace.tasks) - len(kept)
    if not dropped:
        return trace
    return Trace(trace.name, kept, {**trace.left_out, f"more than {limit} devices on a node": dropped})


def _trace(name: str, tasks: Sequence[Task], left_out: Counter[str]) -> Trace:
    if not tasks:
        raise BadTraceError(f"{name} lists no task that asks for a GPU.")
    ordered = tuple(sorted(tasks, key=lambda task: task.at))
    return Trace(name, ordered, dict(left_out))


def _numbered(name: str, reader: Iterable[Mapping[str, str]]) -> Iterator[tuple[str, Mapping[str, str]]]:
    for number, row in enumerate(reader, 2):
        if number > _MAXIMUM_TASKS:
            raise BadTraceError(f"{name} has more than {_MAXIMUM_TASKS} lines.")
        yield f"{name} line {number}", row


def _share(place: str, row: Mapping[str, str]) -> Share:
    try:
        return Share.parse(row["share"] or "")
    except ShareError as error:
        raise BadTraceError(f"{place}: {error}") from error


def _count(place: str, row: Mapping[str, str]) -> int:
    count = _whole(place, row, "count") if row.get("count") else 1
    if not 1 <= count <= MAXIMUM_DEVICES:
        raise BadTraceError(f"{place}: count is {count}, not within 1..{MAXIMUM_DEVICES}.")
    return count


def _text(place: str, row: Mapping[str, str], column: str) -> str:
    text = row.get(column) or ""
    if not _NAME.fullmatch(text):
        raise BadTraceError(
            f"{place}: {column} is {text[:40]!r}, not letters, digits and _ . @ / - up to 128."
        )
    return text


def _whole(place: str, row: Mapping[str, str], column: str) -> int:
    number = _number(place, row, column)
    if number != int(number):
        raise BadTraceError(f"{place}: {column} is {row[column]!r}, not a whole number.")
    return int(number)


def _number(place: str, row: Mapping[str, str], column: str) -> float:
    try:
        value = float(row[column])
    except (TypeError, ValueError):
        value = -1.0
    if not (math.isfinite(value) and 0 <= value < _LONGEST):
        raise BadTraceError(
            f"{place}: {column} is {(row[column] or '')[:40]!r}, not a number from 0 to {_LONGEST:.0e}."
        )
    return value
