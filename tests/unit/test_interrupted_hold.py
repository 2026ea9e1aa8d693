"""An interrupt of the wait for a share that is to be held, which comes after the server has granted it."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

import pytest
from gpupool.client.keeper import GivenUp
from gpupool.client.session_file import SessionRecord
from gpupool.request.gpu_request import GpuRequest
from gpupool.shares import Share

from jupyter_gpupool.kernel import device
from jupyter_gpupool.kernel.errors import GpuWaitInterrupted
from jupyter_gpupool.kernel.scope import Scopes


class Server:
    """Answers a kernel whose user presses Interrupt in a wait.

    Args:
        held: before the request.
        grants: the request, right before the interrupt; else that is still in the queue.
        meanwhile: who else has got a share by then: ``sidebar``, ``auto``, or ``magic`` for code that runs.
    """

    def __init__(self, *, held: bool = False, grants: bool = True, meanwhile: str = "") -> None:
        self.held = held
        self.by = meanwhile or "attach"
        self._meanwhile = bool(meanwhile)
        self.calls: list[str] = []
        self._grants = grants

    def stream(
        self, path: str, body: Mapping[str, Any], patience: float, given_up: GivenUp | None = None
    ) -> Generator[dict[str, Any]]:
        self.held = self.held or self._meanwhile or (self._grants and bool(body.get("hold")))
        yield {"event": "waiting"}
        raise KeyboardInterrupt

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, seconds: float = 0.0
    ) -> dict[str, Any]:
        self.calls.append(path)
        if path == "self/detach":
            self.held = False
        by = self.by if self.held else None
        return {"state": "attached" if self.held else "none", "held": self.held, "by": by}


def interrupted(
    monkeypatch: pytest.MonkeyPatch, server: Server, scope: str | None, *, hold: bool, before: str = "none"
) -> None:
    state = "attached" if server.held else before
    monkeypatch.setattr(device, "session", lambda: SessionRecord(state=state))
    with pytest.raises(GpuWaitInterrupted):
        Scopes(lambda: server).attach(GpuRequest(Share(200), hold=hold), scope)


@pytest.mark.parametrize("scope", [None, "a"])
def test_a_hold_that_was_granted_meanwhile_goes_back(
    monkeypatch: pytest.MonkeyPatch, scope: str | None
) -> None:
    server = Server()
    interrupted(monkeypatch, server, scope, hold=True)
    assert not server.held
    assert ("self/release" in server.calls) is (scope is not None)


def test_a_hold_from_before_the_request_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(held=True)
    interrupted(monkeypatch, server, "a", hold=True)
    assert server.held


@pytest.mark.parametrize(("hold", "grants"), [(False, True), (True, False)])
def test_nothing_is_detached_where_nothing_is_held(
    monkeypatch: pytest.MonkeyPatch, hold: bool, grants: bool
) -> None:
    server = Server(grants=grants)
    interrupted(monkeypatch, server, "a", hold=hold)
    assert "self/detach" not in server.calls, "it would end a request of the sidebar"


@pytest.mark.parametrize("meanwhile", ["sidebar", "auto", "magic"])
def test_a_share_that_somebody_else_has_got_meanwhile_stays(
    monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    server = Server(grants=False, meanwhile=meanwhile)
    interrupted(monkeypatch, server, "a", hold=True)
    assert server.held
    assert "self/detach" not in server.calls


def test_a_hold_that_was_asked_for_before_the_request_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    interrupted(monkeypatch, server, "a", hold=True, before="queued")
    assert server.held
