"""The protocol table: reads `driver/*.toml`, checks it against cuda.h, and resolves it into messages and exports."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import behaviour
from behaviour import Behaviour
from cuda_header import CudaHeader, Prototype
from kinds import TableError
from roles import PACKED, Argument, Field, argument, fields, message_field
from structs import Struct, check_plain, parse

Class = Literal["local", "post", "ask", "unsupported"]

#: Keys of every row that is a message.
_COMMON = {"class", "release", "always", "work", "waits", "move", "same", "names", "routes"} | behaviour.KEYS
KEYS = _COMMON | {"alias", "params", "client", "worker", "reason", "context"}
#: What is no message has nothing else to say.
_KEYS_OF = {"local": {"class", "reason"}, "unsupported": {"class", "reason"}}
_BOOLEAN = {"release", "always", "waits", "reads", "holds_up", "own_accord"}
MESSAGE_KEYS = _COMMON | {"fields", "reply", "bulk", "reads"}


@dataclass(frozen=True)
class Message:
    """What travels: generated from an export, or declared as `[message.Name]`."""

    name: str
    kind: Literal["post", "ask"]
    fields: tuple[Field, ...]
    reply: tuple[Field, ...]
    bulk: str = ""  # "", "request" or "reply"
    free: bool = False  # runs without a lease
    work: str = ""  # "", "null" or the field that holds the stream
    waits: bool = False
    reads: bool = False
    custom_worker: bool = True
    any_context: bool = False  # means the same in every context, and needs none
    arguments: tuple[Argument, ...] = ()
    move: str = ""  # how its effect comes along to another worker; see moves.py
    same: tuple[str, ...] | None = None
    names: tuple[str, ...] | None = None  # what its handles are, where it is not all that the roles name
    routes: str = ""  # how the client finds its worker, where it is not only by what it names; see routes.py
    behaviour: Behaviour = field(default_factory=Behaviour)


@dataclass(frozen=True)
class Export:
    """One exported symbol and how the client answers it."""

    prototype: Prototype
    kind: Class
    reason: str = ""
    alias: str = ""
    custom_client: bool = True
    message: Message | None = None

    @property
    def name(self) -> str:
        return self.prototype.name


@dataclass
class Table:
    """The resolved table. `exports` holds every symbol of the header."""

    header: CudaHeader
    exports: dict[str, Export] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    needs: list[str] = field(default_factory=list)
    structs: dict[str, Struct] = field(default_factory=dict)
    undecided: list[str] = field(default_factory=list)  # exports of the header that have no row

    def dropper(self, kind: str) -> Message | None:
        """The message that ends a handle of the kind, where one with no other fields exists."""
        for m in self.messages:
            if len(m.arguments) == 1 and m.arguments[0].role == "drop" and m.arguments[0].handle == kind:
                return m
        return None


def _check_keys(what: str, entry: dict[str, Any], keys: set[str]) -> None:
    if unknown := entry.keys() - keys:
        raise TableError(f"{what}: unknown keys {sorted(unknown)}")
    for key in entry.keys() & _BOOLEAN:
        if not isinstance(entry[key], bool):
            raise TableError(f"{what}: {key} is true or false")


def _names(entry: dict[str, Any], key: str) -> tuple[str, ...] | None:
    return tuple(entry[key]) if key in entry else None


def _export(name: str, entry: dict[str, Any], header: CudaHeader, structs: dict[str, Struct]) -> Export:
    if name not in header.functions:
        raise TableError(f"{name} is not an export of cuda.h")
    _check_keys(
        name, entry, _KEYS_OF.get(entry.get("class", ""), KEYS) if "alias" not in entry else {"alias"}
    )
    prototype = header.functions[name]
    if alias := entry.get("alias"):
        other = header.functions.get(alias)
        if other is None or [p.type for p in other.parameters] != [p.type for p in prototype.parameters]:
            raise TableError(f"{name}: {alias} does not have the same signature")
        return Export(prototype, "local", alias=alias)
    kind: Class = entry["class"]
    if kind == "unsupported":
        if not str(entry.get("reason", "")).strip():
            raise TableError(f"{name} is unsupported without a reason")
        return Export(prototype, kind, reason=entry["reason"])
    if "reason" in entry:
        raise TableError(f"{name}: a reason is for what is unsupported")
    if kind == "local":
        return Export(prototype, kind)
    if kind not in ("post", "ask"):
        raise TableError(f"{name}: unknown class {kind}")
    roles: dict[str, str] = entry.get("params", {})
    if unknown := roles.keys() - {p.name for p in prototype.parameters}:
        raise TableError(f"{name}: no parameters {sorted(unknown)}")
    arguments = tuple(argument(name, p, roles, header) for p in prototype.parameters)
    request, reply = fields(name, arguments)
    for a in arguments:
        if (
            a.is_struct
            and a.role in {"struct", "inout", "out", "data"}
            and a.parameter.pointee not in structs
        ):
            check_plain(a.parameter.pointee, header)
    if kind == "post" and reply:
        raise TableError(f"{name}: a post has no reply to carry an out parameter")
    message = Message(
        name,
        kind,
        request,
        reply,
        free=bool(entry.get("release") or entry.get("always")),
        work=entry.get("work", ""),
        waits=bool(entry.get("waits")),
        custom_worker=entry.get("worker") == "custom",
        any_context=entry.get("context") == "any",
        arguments=arguments,
        move=entry.get("move", ""),
        same=_names(entry, "same"),
        names=_names(entry, "names"),
        routes=entry.get("routes", ""),
        behaviour=behaviour.parse(name, entry, request, arguments, header),
    )
    return Export(prototype, kind, custom_client=entry.get("client") == "custom", message=message)


def _message(name: str, entry: dict[str, Any], header: CudaHeader) -> Message:
    _check_keys(f"message {name}", entry, MESSAGE_KEYS)
    request = tuple(message_field(name, key, value) for key, value in entry.get("fields", {}).items())
    reply = tuple(Field(key, value) for key, value in entry.get("reply", {}).items())
    for item in reply:
        if item.packed not in PACKED:
            raise TableError(f"message {name}: unknown packed type {item.packed!r}")
    return Message(
        name,
        entry["class"],
        request,
        reply,
        bulk=entry.get("bulk", ""),
        free=bool(entry.get("release") or entry.get("always")),
        work=entry.get("work", ""),
        waits=bool(entry.get("waits")),
        reads=bool(entry.get("reads")),
        move=entry.get("move", ""),
        same=_names(entry, "same"),
        names=_names(entry, "names"),
        routes=entry.get("routes", ""),
        behaviour=behaviour.parse(name, entry, request, (), header),
    )


def load(directory: Path, header: CudaHeader) -> Table:
    """Read all `*.toml` of `directory`. Raises TableError on any contradiction."""
    table = Table(header)
    documents = [tomllib.loads(path.read_text()) for path in sorted(directory.glob("*.toml"))]
    for document in documents:
        for name, entry in document.pop("struct", {}).items():
            if name in table.structs:
                raise TableError(f"struct {name} stands in the table twice")
            table.structs[name] = parse(name, entry, header)
    for document in documents:
        table.needs += document.pop("needs", {}).get("functions", [])
        for name, entry in document.pop("message", {}).items():
            table.messages.append(_message(name, entry, header))
        for name, entry in document.items():
            if name in table.exports:
                raise TableError(f"{name} stands in the table twice")
            table.exports[name] = _export(name, entry, header, table.structs)
    _add_per_thread_forms(table)
    for name, prototype in header.functions.items():
        if name not in table.exports:
            table.undecided.append(name)
            table.exports[name] = Export(prototype, "unsupported", reason="not in the table")
    table.messages += [e.message for e in table.exports.values() if e.message is not None]
    table.messages.sort(key=lambda m: m.name)
    if len({m.name for m in table.messages}) != len(table.messages):
        raise TableError("two messages have the same name")
    behaviour.check_pushes({m.name: m.behaviour for m in table.messages})
    for name in table.needs:
        if name not in header.functions:
            raise TableError(f"needs: {name} is not an export of cuda.h")
    return table


def check_decided(table: Table) -> None:
    """Raises TableError unless every export of the header has a row: a class, or a reason why it is unsupported."""
    if table.undecided:
        raise TableError(
            "exports of cuda.h without a row in driver/*.toml: " + ", ".join(sorted(table.undecided))
        )


def _add_per_thread_forms(table: Table) -> None:
    """`X_ptsz` and `X_ptds` follow X: same meaning, but the null stream is the per-thread one."""
    for name, prototype in table.header.functions.items():
        base, suffix = name[:-5], name[-5:]
        if suffix not in ("_ptsz", "_ptds") or name in table.exports or base not in table.exports:
            continue
        export = table.exports[base]
        if export.kind == "unsupported":
            table.exports[name] = Export(prototype, "unsupported", reason=export.reason)
        else:
            table.exports[name] = Export(prototype, "local", alias=export.alias or base)
