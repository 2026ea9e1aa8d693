"""By which notebook a kernel is called."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from jupyter_gpupool.server.handlers.base import GpupoolHandler


def paths(*sessions: dict[str, Any]) -> dict[str, str]:
    handler = SimpleNamespace(session_manager=SimpleNamespace(list_sessions=lambda: list(sessions)))
    return asyncio.run(GpupoolHandler.notebook_paths(cast(Any, handler)))


def session(kernel: str | None, path: str, kind: str = "notebook") -> dict[str, Any]:
    return {"kernel": {"id": kernel} if kernel else None, "path": path, "type": kind}


def test_a_kernel_keeps_the_name_of_its_first_notebook() -> None:
    assert paths(session("k1", "train.ipynb"), session("k2", "b.ipynb"), session("k1", "look.ipynb")) == {
        "k1": "train.ipynb",
        "k2": "b.ipynb",
    }


def test_only_notebooks_with_a_kernel_count() -> None:
    assert paths(session("k1", "console", "console"), session(None, "a.ipynb"), session("k1", "b.ipynb")) == {
        "k1": "b.ipynb"
    }
