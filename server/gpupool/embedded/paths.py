"""Files of an embedded pool in its home."""

from __future__ import annotations

from pathlib import Path
from typing import Final

#: So often a keeper touches its lock: machines that see the home see by this that it lives.
SIGN_OF_LIFE_SECONDS: Final = 15.0


def lifeline_socket(home: Path) -> Path:
    """Where its keeper listens. The name is as short as the pool's: paths of sockets end at 107 bytes."""
    return home / "here.sock"


def keeper_lock(home: Path) -> Path:
    """Held by the keeper as long as anything runs that it started. It names the keeper's machine: homes may be shared."""
    return home / "here.lock"


def start_lock(home: Path) -> Path:
    """Held while somebody looks for a keeper, and starts one."""
    return home / "here.start.lock"


def pool_socket(home: Path) -> Path:
    """Where the pool listens."""
    return home / "pool.sock"


def port(home: Path) -> Path:
    """The port of a pool that borrows. Jobs of an earlier pool dial it."""
    return home / "providers" / "port"


def logs(home: Path) -> Path:
    """The folder of logs."""
    return home / "logs"
