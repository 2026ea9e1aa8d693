"""Tokens of nodes that providers bring, in files of the pool's home: nodes that see this home need no other set-up."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from gpupool.client.session_file import write_private


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
        write_private(path, f"{tokens.create(provider)}\n".encode())
    return path
