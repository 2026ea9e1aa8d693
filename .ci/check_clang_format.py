"""Checks (or with --fix rewrites) the format of all C and C++ sources."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    sources = sorted(
        str(path) for pattern in ("*.cpp", "*.h", "*.c") for path in (ROOT / "src").rglob(pattern)
    )
    mode = ["-i"] if "--fix" in sys.argv[1:] else ["--dry-run", "--Werror"]
    tool = Path(sys.executable).parent / "clang-format"
    return subprocess.run([str(tool), "--style=file", *mode, *sources], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
