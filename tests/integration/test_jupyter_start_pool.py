"""**Start a pool here**, the server's side: where it is offered, and what is answered. The browser tests start a real one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gpupool.embedded import join as joining
from gpupool.embedded.options import EmbeddedOptions

from tests.support.jupyter import jupyter_in_process


def here(folder: Path) -> str:
    """The address that a server without any setting has: the socket in the home of `jupyter_in_process`."""
    return f"unix:{folder}/gpupool/pool.sock"


async def test_it_is_not_offered_where_a_pool_is_configured(tmp_path: Path) -> None:
    async with jupyter_in_process(tmp_path, endpoint="unix:/nowhere") as server:
        _, pool = await server.json("GET", "gpupool/api/pool")
        assert (pool["ok"], pool["startable"]) == (False, "no")
        code, refusal = await server.json("POST", "gpupool/api/pool/start")
        assert (code, refusal["reason"]) == (409, "not-startable")


async def test_it_is_not_offered_where_the_administrator_does_not_want_it(tmp_path: Path) -> None:
    async with jupyter_in_process(tmp_path, endpoint=here(tmp_path), start_pool_allowed=False) as server:
        _, pool = await server.json("GET", "gpupool/api/pool")
        assert pool["startable"] == "no"
        code, _ = await server.json("POST", "gpupool/api/pool/start")
        assert code == 409


async def test_a_pool_that_answers_leaves_nothing_to_start(tmp_path: Path) -> None:
    async with jupyter_in_process(tmp_path) as server:
        _, pool = await server.json("GET", "gpupool/api/pool")
        assert (pool["ok"], pool["startable"]) == (True, "no")


async def test_under_a_hub_it_is_off_unless_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "x")
    async with jupyter_in_process(tmp_path, endpoint=here(tmp_path)) as server:
        _, pool = await server.json("GET", "gpupool/api/pool")
        assert pool["startable"] == "no"


async def test_one_that_cannot_be_started_says_why_and_is_offered_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Path, EmbeddedOptions]] = []

    def join(home: Path, options: EmbeddedOptions) -> None:
        asked.append((home, options))
        raise joining.EmbeddedError("the node ended while starting.")

    monkeypatch.setattr(joining, "join", join)
    async with jupyter_in_process(tmp_path, endpoint=here(tmp_path)) as server:
        _, pool = await server.json("GET", "gpupool/api/pool")
        assert (pool["ok"], pool["startable"]) == (False, "lends")
        code, refusal = await server.json("POST", "gpupool/api/pool/start")
        assert (code, refusal["message"]) == (409, "the node ended while starting.")
        assert asked == [(tmp_path / "gpupool", EmbeddedOptions())]
        _, pool = await server.json("GET", "gpupool/api/pool")
        assert pool["startable"] == "lends"


async def test_who_is_not_logged_in_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "join", lambda *_: os.abort())
    async with jupyter_in_process(tmp_path, endpoint=here(tmp_path)) as server:
        answer = await server.fetch("POST", "gpupool/api/pool/start", headers={})
        assert answer.code == 403
