"""Installs the packages of a lock file by two pips side by side: one alone uses one processor, and nothing else can run.

Each has a half of the alphabet, so that packages that share a folder (`nvidia`, `jupyter…`) are not written at the same time.
The file names all packages with their versions, so nothing is to be resolved.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main() -> int:
    packages = [line for line in Path(sys.argv[1]).read_text().splitlines() if line and line[0] != "#"]
    halves = [
        [name for name in packages if (name[0].lower() < "n") == is_first] for is_first in (True, False)
    ]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps"]
    running = [subprocess.Popen([*pip, *half]) for half in halves if half]
    ends = [process.wait() for process in running]  # both, whatever becomes of the first
    return int(any(ends))


if __name__ == "__main__":
    sys.exit(main())
