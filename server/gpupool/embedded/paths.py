"""Files of an embedded pool in its home."""

from __future__ import annotations

from pathlib import Path


def lifeline_socket(home: Path) -> Path:
    """Where its keeper listens. The name is as short as the pool's: paths of sockets end at 107 bytes."""
    return home / "here.sock"


def keeper_lock(home: Path) -> Path:
    """Held by the keeper as long as anything runs that it started."""
    return home / "here.lock"


def start_lock(home: Path) -> Path:
    """Held while somebody looks for a keeper, and starts one."""
    return home / "here.start.lock"


def pool_socket(home: Path) -> Path:
    """Where the pool listens."""
    return home / "pool.sock"


def logs(home: Path) -> Path:
    """The folder of logs."""
    return home / "logs"
