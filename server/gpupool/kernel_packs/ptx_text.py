"""PTX text taken apart: directives, variables, functions and kernels of one module."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final


class NotPtxError(ValueError):
    """The text is no PTX that a compiler wrote."""


class Kind(Enum):
    """What a piece at module scope is."""

    HEADER = "header"
    KERNEL = "kernel"
    FUNCTION = "function"
    VARIABLE = "variable"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Piece:
    """One declaration with its text; ``name`` is empty for the header and what has none."""

    kind: Kind
    name: str
    text: str


# Comments and strings are passed over; braces are counted.
_TOKEN: Final = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\]|\\.)*"|[{};]', re.DOTALL)
_IN_BODY: Final = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\]|\\.)*"|[{}]', re.DOTALL)
_HEADER: Final = re.compile(
    r"(?:\s|//[^\n]*|\.version\s+[\d.]+|\.target\s+[^\n]+|\.address_size\s+\d+)*", re.DOTALL
)
_COMMENTS: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_KERNEL: Final = re.compile(r"\.entry\s+([\w$]+)")
_FUNCTION: Final = re.compile(r"\.func\s+(?:\([^)]*\)\s*)?([\w$]+)")
_VARIABLE: Final = re.compile(
    r"\.(?:global|const|shared)\b[^=;{]*?([\w$]+)\s*(?:\[[^\]]*\]\s*)*(?:=|;)", re.DOTALL
)
_PARAMETER: Final = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.([a-z]+)(\d+)\s+[^,\[]*(?:\[(\d+)\])?", re.DOTALL
)
_PTR: Final = re.compile(r"\.ptr(?:\s*\.(?:global|const|shared|local|param))?(?:\s*\.align\s+\d+)?")


def pieces(text: str) -> Iterator[Piece]:
    """The pieces of a module in their order; the first is its header.

    Raises:
        NotPtxError: the text is cut short or does not begin like PTX.
    """
    text = text.rstrip("\0")
    header = _HEADER.match(text)
    if header is None or ".version" not in header[0]:
        raise NotPtxError("it does not begin with .version")
    yield Piece(Kind.HEADER, "", header[0])
    at = header.end()
    while text[at:].strip() if len(text) - at < 64 else True:
        end = _end_of_piece(text, at)
        yield _piece(text[at:end])
        at = end


def parameters(kernel: Piece) -> list[tuple[int, int]]:
    """Offset and size of each parameter in bytes, as CUDA lays them out: each at a multiple of its alignment."""
    layout = []
    at = 0
    for match in _PARAMETER.finditer(_PTR.sub("", _head(kernel.text))):
        align, kind, bits, count = match.groups()
        size = 1 if kind == "pred" else int(bits) // 8
        alignment = int(align or size)
        at = (at + alignment - 1) // alignment * alignment
        length = size * int(count or 1)
        layout.append((at, length))
        at += length
    return layout


def _end_of_piece(text: str, begin: int) -> int:
    depth = 0
    is_code = False
    at = begin
    while True:
        match = (_IN_BODY if depth else _TOKEN).search(text, at)
        if match is None:
            raise NotPtxError("it is cut short")
        at = match.end()
        mark = match[0]
        if mark == "{":
            if depth == 0:
                head = text[begin : match.start()]
                is_code = ".entry" in head or ".func" in head
            depth += 1
        elif mark == "}":
            depth -= 1
            if depth < 0:
                raise NotPtxError("a brace too many is closed")
            if depth == 0 and is_code:
                return at
        elif mark == ";" and depth == 0:
            return at


def _piece(text: str) -> Piece:
    head = _head(text)
    for kind, pattern in ((Kind.KERNEL, _KERNEL), (Kind.FUNCTION, _FUNCTION)):
        if match := pattern.search(head):
            return Piece(kind, match[1], text)
    if match := _VARIABLE.search(head if head.endswith(";") or "=" in head else head + ";"):
        return Piece(Kind.VARIABLE, match[1], text)
    return Piece(Kind.OTHER, "", text)


def _head(text: str) -> str:
    """The text before its first brace, without comments."""
    brace = next((match.start() for match in _IN_BODY.finditer(text) if match[0] == "{"), len(text))
    return _COMMENTS.sub("", text[:brace])
