"""Which commit a result belongs to."""

from __future__ import annotations

import subprocess
from pathlib import Path


def commit(root: Path) -> str:
    """Of the checkout at ``root``, with ``-dirty`` after it where files are changed; of a copy without git, that of its
    bundle; else nothing."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.SubprocessError):
        said = ""
    else:
        said = done.stdout.strip() if done.returncode == 0 else ""
    bundled = root / "build" / "gpu-check-bundle" / "commit"
    if not said and bundled.exists():
        return bundled.read_text().strip()
    return said
