"""The table of the runtime API: reads `table/*.toml` and checks it against the header.

Each file describes one family:

    [direct]       name = "cuName" or "cuName(argument, ...)": one driver call; arguments are cast to the driver's types
    [direct-12]    the same, for that major version of the header only
    [custom]       names = [...]: written by hand, in namespace gpupool::cudart under the same name
    [unsupported]  name = "reason"
    [undeclared]   name = "reason": exported by NVIDIA's library but not declared in cuda_runtime_api.h
    [undeclared-13] the same, for that major version only
    [options]      no_context = [...]: may be called before there is a context; silent = [...]: never the last error;
                   waits = [...]: the program sees results after it

A function of the header that stands in no file is an error, so a new header cannot lose functions silently.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from runtime_header import Function, RuntimeHeader

Class = Literal["direct", "custom", "unsupported"]
SECTIONS = re.compile(r"direct(-\d+)?|custom|unsupported|undeclared(-\d+)?|options")


class TableError(ValueError):
    """The table contradicts a header or itself."""


@dataclass(frozen=True)
class Entry:
    """One exported function with its class."""

    function: Function
    kind: Class
    family: str
    driver: str = ""  # direct: the driver's export
    arguments: tuple[str, ...] = ()  # direct: one expression for each parameter of the driver's function
    reason: str = ""
    needs_context: bool = True
    silent: bool = False
    waits: bool = False


@dataclass(frozen=True)
class Table:
    """All functions of one header."""

    header: RuntimeHeader
    entries: dict[str, Entry]
    undeclared: dict[str, str]


def _direct(function: Function, call: str, header: RuntimeHeader) -> tuple[str, tuple[str, ...]]:
    match = re.fullmatch(r"(cu\w+)(?:\((.*)\))?", call)
    if match is None or match[1] not in header.driver:
        raise TableError(f"{function.name}: cuda.h does not declare {call}")
    wanted = header.driver[match[1]].parameters
    if match[2] is None:
        arguments = tuple(p.name for p in function.parameters)
    else:
        arguments = tuple(piece.strip() for piece in match[2].split(",") if piece.strip())
    if len(arguments) != len(wanted):
        raise TableError(
            f"{function.name}: {match[1]} takes {len(wanted)} arguments, {len(arguments)} are given"
        )
    return match[1], arguments


def _read(directory: Path) -> dict[str, dict[str, dict[str, Any]]]:
    files = {}
    for path in sorted(directory.glob("*.toml")):
        content = tomllib.loads(path.read_text())
        for section in content:
            if not SECTIONS.fullmatch(section):
                raise TableError(f"{path.name}: unknown section [{section}]")
        files[path.stem] = content
    return files


def load(directory: Path, header: RuntimeHeader) -> Table:
    """Reads the files for one header. Raises TableError."""
    entries: dict[str, Entry] = {}
    undeclared: dict[str, str] = {}

    def add(entry: Entry) -> None:
        if entry.function.name in entries:
            raise TableError(f"{entry.function.name} stands in the table twice")
        entries[entry.function.name] = entry

    for family, content in _read(directory).items():
        options = content.get("options", {})
        no_context, silent = set(options.get("no_context", ())), set(options.get("silent", ()))
        waits = set(options.get("waits", ()))
        for section in ("undeclared", f"undeclared-{header.major}"):
            undeclared |= content.get(section, {})
        for name in content.get("custom", {}).get("names", ()):
            if function := header.functions.get(name):
                add(Entry(function, "custom", family, silent=name in silent, waits=name in waits))
        for name, reason in content.get("unsupported", {}).items():
            if function := header.functions.get(name):
                add(Entry(function, "unsupported", family, reason=reason))
        for section in ("direct", f"direct-{header.major}"):
            for name, call in content.get(section, {}).items():
                if function := header.functions.get(name):
                    driver, arguments = _direct(function, call, header)
                    add(
                        Entry(
                            function,
                            "direct",
                            family,
                            driver,
                            arguments,
                            needs_context=name not in no_context,
                            silent=name in silent,
                            waits=name in waits,
                        )
                    )
    missing = sorted(header.functions.keys() - entries.keys())
    if missing:
        raise TableError(f"not in the table: {', '.join(missing)}")
    return Table(header, entries, undeclared)
