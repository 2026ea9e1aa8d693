"""Why a request waits, as front ends show it: the pool's explanation, its advice as requests that can be made."""

from __future__ import annotations

from gpupool.client import types
from gpupool.request.forms import body_of

from jupyter_gpupool.server.handlers.personal import Reader, personal
from jupyter_gpupool.server.handlers.said import said_view
from jupyter_gpupool.server.rest.explanations import Explanation, Help


def explanation_view(explanation: types.Explanation | None, reader: Reader) -> Explanation | None:
    if explanation is None:
        return None
    return {
        "reason": explanation.reason,
        "facts": dict(explanation.facts),
        "helps": [_help_view(item, reader) for item in explanation.helps],
        "project": explanation.project,
        "place": explanation.place,
        "eta_seconds": explanation.eta_seconds,
        "said": said_view(personal(explanation.said, reader)),
    }


def reason_text(reason: str, explanation: types.Explanation | None, reader: Reader) -> str:
    """Why a request waits, in the words of its reader; a pool that explains nothing is quoted."""
    return str(personal(explanation.said, reader)) if explanation is not None and explanation.said else reason


def _help_view(item: types.Help, reader: Reader) -> Help:
    """``request``: the attach request that would be granted now; None: it is not a matter of asking otherwise."""
    asked = None if item.request is None else body_of(item.request, short=True)
    return {
        "action": item.action,
        "said": said_view(personal(item.said, reader)),
        "request": asked,
        "kernels": [kernel for kernel, _ in reader.kernels(item.said)] if item.action == "release" else [],
    }
