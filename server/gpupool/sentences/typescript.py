"""The reasons of an end for the page: ``python -m gpupool.sentences.typescript FILE``.

Runs before anything of the front end is compiled or tested, with Python's standard library alone. The file is never
committed, and is written only where something changed, so that nothing is built again for nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gpupool.generated import write_changed
from gpupool.sentences.reasons import REASONS

_HEAD = "// Made from server/gpupool/sentences/reasons.py by `jlpm generate`: change it there, not here."


def typescript(reasons: Sequence[str] = REASONS) -> str:
    """The text of the module."""
    lines = [
        _HEAD,
        "",
        "/** Why a lease or a session ended. */",
        f"export type Reason = {' | '.join(map(repr, reasons))};",
        "",
        "/** All of them; any other reason is that of a refused request. */",
        f"export const REASONS: ReadonlySet<string> = new Set<Reason>({list(reasons)});",
    ]
    return "\n".join(lines) + "\n"


def write(path: Path, reasons: Sequence[str] = REASONS) -> bool:
    """Whether the file had to be written."""
    return write_changed(path, typescript(reasons))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
