"""Control messages: what a connection itself says. `[control.NAME]`, `[record.NAME]`, `[enum.NAME]` rows of wire/control.toml."""

from __future__ import annotations

import itertools
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from kinds import TableError

NUMBERS = {
    "u8": "std::uint8_t",
    "u16": "std::uint16_t",
    "u32": "std::uint32_t",
    "u64": "std::uint64_t",
    "i32": "std::int32_t",
    "f32": "float",
}
#: Numbers from here on are calls.
FIRST_CALL = 64
_KEYS = {"number", "class", "means", "fields", "reply", "door", "alone", "again", "numbered"}
_TYPE = re.compile(r"(\w+)(?:\[(\d+)\])?")


@dataclass(frozen=True)
class Part:
    """One field of a record. `most`: elements of a list, or bytes of a text; 0: not limited, or one value."""

    name: str
    type: str  # a key of NUMBERS, "bool", "text", or the name of an enumeration or record
    most: int
    means: str


@dataclass(frozen=True)
class Record:
    """A body, or an element of one."""

    name: str
    means: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Control:
    """One control message."""

    name: str
    number: int
    kind: Literal["ask", "post", "push"]  # a push is the worker's, unasked
    means: str
    fields: str = ""  # the record that is its body; "" none
    reply: str = ""  # the record behind the ReplyHeader
    door: bool = False  # comes in place of HELLO, with its body
    alone: bool = False  # asked with a time limit: nothing is told before its answer
    again: str = "never"  # as of calls (behaviour.py): never or waits
    numbered: bool = True  # false: of the connection and not of the session; it is not sent again


@dataclass(frozen=True)
class Controls:
    """All of them, in the order of their numbers; records stand behind those that they are made of."""

    messages: tuple[Control, ...]
    records: tuple[Record, ...]
    enums: dict[str, dict[str, str]]  # names of values -> what they mean


def _part(record: str, name: str, entry: Any) -> Part:
    entry = {"type": entry} if isinstance(entry, str) else entry
    if unknown := entry.keys() - {"type", "means"}:
        raise TableError(f"record {record}: {name} has unknown keys {sorted(unknown)}")
    match = _TYPE.fullmatch(entry.get("type", ""))
    if match is None:
        raise TableError(f"record {record}: what is {name}? Say its type")
    return Part(name, match[1], int(match[2] or 0), entry.get("means", ""))


def _record(name: str, entry: dict[str, Any]) -> Record:
    if entry.keys() != {"means", "fields"} or not entry["fields"]:
        raise TableError(f"record {name}: it has `means` and `fields`")
    return Record(name, entry["means"], tuple(_part(name, key, e) for key, e in entry["fields"].items()))


def _sorted(records: dict[str, Record], enums: dict[str, dict[str, str]]) -> tuple[Record, ...]:
    """Each behind those that it is made of. Raises TableError for a type that is none, and for a list without a limit."""
    done: dict[str, Record] = {}

    def add(record: Record, inside: tuple[str, ...]) -> None:
        for part in record.parts:
            if part.type in records:
                if part.type in inside:
                    raise TableError(f"record {record.name}: {part.name} holds what it is part of")
                if not part.most:
                    raise TableError(f"record {record.name}: how many {part.name} at most?")
                add(records[part.type], (*inside, part.type))
            elif part.type not in NUMBERS.keys() | {"bool", "text"} | enums.keys():
                raise TableError(f"record {record.name}: unknown type {part.type!r} of {part.name}")
            elif part.most and part.type != "text":
                raise TableError(f"record {record.name}: {part.name}: lists are of records")
        done.setdefault(record.name, record)

    for record in records.values():
        add(record, (record.name,))
    return tuple(done.values())


def _control(name: str, entry: dict[str, Any], records: dict[str, Record]) -> Control:
    if unknown := entry.keys() - _KEYS:
        raise TableError(f"control {name}: unknown keys {sorted(unknown)}")
    kind, number = entry.get("class"), entry.get("number")
    if kind not in {"ask", "post", "push"}:
        raise TableError(f"control {name}: who says it? `class` is ask, post or push")
    if not isinstance(number, int) or not 0 < number < FIRST_CALL:
        raise TableError(f"control {name}: numbers of control messages are 1 to {FIRST_CALL - 1}")
    if not str(entry.get("means", "")).strip():
        raise TableError(f"control {name}: it does not say what it means")
    for key in ("fields", "reply"):
        if key in entry and entry[key] not in records:
            raise TableError(f"control {name}: there is no record {entry[key]!r}")
    if kind != "ask" and entry.keys() & {"reply", "door", "alone", "again"}:
        raise TableError(f"control {name}: nobody waits for an answer")
    if entry.get("door") and "fields" in entry:
        raise TableError(f"control {name}: its body is that of HELLO")
    if kind == "ask" and "numbered" in entry:
        raise TableError(f"control {name}: answers are found by the number")
    if entry.get("again", "never") not in {"never", "waits"}:
        raise TableError(f"control {name}: unknown again {entry['again']!r}")
    return Control(
        name,
        number,
        cast(Literal["ask", "post", "push"], kind),
        entry["means"],
        entry.get("fields", ""),
        entry.get("reply", ""),
        bool(entry.get("door")),
        bool(entry.get("alone")),
        entry.get("again", "never"),
        bool(entry.get("numbered", True)),
    )


def parse(document: dict[str, Any]) -> Controls:
    """The control messages of a table. Raises TableError for what is undecided, unknown or of no use."""
    if unknown := document.keys() - {"control", "record", "enum"}:
        raise TableError(f"no control messages: {sorted(unknown)}")
    enums: dict[str, dict[str, str]] = document.get("enum", {})
    records = {name: _record(name, entry) for name, entry in document.get("record", {}).items()}
    messages = [_control(name, entry, records) for name, entry in document.get("control", {}).items()]
    messages.sort(key=lambda m: m.number)
    for one, other in itertools.pairwise(messages):
        if one.number == other.number:
            raise TableError(f"control {other.name}: {one.name} has the number {one.number}")
    in_order = _sorted(records, enums)
    used = {name for m in messages for name in (m.fields, m.reply)}
    used |= {part.type for record in records.values() for part in record.parts}
    if idle := (records.keys() | enums.keys()) - used:
        raise TableError(f"nothing is made of {sorted(idle)}")
    return Controls(tuple(messages), in_order, enums)


def load(path: Path = Path(__file__).parent / "wire" / "control.toml") -> Controls:
    return parse(tomllib.loads(path.read_text()))
