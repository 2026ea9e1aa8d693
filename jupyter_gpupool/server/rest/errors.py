"""What a request is answered that cannot be served."""

from __future__ import annotations

from typing_extensions import TypedDict


class Refusal(TypedDict):
    """Why a request is not served."""

    message: str
    """A sentence for people."""
    reason: str | None
    """An id, such as `bad-share`, `unknown-kernel`, `full` or `pool-down`; of Jupyter's own refusals their title, or null."""
