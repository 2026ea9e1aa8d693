"""**Start a pool here**, the server's side: where it is offered, and what is answered. The browser tests start a real one."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from gpupool.embedded import borrowing
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


async def test_one_that_borrows_is_reached_where_the_administrator_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[EmbeddedOptions] = []

    def join(_: Path, options: EmbeddedOptions) -> None:
        asked.append(options)
        raise joining.EmbeddedError("nobody starts anything here.")

    monkeypatch.setattr(joining, "join", join)
    providers = tmp_path / "slurm.toml"
    providers.write_text('[slurm]\nkind = "slurm"\n')
    async with jupyter_in_process(
        tmp_path,
        endpoint=here(tmp_path),
        start_pool_providers=str(providers),
        start_pool_listen="127.0.0.1:7460",
    ) as server:
        _, pool = await server.json("GET", "gpupool/api/pool")
        assert pool["startable"] == "borrows"
        await server.json("POST", "gpupool/api/pool/start")
    assert [(one.providers, one.listen) for one in asked] == [(str(providers), "127.0.0.1:7460")]


async def test_where_it_is_reached_is_named_as_a_setting_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(borrowing.socket, "gethostname", lambda: "localhost")
    providers = tmp_path / "slurm.toml"
    providers.write_text('[slurm]\nkind = "slurm"\n')
    async with jupyter_in_process(
        tmp_path, endpoint=here(tmp_path), start_pool_providers=str(providers)
    ) as server:
        code, refusal = await server.json("POST", "gpupool/api/pool/start")
    assert code == 409
    assert "c.GpuPoolExtension.start_pool_listen" in refusal["message"]


async def test_who_is_not_logged_in_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "join", lambda *_: os.abort())
    async with jupyter_in_process(tmp_path, endpoint=here(tmp_path)) as server:
        answer = await server.fetch("POST", "gpupool/api/pool/start", headers={})
        assert answer.code == 403


async def test_one_that_is_asked_for_twice_at_once_is_held_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keeper whose last holder lets go ends its pool."""
    story: list[str] = []

    class Hold:
        def __init__(self) -> None:
            self.name = f"hold {sum(line.startswith('took') for line in story)}"
            story.append(f"took {self.name}")

        def close(self) -> None:
            story.append(f"let go of {self.name}")

        def leave(self, _: float) -> None:
            story.append(f"left {self.name}")

    monkeypatch.setattr(joining, "join", lambda *_: Hold())
    async with jupyter_in_process(tmp_path, endpoint=here(tmp_path)) as server:
        await asyncio.gather(*(server.json("POST", "gpupool/api/pool/start") for _ in range(2)))
    assert story == ["took hold 0", "took hold 1", "let go of hold 0", "left hold 1"]
