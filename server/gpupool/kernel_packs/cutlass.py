"""CUTLASS, from which PyTorch's attention, its 2:4 sparse and its nested products are made.

A release's archive and a checkout with submodules bring it. Otherwise it is the package ``nvidia-cutlass`` that counts, in
the environment of the program or in ours. The version should be that of the release; as with all other kernels, one whose
parameters differ from the machine code's is left out.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

#: Below PyTorch's sources.
SUBMODULE: Final = "third_party/cutlass"
#: Below CUTLASS's sources.
_HEADERS: Final = ("include", "tools/util/include")
#: Why a file that needs it can't be compiled.
MISSING: Final = (
    "it is made from CUTLASS, which isn't there: pip install nvidia-cutlass==3.5.1, or take the sources from the "
    "release's archive, which brings it"
)
#: Such files include its headers, or use its names by way of PyTorch's headers. Those of attention show neither.
_SIGN: Final = re.compile(r"""#include *[<"](?:cutlass|cute)/|\b(?:cutlass|cute)::""")
_ATTENTION: Final = (("mem_eff_attention", "kernels"), ("flash_attn", "kernels"))
_QUESTION: Final = (
    "import importlib.util; found = importlib.util.find_spec('cutlass_library'); "
    "print(found.submodule_search_locations[0] if found else '')"
)


def folders(source: Path, python: Path) -> list[Path]:
    """The folders of its headers; none if there is no CUTLASS.

    Args:
        source: PyTorch's sources.
        python: an interpreter that may have the package.
    """
    places = [source / SUBMODULE, *(_package(each) for each in (python, Path(sys.executable)))]
    for place in places:
        if place is not None and (place / _HEADERS[0] / "cutlass" / "cutlass.h").is_file():
            return [place / name for name in _HEADERS if (place / name).is_dir()]
    return []


def version_of(headers: Sequence[Path]) -> str:
    """Its own version of itself, as text that changes with it; empty if there is none."""
    return next(
        (
            path.read_text()
            for path in (folder / "cutlass" / "version.h" for folder in headers)
            if path.is_file()
        ),
        "",
    )


def needs(path: Path) -> bool:
    """Whether a file with kernels is made from CUTLASS."""
    return path.parts[-3:-1] in _ATTENTION or _SIGN.search(path.read_text()) is not None


def is_part(inside: str) -> bool:
    """Whether this file of PyTorch's archive is one of CUTLASS's headers."""
    return inside.startswith(tuple(f"{SUBMODULE}/{name}/" for name in _HEADERS))


def _package(python: Path) -> Path | None:
    try:
        ended = subprocess.run([python, "-I", "-c", _QUESTION], capture_output=True, check=False, text=True)
    except OSError:
        return None
    folder = ended.stdout.strip()
    return Path(folder) / "source" if ended.returncode == 0 and folder else None
