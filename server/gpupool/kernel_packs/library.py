"""What a shared library holds for GPUs, as the tool beside the software GPU reads it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpupool.client.native import native_file
from gpupool.kernel_packs.errors import PackError

TOOL: Final = "softgpu/gpupool-kernel-packs"


@dataclass(frozen=True, slots=True, eq=False)
class FatBinary:
    """The machine code of one source file.

    Attributes:
        digests: SHA-256 of each piece of machine code, in hexadecimal.
        kernels: offset and size in bytes of each parameter, by the kernel's name.
        variables: names of variables in global and constant memory.
    """

    has_ptx: bool
    digests: tuple[str, ...]
    kernels: Mapping[str, tuple[tuple[int, int], ...]]
    variables: frozenset[str]


@dataclass(frozen=True, slots=True)
class Library:
    """A shared library with the fat binaries inside."""

    path: Path
    build_id: str
    fat_binaries: tuple[FatBinary, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """PTX that can be loaded by itself, and the kernels and shared variables that it defines."""

    names: tuple[str, ...]
    ptx: str


def read_library(path: Path) -> Library:
    """Describes a shared library.

    Raises:
        PackError: it cannot be read, or its linker gave it no build id.
    """
    lines = _tool("describe", path).splitlines()
    build_id = json.loads(lines[0])["build_id"]
    if not build_id:
        raise PackError(
            f"{path} has no build id, by which its kernel pack would be found; link it with -Wl,--build-id"
        )
    return Library(path, build_id, tuple(_fat_binary(json.loads(line)) for line in lines[1:]))


def own_texts(path: Path) -> Iterator[str]:
    """The PTX that a shared library holds, one text for each fat binary that has any.

    Raises:
        PackError: the library cannot be read.
    """
    rest = _tool("texts", path).encode()
    while rest:
        size, _, rest = rest.partition(b"\n")
        text, rest = rest[: int(size)], rest[int(size) :]
        yield text.decode()


def write_kernels(path: Path, frames: Iterable[Frame]) -> None:
    """Writes a kernel file, whole or not at all.

    Raises:
        PackError: it cannot be written.
    """
    pieces: list[bytes] = []
    for frame in frames:
        text = frame.ptx.encode()
        pieces += [f"{len(text)} {' '.join(frame.names)}\n".encode(), text]
    _tool("write", path, b"".join(pieces))


def read_kernels(path: Path) -> list[Frame]:
    """What `write_kernels` wrote.

    Raises:
        PackError: it cannot be read, or is damaged.
    """
    rest = _tool("frames", path).encode()
    frames: list[Frame] = []
    while rest:
        head, _, rest = rest.partition(b"\n")
        size, *names = head.decode().split(" ")
        text, rest = rest[: int(size)], rest[int(size) :]
        frames.append(Frame(tuple(names), text.decode()))
    return frames


def problem_of(path: Path) -> str | None:
    """What is wrong with a kernel file; None: every frame can be read."""
    try:
        _tool("verify", path)
    except PackError as error:
        return str(error)
    return None


def _fat_binary(record: Mapping[str, Any]) -> FatBinary:
    kernels: Mapping[str, Sequence[Sequence[int]]] = record["kernels"]
    return FatBinary(
        has_ptx=record["has_ptx"],
        digests=tuple(record["digests"]),
        kernels={name: tuple((at, size) for at, size in layout) for name, layout in kernels.items()},
        variables=frozenset(record["variables"]),
    )


def _tool(verb: str, path: Path, given: bytes = b"") -> str:
    ended = subprocess.run([native_file(TOOL), verb, path], input=given, capture_output=True, check=False)
    if ended.returncode != 0:
        raise PackError(ended.stderr.decode(errors="replace").strip() or f"{path} cannot be read")
    return ended.stdout.decode()
