"""Names of kernels as they are the same in every build of the same source.

The compiler puts a hash of the file and of the command line into the names of anonymous namespaces, and Thrust the list of
architectures into its own namespace. Everything else of a mangled name follows from the source. So does Thrust's version,
which stays: kernels of another version may do other work for each block than the library's code on the host expects.
"""

from __future__ import annotations

import re
from typing import Final

_TAG: Final = re.compile(r"(\d+)(?=_GLOBAL__N__|_INTERNAL_)")
_TAG_PARTS: Final = re.compile(r"_(GLOBAL__N_|INTERNAL)_[0-9a-f]+_\d+_(.+?)_[0-9a-f]{8}(?:_\d+)?")
#: Version 2.3 writes `THRUST_200302_500_600_NS`, later ones `THRUST_200400_SM_500_600_NS`.
_ARCHITECTURES: Final = re.compile(r"\d+(THRUST_\d+)(?:_SM)?_[0-9_]+_NS")


def normalised(name: str) -> str:
    """The part of a mangled name that does not depend on who compiled it."""
    pieces = []
    at = 0
    for match in _TAG.finditer(name):
        # The end of one tag and the length of the next may both be digits.
        begin = max(match.start(), at)
        tag = _tag_at(name, begin, match.end())
        if tag is None:
            continue
        pieces += [name[at:begin], tag[0]]
        at = tag[1]
    pieces.append(name[at:])
    return _ARCHITECTURES.sub(r"\1_NS", "".join(pieces))


def source_file(name: str) -> str | None:
    """The file that a name with an anonymous namespace comes from, as ``BinaryMulKernel.cu``; None for other names."""
    for match in _TAG.finditer(name):
        tag = _tag_at(name, match.start(), match.end())
        if tag is not None:
            stem = tag[2]
            return stem[:-3] + ".cu" if stem.endswith("_cu") else stem
    return None


def _tag_at(name: str, first: int, begin: int) -> tuple[str, int, str] | None:
    """A tag at ``begin`` without its hashes, where it ends, and its file. The number from ``first`` on is its length."""
    digits = name[first:begin]
    # The digits of something else may stand before the length.
    for skip in range(len(digits)):
        end = begin + int(digits[skip:])
        parts = _TAG_PARTS.fullmatch(name, begin, end) if end <= len(name) else None
        if parts is not None:
            return f"{digits[:skip]}_{parts[1]}_{parts[2]}", end, parts[2]
    return None
