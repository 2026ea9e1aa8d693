"""The directory of one program that has a GPU share: its session file, which holds the token, and its log."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from gpupool.client.endpoint import HOME_VARIABLE, home, private_directory
from gpupool.client.session.own_directory import own_directory


@contextlib.contextmanager
def run_directory(program: int) -> Iterator[Path]:
    """A new one, removed at the end.

    Args:
        program: the process whose end is the directory's.

    Raises:
        DirectoryUnusableError: there is no private place for it.
    """
    # Below the default home they are this program's own, as that is. A volume may come back open to its group.
    own = not os.environ.get(HOME_VARIABLE)
    clients = private_directory(private_directory(home() / "run", tighten=own) / "clients", tighten=own)
    with own_directory(clients, program) as directory:
        yield directory
