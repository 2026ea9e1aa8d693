"""Structs that cross the wire: which of their fields are handles, devices or pointers.

`[struct.NAME]` sections say so; a struct without a section must be plain, which is checked against cuda.h.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from cuda_header import CudaHeader
from kinds import KINDS, TableError
from roles import HANDLES

_KEYS = {"valid", "handles", "devices", "null", "addresses"}


@dataclass(frozen=True)
class StructField:
    """A field, e.g. `res.array.hArray`; it counts only where the C++ expression `when` over the struct `s` is true."""

    path: str
    kind: str = ""  # of a handle
    when: str = ""
    optional: bool = False  # zero is allowed


@dataclass(frozen=True)
class Struct:
    """What the worker does with a struct from the wire before the driver sees it."""

    name: str
    valid: str = ""  # C++ expression over `s`
    handles: tuple[StructField, ...] = ()
    devices: tuple[StructField, ...] = ()  # device ordinals
    null: tuple[str, ...] = ()  # pointers that must be null

    @property
    def translated(self) -> bool:
        return bool(self.valid or self.handles or self.devices or self.null)


def _field(name: str, entry: dict[str, Any], of_handle: bool) -> StructField:
    if entry.keys() - {"field", "kind", "when", "optional"} or "field" not in entry:
        raise TableError(f"struct {name}: unknown keys in {entry}")
    kind = entry.get("kind", "")
    if of_handle != bool(kind) or (kind and (kind not in HANDLES or KINDS[kind].by_value)):
        raise TableError(f"struct {name}: {entry['field']} needs a kind of handle")
    return StructField(entry["field"], kind, entry.get("when", ""), bool(entry.get("optional")))


def parse(name: str, entry: dict[str, Any], header: CudaHeader) -> Struct:
    """One section. Raises TableError, also when the section leaves a handle or pointer of the struct out."""
    if unknown := entry.keys() - _KEYS:
        raise TableError(f"struct {name}: unknown keys {sorted(unknown)}")
    if name not in header.structs:
        raise TableError(f"struct {name} is not in cuda.h")
    handles = tuple(_field(name, e, True) for e in entry.get("handles", []))
    devices = tuple(_field(name, e, False) for e in entry.get("devices", []))
    null = tuple(entry.get("null", []))
    told = {f.path for f in handles} | set(null) | set(entry.get("addresses", []))
    leaves = {path.rpartition(".")[2] for path in told}
    if missing := _risky(header.structs[name], header) - leaves:
        raise TableError(f"struct {name}: what are {sorted(missing)}? Declare handles, null or addresses")
    return Struct(name, entry.get("valid", ""), handles, devices, null)


def check_plain(name: str, header: CudaHeader) -> None:
    """Raises TableError unless the struct holds neither pointers nor handles."""
    if risky := _risky(header.structs[name], header):
        raise TableError(f"struct {name} has pointers or handles ({sorted(risky)}) and needs a section")


def _risky(body: str, header: CudaHeader) -> set[str]:
    """Names of fields that are pointers or handles; of a nested struct with such fields, their names."""
    found: set[str] = set()
    for declaration in re.split(r"[;{}]", re.sub(r"_Alignas\(\d+\)", "", body)):
        match = re.fullmatch(
            r"\s*(?:const\s+)?(?:struct\s+|union\s+)?([\w\s]+?)\s*(\**)\s*(\w+)\s*(\[\w*\])*\s*", declaration
        )
        if match is None:
            if "(" in declaration or "*" in declaration:
                raise TableError(f"cannot read the field {declaration.strip()!r}")
            continue
        ctype, stars, field_name = match[1].strip(), match[2], match[3]
        if stars or ctype in header.handles:
            found.add(field_name)
        elif ctype in header.structs:
            found |= _risky(header.structs[ctype], header)
    return found
