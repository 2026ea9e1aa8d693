"""Why a request waits, as front ends show it: the pool's explanation, its advice as requests that can be made."""

from __future__ import annotations

from gpupool.client import types
from gpupool.request.forms import body_of

from jupyter_gpupool.server.handlers.said import said_view
from jupyter_gpupool.server.rest.explanations import Explanation, Help


def explanation_view(explanation: types.Explanation | None) -> Explanation | None:
    if explanation is None:
        return None
    return {
        "reason": explanation.reason,
        "facts": dict(explanation.facts),
        "helps": [_help_view(item) for item in explanation.helps],
        "project": explanation.project,
        "place": explanation.place,
        "eta_seconds": explanation.eta_seconds,
        "said": said_view(explanation.said),
    }


def _help_view(item: types.Help) -> Help:
    """``request``: the attach request that would be granted now; None: it is not a matter of asking otherwise."""
    asked = None if item.request is None else body_of(item.request, short=True)
    return {"action": item.action, "said": said_view(item.said), "request": asked}
