"""Which source file a fat binary comes from, so that a program that misses it can say what to build."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from gpupool.kernel_packs.library import FatBinary
from gpupool.kernel_packs.names import source_file

_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*")
#: A name that one file and at most three fat binaries have.
_LEAST: Final = 1 / 9
_LENGTH: Final = re.compile(r"\d+(?=[A-Za-z_])")


def find_origins(fat_binaries: Sequence[FatBinary], sources: Mapping[str, Path]) -> dict[FatBinary, str]:
    """The file of each fat binary for which it can be told.

    An anonymous namespace says it. Otherwise it is the file that has most of what the kernels' names mention and few other files
    do.
    """
    files_with: dict[str, list[str]] = {}
    named: dict[str, list[str]] = {}
    for name, path in sources.items():
        named.setdefault(path.name, []).append(name)
        for identifier in set(_IDENTIFIER.findall(_text_of(path))):
            files_with.setdefault(identifier, []).append(name)
    mentioned = {
        each: {part for name in each.kernels for part in _identifiers(name)} for each in fat_binaries
    }
    common = Counter(part for parts in mentioned.values() for part in parts)
    found = {}
    for each, parts in mentioned.items():
        said = next((known for known in map(source_file, each.kernels) if known in named), None)
        # Two folders may have a file of that name.
        able = named[said] if said is not None else list(sources)
        file = able[0] if len(able) == 1 else _most_alike(parts, common, files_with, able)
        if file is not None:
            found[each] = file
    return found


def _most_alike(
    identifiers: Collection[str],
    common: Mapping[str, int],
    files_with: Mapping[str, Sequence[str]],
    able: Collection[str],
) -> str | None:
    score: dict[str, float] = {}
    for identifier in identifiers:
        files = [file for file in files_with.get(identifier, ()) if file in able]
        for file in files:
            # What many files or many fat binaries have says little.
            score[file] = score.get(file, 0) + 1 / (len(files) * common[identifier]) ** 2
    best = sorted(score, key=score.__getitem__, reverse=True)[:2]
    if not best or score[best[0]] < _LEAST or (len(best) > 1 and score[best[0]] < 2 * score[best[1]]):
        return None
    return best[0]


def _identifiers(mangled: str) -> Iterator[str]:
    for match in _LENGTH.finditer(mangled):
        text = mangled[match.end() : match.end() + int(match[0][-4:])]
        if _IDENTIFIER.fullmatch(text):
            yield text


def _text_of(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
