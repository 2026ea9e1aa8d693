"""What a line that cannot be read was probably meant to say: ``0.2`` for ``0,2``, ``2GiB`` for ``2 GiB``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Final

_COMMA: Final = re.compile(r"(\d*),(\d+)(%|[mg]i?b?)?", re.IGNORECASE)
_WITH_O: Final = re.compile(r"[oO0]?[.,][oO\d]+%?")
_PERCENT: Final = re.compile(r"\d{1,3}")
_DECIMAL_UNIT: Final = re.compile(r"(\d+(?:\.\d+)?)([mg])b?", re.IGNORECASE)
_NUMBER: Final = re.compile(r"\d+(?:[.,]\d+)?")
_UNIT: Final = re.compile(r"%|[mg]i?b?", re.IGNORECASE)
#: How alike a word must be to what it stands for.
_ALIKE: Final = 0.6


def command_meant(word: str, commands: Iterable[str]) -> str | None:
    """The command that a word is a misspelling of."""
    found = difflib.get_close_matches(word, list(commands), n=1, cutoff=_ALIKE)
    return found[0] if found else None


def words_meant(words: Sequence[str], flags: Iterable[str]) -> list[str]:
    """The words with what is probably wrong put right; the same words where nothing is."""
    known = list(flags)
    joined: list[str] = []
    for word in words:
        if joined and _UNIT.fullmatch(word) and _NUMBER.fullmatch(joined[-1]):
            joined[-1] += word
        else:
            joined.append(word)
    meant: list[str] = []
    for word in joined:
        after_flag = bool(meant) and meant[-1].startswith("-")
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            meant.append((command_meant(name, known) or name) + equals + value)
        else:
            meant.append(word if after_flag else _share_meant(word))
    return meant


def _share_meant(word: str) -> str:
    if _WITH_O.fullmatch(word):
        word = word.replace("o", "0").replace("O", "0")
    if match := _COMMA.fullmatch(word):
        word = f"{match[1] or '0'}.{match[2]}{match[3] or ''}"
    if _PERCENT.fullmatch(word) and 1 < int(word) <= 100:
        return f"{word}%"
    if match := _DECIMAL_UNIT.fullmatch(word):
        # A GPU's memory is counted in powers of two, and what was meant in others is no more than that.
        mib = float(match[1]) * (1e9 if match[2].lower() == "g" else 1e6) / 2**20
        return f"{int(mib * 2 / 1024) / 2:g}GiB" if mib >= 1024 else f"{int(mib)}MiB"
    return word
