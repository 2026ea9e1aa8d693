"""CUB in one version only: a kernel of another has the same name, and other work for each block than the host's code expects.

Thrust has its version in its names, and CUB comes with it. PyTorch's CUB has none in its own.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Final

from gpupool.kernel_packs.bind import Module
from gpupool.kernel_packs.library import Library

#: As mangled: the namespace, and then the length of the kernel's name.
_KERNEL: Final = re.compile(r"3cub\d")
_VERSION: Final = re.compile(r"THRUST_(\d+)_")
#: What asks a compiler for its version, and the word before its answer.
QUESTION: Final = (
    '#if __has_include(<thrust/version.h>)\n#include <thrust/version.h>\n#endif\n"version" THRUST_VERSION\n'
)
#: A compiler may say between the two which file the number is from.
_ANSWER: Final = re.compile(r'"version"\s+(?:# [^\n]*\n\s*)?(\d+)\s*$', re.MULTILINE)


def version_of(library: Library) -> str | None:
    """The version that a library was made with, as ``200302``; None if none of its names tells."""
    found = Counter(
        version
        for fat_binary in library.fat_binaries
        for name in fat_binary.kernels
        for version in _VERSION.findall(name)
    )
    return found.most_common(1)[0][0] if found else None


def version_said(preprocessed: str) -> str | None:
    """The version in what a compiler made of :data:`QUESTION`; None: it has no CUB."""
    found = _ANSWER.findall(preprocessed)
    return found[-1] if found else None


def without_cub(module: Module) -> Module:
    """A module without CUB's kernels."""
    kernels = {name: piece for name, piece in module.kernels.items() if not _KERNEL.search(name)}
    return replace(module, kernels=kernels)


def shown(version: str) -> str:
    """As people write it: ``2.3.2`` of ``200302``."""
    number = int(version)
    return f"{number // 100_000}.{number // 100 % 1_000}.{number % 100}"
