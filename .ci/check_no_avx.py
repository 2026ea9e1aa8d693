"""check_no_avx.py FOLDER: no program or library in it holds an instruction of AVX.

Instructions of AVX, AVX2 and AVX-512 begin with a v, with the exception of a few on mask registers, and those of
x86-64 before them do not, with the exception of the segment checks `verr` and `verw`, which no compiler writes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_AVX = re.compile(r"\t(v[a-z0-9]+|k(?:mov|or|and|xor|not|test|unpck|shift|add)[a-z]*)\s")


def instructions(path: Path) -> set[str]:
    """The names of AVX instructions in a program or library."""
    command = ["objdump", "--disassemble", "--no-show-raw-insn", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        found = {match[1] for line in running.stdout if (match := _AVX.search(line))}
    if running.returncode != 0:
        raise SystemExit(f"objdump cannot read {path}")
    return found


def main() -> int:
    """The number of files with AVX decides."""
    files = [
        path
        for path in sorted(Path(sys.argv[1]).rglob("*"))
        if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"
    ]
    bad = 0
    for path in files:
        found = sorted(instructions(path))
        bad += bool(found)
        print(f"{path}: {' '.join(found[:8]) or 'no AVX'}")
    if not files:
        raise SystemExit(f"{sys.argv[1]}: no program and no library")
    return int(bad != 0)


if __name__ == "__main__":
    sys.exit(main())
