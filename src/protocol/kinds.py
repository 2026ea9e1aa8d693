"""Kinds of handles: `[kind.NAME]` rows of wire/kinds.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class TableError(ValueError):
    """The table contradicts the header or itself."""


#: Reasons why a session cannot move, as the worker's `stats` name them.
OBSTACLES = (
    "graphs",
    "arrays",
    "ipc",
    "links",
    "capture",
    "global-addresses",
    "contexts",
    "other",
)
#: How objects of a kind move where they are no obstacle: their calls are replayed, or they are looked at as a whole.
MOVES = {"replay", "state"}
#: What the client has of an object: data in a table of its kind, a row of the plain table, or the driver's value only.
KEEPING = {"table", "plain", "value"}
_KEYS = {"type", "client", "move", "one_worker"}


@dataclass(frozen=True)
class Kind:
    """One kind of handle. `number` is its place in wire::Kind."""

    name: str
    number: int
    type: str  # C type; "" where no parameter of an export has it
    client: str
    move: str
    one_worker: bool = False  # its objects are numbers of one worker

    @property
    def by_value(self) -> bool:
        """Whether kernels use its values, so that the driver's own value is the program's."""
        return self.client == "value"


def parse(document: dict[str, Any]) -> dict[str, Kind]:
    """The kinds of a table. Raises TableError for what is undecided or unknown."""
    kinds: dict[str, Kind] = {}
    if unknown := document.keys() - {"kind"}:
        raise TableError(f"no kinds of handles: {sorted(unknown)}")
    for number, (name, entry) in enumerate(document.get("kind", {}).items(), 1):
        if unknown := entry.keys() - _KEYS:
            raise TableError(f"kind {name}: unknown keys {sorted(unknown)}")
        if entry.get("client") not in KEEPING:
            raise TableError(f"kind {name}: what does the client have of its objects? Say `client`")
        if entry.get("move") not in MOVES | set(OBSTACLES):
            raise TableError(f"kind {name}: it is not decided how its objects move. Say `move`")
        kinds[name] = Kind(
            name,
            number,
            entry.get("type", ""),
            entry["client"],
            entry["move"],
            bool(entry.get("one_worker")),
        )
    return kinds


def load(path: Path = Path(__file__).parent / "wire" / "kinds.toml") -> dict[str, Kind]:
    return parse(tomllib.loads(path.read_text()))


KINDS = load()
