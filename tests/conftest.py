"""Before anything is imported: the generated messages are those of this `pool.proto`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PROTO = Path(__file__).parents[1] / "server" / "gpupool" / "proto"


def pytest_configure() -> None:
    """A tree that was moved to another commit may hold modules of an older contract."""
    source = _PROTO / "gpupool" / "v1" / "pool.proto"
    made = source.with_name("pool_pb2.py")
    if not made.exists() or made.stat().st_mtime < source.stat().st_mtime:
        subprocess.run([sys.executable, str(_PROTO / "generate.py")], check=True)
