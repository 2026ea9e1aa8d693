"""Tokens of nodes that providers bring, in files of the pool's home: nodes that see this home need no other set-up."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class Tokens(Protocol):
    """The pool's tokens, for nodes."""

    def is_good(self, token: str, node: str) -> bool:
        """Whether `token` is a live one of `node`."""

    def create(self, node: str) -> str:
        """A new one."""


def token_file(tokens: Tokens, folder: Path, provider: str) -> Path:
    """The file with a live token for the nodes of `provider`, mode 0600; made if there is none.

    Raises:
        OSError: it cannot be written.
    """
    path = folder / provider / "node.token"
    try:
        known = path.read_text().strip()
    except (FileNotFoundError, UnicodeDecodeError):
        known = ""
    if not tokens.is_good(known, provider):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(path, lambda: tokens.create(provider))
    return path


def _write(path: Path, text: Callable[[], str]) -> None:
    # Whole or not at all: an agent may read it now. Made after the file, so that no token is made in vain.
    new = path.with_suffix(".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{text()}\n")
    new.replace(path)
