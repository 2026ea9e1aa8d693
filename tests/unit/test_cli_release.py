"""`gpupool lease release` and `session close` with several, of which the pool refuses one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from gpupool.cli import lease, session
from gpupool.cli.common import exits
from gpupool.cli.main import app
from gpupool.client.errors import PoolRefusedError
from typer.testing import CliRunner


class Pool:
    """Of three leases, and three sessions, one is another user's."""

    def __init__(self) -> None:
        self.released: list[str] = []
        self.closed: list[str] = []

    async def leases(self, ids: Sequence[str]) -> list[Any]:
        return []

    async def sessions(self) -> list[Any]:
        return []

    async def release(self, name: str, *, close_session: bool) -> None:
        if name == "l2":
            raise PoolRefusedError("forbidden", "this lease is another user's")
        self.released.append(name)

    async def close_session(self, name: str, reason: str) -> None:
        if name == "s2a0b1c2d3e4":
            raise PoolRefusedError("forbidden", "this session is another user's")
        self.closed.append(name)


class PoolOfSessions(Pool):
    async def sessions(self) -> list[Any]:
        return [
            SimpleNamespace(id=name, state="active")
            for name in ("s1a0b1c2d3e4", "s2a0b1c2d3e4", "s3a0b1c2d3e4")
        ]


async def _ever_leased(*_: object) -> bool:
    return True


def test_the_others_are_released_and_the_refused_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool()

    @asynccontextmanager
    async def client(*_: object) -> AsyncIterator[Pool]:
        yield pool

    monkeypatch.setattr(lease, "client", client)
    monkeypatch.setattr(lease.Reports, "ever_leased", _ever_leased)
    done = CliRunner().invoke(app, ["lease", "release", "l1", "l2", "l3", "--json"])
    assert pool.released == ["l1", "l3"]
    assert json.loads(done.stdout) == {
        "released": ["l1", "l3"], "unknown": [], "refused": {"l2": "this lease is another user's"},
    }  # fmt: skip
    assert "l2: this lease is another user's" in done.stderr
    assert done.exit_code == exits.REFUSED


def test_the_others_are_closed_and_the_refused_session_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = PoolOfSessions()

    @asynccontextmanager
    async def client(*_: object) -> AsyncIterator[Pool]:
        yield pool

    monkeypatch.setattr(session, "client", client)
    done = CliRunner().invoke(
        app, ["session", "close", "s1a0b1c2d3e4", "s2a0b1c2d3e4", "sxa0b1c2d3e4", "s3a0b1c2d3e4", "--json"]
    )
    assert pool.closed == ["s1a0b1c2d3e4", "s3a0b1c2d3e4"]
    assert json.loads(done.stdout) == {
        "closed": ["s1a0b1c2d3e4", "s3a0b1c2d3e4"],
        "unknown": ["sxa0b1c2d3e4"],
        "refused": {"s2a0b1c2d3e4": "this session is another user's"},
    }
    assert done.exit_code == exits.REFUSED
