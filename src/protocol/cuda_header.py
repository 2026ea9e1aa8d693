"""What cuda.h declares: exported names, prototypes, error codes, and the versions of cuGetProcAddress.

The header is run through the C preprocessor with `__CUDA_API_VERSION_INTERNAL`, which makes it declare every symbol that
libcuda.so.1 exports (old `_v1` forms, `_ptds`, `_ptsz`). `cudaTypedefs.h` lists `PFN_<base>_v<version>[_ptds|_ptsz]`;
sorted by version, a base name's typedefs and its exports correspond one to one, which gives the table of cuGetProcAddress.
"""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

_PROTOTYPE = re.compile(r"\bCUresult\s+(cu[A-Za-z0-9_]+)\s*\(([^;{}]*)\)\s*;")
_TYPEDEF = re.compile(r"\bPFN_(cu[A-Za-z0-9_]+?)_v(\d+)(_ptds|_ptsz)?\s*\)")
_STRUCT = re.compile(r"typedef\s+(?:struct|union)\s+(\w+)?\s*\{")
_ALIAS = re.compile(r"typedef\s+(?:(?:struct|union|enum)\s+)?(\w+)\s+(\w+)\s*;")
_OPAQUE = re.compile(r"typedef\s+struct\s+\w+\s*\*\s*(\w+)\s*;")
_CALLBACK = re.compile(r"typedef\s+\w+\s*\(\s*(?:CUDA_CB\s+)?\*\s*(\w+)\s*\)")
_EXPORT = re.compile(r"(cu.*?)(?:_v(\d+))?(_ptds|_ptsz)?")


class HeaderError(ValueError):
    """The headers do not have the shape this parser relies on."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a prototype; `type` has single spaces and its stars at the end, e.g. `const void *`."""

    type: str
    name: str

    @property
    def pointee(self) -> str:
        """The type it points to, without `const`. Raises HeaderError for a value."""
        if not self.type.endswith("*"):
            raise HeaderError(f"{self.name} is no pointer: {self.type}")
        return self.type[:-1].strip().removeprefix("const ").strip()


@dataclass(frozen=True)
class Prototype:
    """An exported function; all return CUresult."""

    name: str
    parameters: tuple[Parameter, ...]

    @property
    def declaration(self) -> str:
        """C parameter list, e.g. `(CUstream hStream, unsigned int Flags)`."""
        return "(" + (", ".join(f"{p.type} {p.name}" for p in self.parameters) or "void") + ")"


@dataclass(frozen=True, order=True)
class ProcAddress:
    """cuGetProcAddress(base, version >= `version`, flags matching `suffix`) yields the symbol `export`."""

    base: str
    suffix: str  # "", "_ptds" or "_ptsz"
    version: int  # 1000 * major + 10 * minor
    export: str


@dataclass(frozen=True)
class CudaHeader:
    """A parsed pair of cuda.h and cudaTypedefs.h."""

    version: int  # CUDA_VERSION, 1000 * major + 10 * minor
    functions: dict[str, Prototype]
    errors: dict[str, int]  # CUresult enumerators
    proc_addresses: tuple[ProcAddress, ...]
    structs: dict[str, str] = field(
        default_factory=dict
    )  # names of structs and unions -> what is in their braces
    handles: frozenset[str] = frozenset()  # typedefs that are pointers: to opaque structs, to functions

    @cached_property
    def exports(self) -> frozenset[str]:
        """Every symbol that libcuda.so.1 exports."""
        return frozenset(self.functions)


def split_parameters(text: str) -> tuple[Parameter, ...]:
    """Parse `CUdevice dev, const void *p` (also `(void)`). Raises HeaderError on what is not a plain declarator."""
    text = " ".join(text.split())
    if text in ("", "void"):
        return ()
    parameters = []
    for piece in text.split(","):
        match = re.fullmatch(r"(.+?)\s*(\**)\s*([A-Za-z_]\w*)\s*(\[\d*\])?", piece.strip())
        if match is None or "(" in piece:
            raise HeaderError(f"cannot read the parameter {piece!r}")
        base, stars, name, array = match.groups()
        stars += "*" if array else ""
        base = re.sub(r"\s*(\*+)\s*", r" \1", base).strip()
        parameters.append(Parameter(f"{base} {stars}".strip() if stars else base, name))
    return tuple(parameters)


