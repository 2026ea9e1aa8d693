"""Roles of parameters: what `params = { p = "..." }` of the table means, and the packed fields that follow from it.

A role is `NAME[?][:KIND][[COUNT]]`. `?` allows a null pointer or handle; KIND is a kind of handle; COUNT (another
parameter's name, also less a digit, or a number) makes the parameter an array.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cuda_header import CudaHeader, Parameter
from kinds import KINDS, TableError

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
    "unsigned": "u32",
    "int": "i32",
    "size_t": "u64",
    "char": "u8",
    "unsigned char": "u8",
    "unsigned short": "u16",
    "unsigned long long": "u64",
    "cuuint32_t": "u32",
    "cuuint64_t": "u64",
    "float": "f32",
    "CUdeviceptr": "u64",
    "CUdevice": "i32",
    "CUlogicalEndpointId": "u32",
}
#: C types of the kinds that parameters have.
HANDLES = {kind.name: kind.type for kind in KINDS.values() if kind.type}
OF_HANDLES = {"in", "new", "drop", "get"}
NAMES = OF_HANDLES | {"value", "out", "inout", "struct", "data", "text", "device", "number", "null"}
_ROLE = re.compile(r"(\w+)(\?)?(?::(\w+))?(?:\[(\w+(?:-\d)?)\])?")


@dataclass(frozen=True)
class Field:
    """One packed field; `packed` is a key of PACKED, or `raw:<C type>` for a plain struct."""

    name: str
    packed: str
    role: str = ""  # what it names: in, new, get, drop (a handle), device, address; "" nothing
    handle: str = ""  # kind of handle

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
    role: str  # one of NAMES
    handle: str = ""  # kind of handle for in, new, drop, get
    count: str = ""  # of an array: a parameter's name or a number
    optional: bool = False
    is_struct: bool = False  # what it points to

    @property
    def name(self) -> str:
        return self.parameter.name

    @property
    def flagged(self) -> bool:
        """Whether a null pointer has to be told to the worker by a field of its own."""
        return self.optional and self.role in {"out", "inout", "struct", "data"}

    @property
    def by_value(self) -> bool:
        """Whether the handle is the driver's own value."""
        return bool(self.handle) and KINDS[self.handle].by_value


def packed_scalar(ctype: str) -> str:
    """Packed form of a value of the C type; enumerations travel as i32."""
    if ctype in SCALARS:
        return SCALARS[ctype]
    if ctype.startswith("CU") and "*" not in ctype:
        return "i32"
    raise TableError(f"no packed form for the type {ctype!r}")


def argument(name: str, parameter: Parameter, roles: dict[str, str], header: CudaHeader) -> Argument:
    """Parse one parameter's role. Raises TableError."""
    text = roles.get(parameter.name, "value")
    match = _ROLE.fullmatch(text)
    if match is None or match[1] not in NAMES:
        raise TableError(f"{name}: unknown role {text!r} of {parameter.name}")
    role, optional, kind, count = match[1], bool(match[2]), match[3] or "", match[4] or ""
    if (role in OF_HANDLES) != bool(kind) or (kind and kind not in HANDLES):
        raise TableError(f"{name}: {parameter.name} needs a kind of handle")
    if (role == "data") != bool(count) and role not in {"in", "out"}:
        raise TableError(
            f"{name}: {text!r} of {parameter.name}: only data, in and out can be arrays, data must"
        )
    if optional and role in {"value", "new", "drop", "get", "text", "device", "number", "null"}:
        raise TableError(f"{name}: {parameter.name} cannot be optional")
    pointee = parameter.pointee if parameter.type.endswith("*") else ""
    return Argument(parameter, role, kind, count, optional, pointee in header.structs)


_FIELD = re.compile(r"(in|new|drop|get):(\w+)")
_NAMED = {"stream", "event", "device", "address"}


def message_field(message: str, name: str, text: str) -> Field:
    """One field of a message without an export: a packed type, or what it names. Raises TableError.

    A bare number must not be called like something that is named: then it is not decided which of the two it is.
    """
    if text == "device":
        return Field(name, "i32", "device")
    if text == "address":
        return Field(name, "u64", "address")
    if match := _FIELD.fullmatch(text):
        if match[2] not in KINDS:
            raise TableError(f"message {message}: {name} needs a kind of handle")
        return Field(name, "u64", match[1], match[2])
    if text not in PACKED:
        raise TableError(f"message {message}: unknown packed type {text!r}")
    if text in {"u64", "i32"} and (name in KINDS or any(word in name.lower() for word in _NAMED)):
        raise TableError(f"message {message}: is {name} a number? Say what it names (roles.message_field)")
    return Field(name, text)


def fields(name: str, arguments: tuple[Argument, ...]) -> tuple[tuple[Field, ...], tuple[Field, ...]]:
    """Packed fields of request and reply."""
    request: list[Field] = []
    reply: list[Field] = []
    for a in arguments:
        parameter = a.parameter
        if a.flagged:
            request.append(Field(f"has_{a.name}", "u8"))
        match a.role:
            case "in" if a.count:
                request.append(Field(a.name, "bytes"))
            case "new" if a.by_value:
                reply.append(Field(a.name, "u64"))
            case "in" | "new" | "drop":
                request.append(Field(a.name, "u64", a.role, a.handle))
            case "get":
                request.append(Field(a.name, "u64", a.role, a.handle))
                reply.append(Field(a.name, "u64"))
            case "value":
                role = "address" if parameter.type == "CUdeviceptr" else ""
                request.append(Field(a.name, packed_scalar(parameter.type), role))
            case "device":
                request.append(Field(a.name, packed_scalar(parameter.type), "device"))
            case "number":
                request.append(Field(a.name, "u64"))
            case "text" | "data":
                request.append(Field(a.name, "bytes"))
            case "struct":
                request.append(Field(a.name, f"raw:{parameter.pointee}"))
            case "out" if a.count:
                reply.append(Field(a.name, "bytes"))
            case "out" | "inout":
                packed = f"raw:{parameter.pointee}" if a.is_struct else packed_scalar(parameter.pointee)
                if a.role == "inout":
                    request.append(Field(a.name, packed))
                reply.append(Field(a.name, packed))
            case "null":
                pass
            case _:
                raise TableError(f"{name}: role {a.role}")
    return tuple(request), tuple(reply)
