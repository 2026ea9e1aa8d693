"""The protocol table: reads `driver/*.toml`, checks it against cuda.h, and resolves it into messages and exports."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cuda_header import CudaHeader, Parameter, Prototype

Class = Literal["local", "post", "ask", "unsupported"]

KEYS = {"class", "alias", "params", "client", "worker", "release", "always", "work", "waits", "reason"}
MESSAGE_KEYS = {"class", "fields", "reply", "bulk", "release", "always", "work", "waits"}
PACKED = {
    "u8": "std::uint8_t",
    "u16": "std::uint16_t",
    "u32": "std::uint32_t",
    "u64": "std::uint64_t",
    "i32": "std::int32_t",
    "f32": "float",
    "bytes": "std::span<const std::byte>",
}
SCALARS = {
    "unsigned int": "u32",
    "int": "i32",
    "size_t": "u64",
    "unsigned char": "u8",
    "unsigned short": "u16",
    "unsigned long long": "u64",
    "cuuint32_t": "u32",
    "cuuint64_t": "u64",
    "float": "f32",
    "CUdeviceptr": "u64",
    "CUdevice": "i32",
}
HANDLES = {
    "context": "CUcontext",
    "stream": "CUstream",
    "event": "CUevent",
    "module": "CUmodule",
    "library": "CUlibrary",
    "function": "CUfunction",
    "kernel": "CUkernel",
    "graph": "CUgraph",
    "graph_exec": "CUgraphExec",
    "graph_node": "CUgraphNode",
}
DEFAULT_REASON = "not part of the supported driver interface"


class TableError(ValueError):
    """The table contradicts the header or itself."""


@dataclass(frozen=True)
class Field:
    """One packed field; `packed` is a key of PACKED, or `raw:<C type>` for a plain struct."""

    name: str
    packed: str

    @property
    def cpp(self) -> str:
        return (
            PACKED[self.packed]
            if self.packed in PACKED
            else f"std::array<std::byte, sizeof({self.packed[4:]})>"
        )


@dataclass(frozen=True)
class Argument:
    """A parameter of an export with its role in the message."""

    parameter: Parameter
    role: str  # value, in, new, drop, out, struct, text, device
    handle: str = ""  # kind of handle for in/new/drop

    @property
    def name(self) -> str:
        return self.parameter.name


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
    custom_worker: bool = True
    arguments: tuple[Argument, ...] = ()


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


def packed_scalar(ctype: str) -> str:
    """Packed form of a value of the C type; enumerations travel as i32."""
    if ctype in SCALARS:
        return SCALARS[ctype]
    if ctype.startswith("CU") and "*" not in ctype:
        return "i32"
    raise TableError(f"no packed form for the type {ctype!r}")


def _argument(name: str, parameter: Parameter, roles: dict[str, str]) -> Argument:
    role, _, kind = roles.get(parameter.name, "value").partition(":")
    if role not in {"value", "in", "new", "drop", "out", "struct", "text", "device"}:
        raise TableError(f"{name}: unknown role {role!r} of {parameter.name}")
    if (role in {"in", "new", "drop"}) != bool(kind) or (kind and kind not in HANDLES):
        raise TableError(f"{name}: {parameter.name} needs a kind of handle")
    return Argument(parameter, role, kind)


def _fields(name: str, arguments: tuple[Argument, ...]) -> tuple[tuple[Field, ...], tuple[Field, ...]]:
    request: list[Field] = []
    reply: list[Field] = []
    for argument in arguments:
        parameter = argument.parameter
        match argument.role:
            case "in" | "new" | "drop":
                request.append(Field(parameter.name, "u64"))
            case "value" | "device":
                request.append(Field(parameter.name, packed_scalar(parameter.type)))
            case "text":
                request.append(Field(parameter.name, "bytes"))
            case "struct":
                request.append(Field(parameter.name, f"raw:{parameter.pointee}"))
            case "out":
                pointee = parameter.pointee
                is_struct = pointee.endswith(("_st", "_t")) and pointee not in SCALARS
                reply.append(Field(parameter.name, f"raw:{pointee}" if is_struct else packed_scalar(pointee)))
            case _:
                raise TableError(f"{name}: role {argument.role}")
    return tuple(request), tuple(reply)


def _export(name: str, entry: dict[str, Any], header: CudaHeader) -> Export:
    if name not in header.functions:
        raise TableError(f"{name} is not an export of cuda.h")
    if unknown := entry.keys() - KEYS:
        raise TableError(f"{name}: unknown keys {sorted(unknown)}")
    prototype = header.functions[name]
    if alias := entry.get("alias"):
        other = header.functions.get(alias)
        if other is None or [p.type for p in other.parameters] != [p.type for p in prototype.parameters]:
            raise TableError(f"{name}: {alias} does not have the same signature")
        return Export(prototype, "local", alias=alias)
    kind: Class = entry["class"]
    if kind == "unsupported":
        return Export(prototype, kind, reason=entry.get("reason", DEFAULT_REASON))
    if kind == "local":
        return Export(prototype, kind)
    if kind not in ("post", "ask"):
        raise TableError(f"{name}: unknown class {kind}")
    roles: dict[str, str] = entry.get("params", {})
    if unknown := roles.keys() - {p.name for p in prototype.parameters}:
        raise TableError(f"{name}: no parameters {sorted(unknown)}")
    arguments = tuple(_argument(name, p, roles) for p in prototype.parameters)
    request, reply = _fields(name, arguments)
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
        arguments=arguments,
    )
    return Export(prototype, kind, custom_client=entry.get("client") == "custom", message=message)


def _message(name: str, entry: dict[str, Any]) -> Message:
    if unknown := entry.keys() - MESSAGE_KEYS:
        raise TableError(f"message {name}: unknown keys {sorted(unknown)}")
    fields = tuple(Field(key, value) for key, value in entry.get("fields", {}).items())
    reply = tuple(Field(key, value) for key, value in entry.get("reply", {}).items())
    for item in fields + reply:
        if item.packed not in PACKED:
            raise TableError(f"message {name}: unknown packed type {item.packed!r}")
    return Message(
        name,
        entry["class"],
        fields,
        reply,
        bulk=entry.get("bulk", ""),
        free=bool(entry.get("release") or entry.get("always")),
        work=entry.get("work", ""),
        waits=bool(entry.get("waits")),
    )


def load(directory: Path, header: CudaHeader) -> Table:
    """Read all `*.toml` of `directory`. Raises TableError on any contradiction."""
    table = Table(header)
    for path in sorted(directory.glob("*.toml")):
        document = tomllib.loads(path.read_text())
        table.needs += document.pop("needs", {}).get("functions", [])
        for name, entry in document.pop("message", {}).items():
            table.messages.append(_message(name, entry))
        for name, entry in document.items():
            if name in table.exports:
                raise TableError(f"{name} stands in the table twice")
            table.exports[name] = _export(name, entry, header)
    _add_per_thread_forms(table)
    for name, prototype in header.functions.items():
        if name not in table.exports:
            table.exports[name] = Export(prototype, "unsupported", reason=DEFAULT_REASON)
    table.messages += [e.message for e in table.exports.values() if e.message is not None]
    table.messages.sort(key=lambda m: m.name)
    if len({m.name for m in table.messages}) != len(table.messages):
        raise TableError("two messages have the same name")
    for name in table.needs:
        if name not in header.functions:
            raise TableError(f"needs: {name} is not an export of cuda.h")
    return table


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
