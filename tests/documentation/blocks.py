"""The fenced blocks of the pages that people follow step by step."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.pool_node import ROOT

FOLDERS = ("docs/tutorial", "docs/how-to")


@dataclass(frozen=True, slots=True)
class Block:
    """One block: its page below docs/, the line of its fence, its language and its text."""

    page: str
    line: int
    language: str
    text: str

    @property
    def first_line(self) -> str:
        """The name of a block among those of its page."""
        return self.text.splitlines()[0] if self.text else ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(text: str, page: str) -> list[Block]:
    """The blocks of one page, also those within list items."""
    found: list[Block] = []
    fence = language = ""
    begun = 0
    kept: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"\s*(```+)\s*(\S*)", line)
        if mark and not fence:
            fence, language, begun, kept = mark[1], mark[2], number, []
        elif mark and mark[1] == fence and not mark[2]:
            found.append(Block(page, begun, language, inspect.cleandoc("\n" + "\n".join(kept))))
            fence = ""
        elif fence:
            kept.append(line)
    return found


@cache
def all_blocks() -> tuple[Block, ...]:
    """The blocks of all tutorials and how-to guides, in the order of the pages."""
    return tuple(
        block
        for folder in FOLDERS
        for path in sorted((ROOT / folder).glob("*.md"))
        for block in blocks_of(path.read_text(), path.relative_to(ROOT / "docs").as_posix())
    )


def guides() -> list[Path]:
    """The pages themselves, without tables of contents."""
    return [
        path
        for folder in FOLDERS
        for path in sorted((ROOT / folder).glob("*.md"))
        if path.name not in ("index.md", "examples.md")
    ]


def is_cell(block: Block) -> bool:
    """Whether a block of Python is for a notebook or a program; the others are for files of configuration."""
    return block.language == "python" and not is_configuration(block)


def is_configuration(block: Block) -> bool:
    """Whether every statement of the block sets something of `c`, the object that Jupyter's files configure."""
    statements = [line for line in block.text.splitlines() if line[:1] not in ("", " ", "#", "}", ")")]
    return block.language == "python" and all(re.match(r"c\.\w+", line) for line in statements)
