"""Why a request waits, as front ends show it: the pool's explanation, its advice as requests that can be made."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gpupool.client.types import Explanation, Help
from gpupool.request.forms import body_of

from jupyter_gpupool.server.handlers.said import said_view


def explanation_view(explanation: Explanation | None) -> dict[str, Any] | None:
    if explanation is None:
        return None
    return {
        **asdict(explanation),
        "said": said_view(explanation.said),
        "facts": dict(explanation.facts),
        "helps": [_help_view(item) for item in explanation.helps],
    }


def _help_view(item: Help) -> dict[str, Any]:
    """``ask``: the attach request that would be granted now; None: it is not a matter of asking otherwise."""
    asked = None if item.request is None else body_of(item.request, short=True)
    return {"action": item.action, "sentence": item.sentence, "said": said_view(item.said), "ask": asked}
