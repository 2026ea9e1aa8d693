"""What a message leaves behind in a session, and how that comes along when the session moves to another worker.

Most of it follows from the roles; the key `move` of the table says the rest (see README.md). A message about which
nothing is known is a build error: a forgotten one would lose state silently.
"""

from __future__ import annotations

from dataclasses import dataclass

from kinds import KINDS, OBSTACLES, TableError
from table import Message, Table

#: What `move` may say beside an obstacle.
EFFECTS = {"none", "state", "replay"}


@dataclass(frozen=True)
class Move:
    """The decision about one message. `effect` is none, replay or an obstacle; the rest is for what is written down."""

    effect: str
    handles: tuple[str, ...] = ()  # fields: what is written down is forgotten when one of these objects ends
    made: str = ""  # field: the object that it makes
    same: tuple[str, ...] | None = None  # fields: a later message that agrees in them takes its place


def _of_roles(m: Message) -> str:
    """What the roles of an export's parameters say; "" when they do not."""
    kinds = {a.handle for a in m.arguments if a.handle}
    if any(KINDS[kind].move in OBSTACLES for kind in kinds):
        return "none"  # for as long as such an object exists, the session does not move
    if any(a.role == "drop" for a in m.arguments) or m.work or m.waits:
        return "none"  # ends something; or is done, and its result lies in memory
    if any(a.role in {"new", "get"} for a in m.arguments):
        return "replay"
    if m.kind == "ask" and any(a.role == "out" for a in m.arguments):
        return "none"  # a question
    return ""


def decide(m: Message) -> Move | None:
    """The decision about `m`; None when there is none. Raises TableError for one that contradicts itself."""
    said = m.move or _of_roles(m)
    if not said:
        return None
    if said not in EFFECTS and said not in OBSTACLES:
        raise TableError(f"{m.name}: unknown move {said!r}")
    if said in {"none", "state"}:
        if m.same is not None or m.names is not None:
            raise TableError(f"{m.name}: nothing of it is written down, so nothing can be the same")
        return Move("none")
    fields = {f.name for f in m.fields}
    if unknown := {*(m.same or ()), *(m.names or ())} - fields:
        raise TableError(f"{m.name}: no fields {sorted(unknown)}")
    named = [f for f in m.fields if f.handle] if m.names is None else []
    handles = tuple(f.name for f in named) if m.names is None else m.names
    made = [f.name for f in named if f.role in {"new", "get"}]
    odd = m.names is None and any(a.handle and (a.count or a.by_value) for a in m.arguments)
    if odd or len(made) > 1 or len(handles) > 3:
        raise TableError(f"{m.name}: written down are at most three single handles, of which it makes one")
    if m.bulk == "request":
        raise TableError(f"{m.name}: a payload is not written down; its handler has to see to that")
    return Move(said, handles, made[0] if made else "", m.same)


def check_moves(table: Table) -> None:
    """Raises TableError unless it is decided for every message how its effect moves."""
    undecided = [m.name for m in table.messages if decide(m) is None]
    if undecided:
        raise TableError("messages without a `move`: " + ", ".join(sorted(undecided)))
