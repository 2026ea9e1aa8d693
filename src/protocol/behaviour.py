"""What the two ends do with a message beside executing it: the keys of a row that are no field of it.

What is undecided is a build error: which stream is given something to do, whether the client follows an event, and
whether a call that waits may be made once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cuda_header import CudaHeader
from kinds import TableError
from roles import Argument, Field

#: What may be done with a call whose answer was lost, or that is refused while it waits.
AGAIN = {
    "never": "its answer is kept until the client has it",
    "waits": "it only waits, so it may be refused while it does and be made once more",
    "reads": "it reads device memory, whose bytes are too many to be kept: it is executed again",
}
EVENTS = {
    "followed": "it does not record the event, or the client follows what it does",
    "handed_out": "somebody may record the event at times that the client does not know",
}
KEYS = {"stream", "event", "holds_up", "again", "shown_as", "own_accord", "refused_by_push"}


@dataclass(frozen=True)
class Behaviour:
    """One row's answers."""

    stream_given: str = ""  # field; "0": the legacy stream; "": none is given anything
    event_given: str = ""  # field of an event that the client does not follow from here on
    holds_up: bool = True  # the worker may have to wait for the device before it can read the next message
    again: str = "never"
    shown_as: str = ""  # the export that a program knows it by
    own_accord: bool = False
    refused_by_push: bool = False  # without a lease it is not kept: the client waits for a push


def _stream(name: str, entry: dict[str, Any], fields: tuple[Field, ...], waits: bool, work: str) -> str:
    named = [f.name for f in fields if f.role == "in" and f.handle == "stream"]
    said = entry.get("stream", "")
    if work not in ("", "null", *named):
        raise TableError(f"{name}: its work is given to {work}, which is no stream")
    if waits or (work and len(named) <= 1):
        if said:
            raise TableError(f"{name}: `work` and `waits` say already what becomes of its stream")
        return "" if waits else (named or ["0"])[0]
    if not named and not said:
        return ""
    if said not in ("asked", *named):
        raise TableError(f'{name}: which of {named} is given something? Say `stream`, or "asked" if none is')
    return "" if said == "asked" else said


def _event(name: str, entry: dict[str, Any], fields: tuple[Field, ...]) -> str:
    named = [f.name for f in fields if f.role in {"in", "new"} and f.handle == "event"]
    said = entry.get("event", "")
    if said and (said not in EVENTS or not named):
        raise TableError(f"{name}: unknown event {said!r}")
    if not said and any(f.role == "in" and f.handle == "event" for f in fields):
        raise TableError(f"{name}: does the client follow what becomes of {named[0]}? Say `event`")
    if said == "handed_out" and len(named) > 1:
        raise TableError(f"{name}: which of its events does it record?")
    return named[0] if said == "handed_out" else ""


def parse(
    name: str,
    entry: dict[str, Any],
    fields: tuple[Field, ...],
    arguments: tuple[Argument, ...],
    header: CudaHeader,
) -> Behaviour:
    """The behaviour of a message. Raises TableError for what is undecided or contradicts itself."""
    for kind in ("stream", "event"):
        if any(a.role == "in" and a.handle == kind and a.count for a in arguments):
            raise TableError(f"{name}: the client does not follow arrays of {kind}s")
    waits, work = bool(entry.get("waits")), entry.get("work", "")
    again = entry.get("again", "" if waits else "never")
    if again not in AGAIN or (not waits and again == "waits"):
        raise TableError(f"{name}: may a call that waits be made once more? Say `again`: {sorted(AGAIN)}")
    shown_as = entry.get("shown_as", "")
    if shown_as and shown_as not in header.functions:
        raise TableError(f"{name}: {shown_as} is not an export of cuda.h")
    refused_by_push = bool(entry.get("refused_by_push"))
    if refused_by_push and (entry["class"] != "post" or "ticket" not in {f.name for f in fields}):
        raise TableError(f"{name}: a push refuses a post, by its ticket")
    return Behaviour(
        _stream(name, entry, fields, waits, work),
        _event(name, entry, fields),
        bool(entry.get("holds_up", True)),
        again,
        shown_as,
        bool(entry.get("own_accord")),
        refused_by_push,
    )


def check_pushes(rows: dict[str, Behaviour]) -> None:
    """Raises TableError unless one row at most is refused by a push: the worker decodes that row's ticket to refuse it."""
    names = [name for name, row in rows.items() if row.refused_by_push]
    if len(names) > 1:
        raise TableError(f"refused_by_push: which of {names}? The worker knows the ticket of one")
