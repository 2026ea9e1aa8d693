"""A sentence of the pool, as front ends get it."""

from __future__ import annotations

from gpupool.sentences import Sentence

from jupyter_gpupool.server.rest.sentences import Said


def said_view(said: Sentence) -> Said:
    """``code`` and ``params`` for the page, which has the catalogue; the words for the widget.

    Each widget of a notebook carries its whole program, so the catalogue is no part of it.
    """
    return {
        "code": said.code,
        "params": said.as_json()["params"],
        "text": str(said),
        "first": str(said.first()),
    }