def parse_errors(text: str) -> dict[str, int]:
    """The enumerators of CUresult in preprocessed text."""
    match = re.search(r"typedef enum cudaError_enum\s*\{(.*?)\}\s*CUresult\s*;", text, re.DOTALL)
    if match is None:
        raise HeaderError("enum CUresult not found")
    pairs = re.findall(r"\b(CUDA_\w+)\s*=\s*(\d+)", match.group(1))
    return {name: int(value) for name, value in pairs}


def parse_structs(text: str) -> dict[str, str]:
    """Structs and unions of preprocessed text, by every name that a typedef gives them."""
    found: dict[str, str] = {}
    for match in _STRUCT.finditer(text):
        depth, at = 1, match.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        body = text[match.end() : at - 1]
        name = re.match(r"\s*(\w+)\s*;", text[at:])
        if name is not None:
            found[name.group(1)] = body
        if match.group(1):
            found[match.group(1)] = body
    for _ in range(4):  # typedefs of typedefs
        found |= {new: found[old] for old, new in _ALIAS.findall(text) if old in found}
    return found


def map_proc_addresses(exports: frozenset[str], typedefs: str) -> tuple[ProcAddress, ...]:
    """Pair typedef versions with export names. Raises HeaderError if the two lists differ anywhere."""
    versions: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for base, version, suffix in _TYPEDEF.findall(typedefs):
        versions[base, suffix].add(int(version))
    names: defaultdict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for export in exports:
        match = _EXPORT.fullmatch(export)
        if match is None:
            raise HeaderError(f"odd export name {export}")
        names[match[1], match[3] or ""].append((int(match[2] or 1), export))
    table = []
    for key in sorted(names.keys() | versions.keys()):
        if len(names[key]) != len(versions[key]):
            raise HeaderError(
                f"{key[0]}{key[1]}: {len(names[key])} exports but {len(versions[key])} typedefs"
            )
        for (_, export), version in zip(sorted(names[key]), sorted(versions[key]), strict=True):
            table.append(ProcAddress(key[0], key[1], version, export))
    return tuple(table)


def profiler_functions(typedefs: str) -> dict[str, Prototype]:
    """The profiler's three exports, from their typedefs: the header wheel leaves cudaProfiler.h out.

    Its one enumeration, CUoutput_mode, is an `int` in the C ABI and given as such.
    """
    found = re.findall(r"PFN_(cuProfiler[A-Za-z]+)_v\d+\)\(([^;]*)\);", typedefs)
    return {
        name: Prototype(name, split_parameters(args.replace("CUoutput_mode", "int"))) for name, args in found
    }


def _preprocess(path: Path, compiler: str) -> str:
    run = subprocess.run(
        [compiler, "-E", "-P", "-x", "c", "-D__CUDA_API_VERSION_INTERNAL", str(path)],
        check=True,
        capture_output=True,
        text=True,
    )
    return run.stdout


def _prototypes(text: str) -> dict[str, Prototype]:
    functions = {name: Prototype(name, split_parameters(args)) for name, args in _PROTOTYPE.findall(text)}
    if not functions:
        raise HeaderError("no prototypes in cuda.h")
    return functions


def prototypes(include_dir: Path, compiler: str = "cc") -> dict[str, Prototype]:
    """What cuda.h alone declares. Raises HeaderError, or CalledProcessError when the preprocessor fails."""
    return _prototypes(_preprocess(include_dir / "cuda.h", compiler))


def load(include_dir: Path, compiler: str = "cc") -> CudaHeader:
    """Read both headers from `include_dir`. Raises HeaderError, or CalledProcessError when the preprocessor fails."""
    text = _preprocess(include_dir / "cuda.h", compiler)
    functions = _prototypes(text)
    version = re.search(r"#define\s+CUDA_VERSION\s+(\d+)", (include_dir / "cuda.h").read_text())
    if version is None:
        raise HeaderError("CUDA_VERSION not found")
    typedefs = (include_dir / "cudaTypedefs.h").read_text()
    profiler = include_dir / "cudaProfilerTypedefs.h"
    if profiler.is_file():
        typedefs += profiler.read_text()
        functions |= profiler_functions(profiler.read_text())
    table = map_proc_addresses(frozenset(functions), typedefs)
    handles = frozenset(_OPAQUE.findall(text)) | frozenset(_CALLBACK.findall(text))
    return CudaHeader(
        int(version.group(1)), functions, parse_errors(text), table, parse_structs(text), handles
    )
