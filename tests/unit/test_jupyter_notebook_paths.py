"""By which notebook a kernel is called."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from jupyter_gpupool.server.handlers.base import GpupoolHandler


class Server:
    """A Jupyter server as far as its handlers ask it for notebooks."""

    def __init__(self) -> None:
        self.extension = SimpleNamespace(named_by={})

    def paths(self, *sessions: dict[str, Any]) -> dict[str, str]:
        handler = SimpleNamespace(
            extension=self.extension, session_manager=SimpleNamespace(list_sessions=lambda: list(sessions))
        )
        return asyncio.run(GpupoolHandler.notebook_paths(cast(Any, handler)))


def paths(*sessions: dict[str, Any]) -> dict[str, str]:
    return Server().paths(*sessions)


def session(kernel: str | None, path: str, kind: str = "notebook", id: str | None = None) -> dict[str, Any]:
    return {
        "id": id or f"session of {path}",
        "kernel": {"id": kernel} if kernel else None,
        "path": path,
        "type": kind,
    }


def test_a_kernel_keeps_the_name_of_its_first_notebook() -> None:
    assert paths(session("k1", "train.ipynb"), session("k2", "b.ipynb"), session("k1", "look.ipynb")) == {
        "k1": "train.ipynb",
        "k2": "b.ipynb",
    }


def test_a_notebook_that_was_opened_before_and_changes_to_the_kernel_does_not_name_it() -> None:
    server = Server()
    assert server.paths(session("k1", "a.ipynb"), session("k2", "b.ipynb")) == {
        "k1": "a.ipynb",
        "k2": "b.ipynb",
    }
    # Sessions are listed as they were opened, whatever kernel they have by now.
    assert server.paths(session("k2", "a.ipynb"), session("k2", "b.ipynb")) == {"k2": "b.ipynb"}


def test_a_kernel_is_called_by_another_notebook_when_its_own_has_left() -> None:
    server = Server()
    server.paths(session("k1", "a.ipynb"), session("k2", "b.ipynb"))
    server.paths(session("k2", "a.ipynb"), session("k2", "b.ipynb"))
    assert server.paths(session("k2", "a.ipynb"), session("k3", "b.ipynb")) == {
        "k2": "a.ipynb",
        "k3": "b.ipynb",
    }


def test_a_notebook_that_is_renamed_still_names_its_kernel() -> None:
    server = Server()
    server.paths(session("k2", "b.ipynb", id="s2"))
    server.paths(session("k2", "a.ipynb", id="s1"), session("k2", "b.ipynb", id="s2"))
    assert server.paths(session("k2", "a.ipynb", id="s1"), session("k2", "new.ipynb", id="s2")) == {
        "k2": "new.ipynb"
    }


def test_only_notebooks_with_a_kernel_count() -> None:
    assert paths(session("k1", "console", "console"), session(None, "a.ipynb"), session("k1", "b.ipynb")) == {
        "k1": "b.ipynb"
    }
