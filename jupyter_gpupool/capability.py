"""The secret of one launch of a kernel, with which it and nobody else asks for its own GPU."""

from __future__ import annotations

import hmac
import secrets


class Capability:
    """256 random bits; never shown in logs, views or on a command line."""

    def __init__(self) -> None:
        self._text = secrets.token_hex(32)

    @property
    def text(self) -> str:
        """For the environment of the kernel process."""
        return self._text

    def __repr__(self) -> str:
        return "Capability(…)"

    def admits(self, presented: str) -> bool:
        """Constant-time check of what was presented."""
        return hmac.compare_digest(self._text.encode(), presented.encode())
