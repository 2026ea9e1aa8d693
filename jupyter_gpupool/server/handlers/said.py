"""A sentence of the pool, as front ends get it."""

from __future__ import annotations

from typing import Any

from gpupool.sentences import Sentence


def said_view(said: Sentence) -> dict[str, Any]:
    """``code`` and ``params`` for the page, which has the catalogue; the words for the widget.

    Each widget of a notebook carries its whole program, so the catalogue is no part of it.
    """
    return {**said.as_json(), "text": str(said), "first": str(said.first())}
