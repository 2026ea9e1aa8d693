"""Whom a server asks for: the user of a setting, of its token as the pool says, of the Hub, or of the system."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpupool.client.errors import PoolUnavailableError
from gpupool.client.os_user import os_user
from gpupool.client.types import Caller, LeaseRequest
from gpupool.sentences import param, say
from gpupool.shares import Share

from jupyter_gpupool.server.handlers.personal import Reader, personal
from jupyter_gpupool.server.pool.connection import PoolConnection
from jupyter_gpupool.server.pool.greeting import greeting
from jupyter_gpupool.server.pool.identity import PoolAccess, PoolUser
from jupyter_gpupool.server.pool.port import Pool
from tests.support.memory_pool import MemoryPool

ASKED = LeaseRequest(Share(200))
TOKEN = PoolAccess(token_file=Path("/home/ann/token"))
ADDRESS = "10.0.0.5:7460"


@pytest.fixture(autouse=True)
def outside_of_a_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JUPYTERHUB_USER", "GPUPOOL_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


def connection(pool: MemoryPool, user: PoolUser) -> PoolConnection:
    async def connect(endpoint: str, access: PoolAccess) -> Pool:
        return pool

    return PoolConnection(ADDRESS, TOKEN, user, connect)


def said_by(pool: MemoryPool, call: str) -> int:
    return sum(name == call for name, _ in pool.calls)


class TestTheUserOfATokenIs:
    async def test_asked_of_the_pool_once_and_every_request_is_in_that_name(self) -> None:
        pool = MemoryPool()
        server = connection(pool, PoolUser("", by_token=True))
        assert server.known_user == ""
        for _ in range(2):
            await server.request(ASKED, wait_seconds=0)
        assert [request.on_behalf_of for request in pool.requests] == ["ann", "ann"]
        assert (server.known_user, await server.user(), server.problem) == ("ann", "ann", "")
        assert said_by(pool, "whoami") == 1

    async def test_asked_again_when_a_pool_that_was_away_answers(self) -> None:
        pool = MemoryPool(down=True)
        server = connection(pool, PoolUser("", by_token=True))
        assert (await greeting(server))[1].startswith(f"GPU pool {ADDRESS}: it does not answer (")
        with pytest.raises(PoolUnavailableError, match=r"c\.GpuPoolExtension\.pool_endpoint"):
            await server.request(ASKED, wait_seconds=0)
        assert (server.known_user, said_by(pool, "request")) == ("", 0)
        pool.down = False
        await server.request(ASKED, wait_seconds=0)
        assert (server.known_user, server.problem) == ("ann", "")
        assert await greeting(server) == (True, f"GPU pool {ADDRESS} as ann: 1 GPU")

    async def test_a_pool_that_has_answered_and_stays_away_is_not_there_any_more(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool = MemoryPool()
        server = connection(pool, PoolUser("ann"))
        assert not server.answers
        await server.devices()
        assert server.answers
        pool.down = True
        with pytest.raises(PoolUnavailableError):
            await server.devices()
        assert server.answers, "it may be started again just now"
        monkeypatch.setattr("jupyter_gpupool.server.pool.connection.GONE_SECONDS", 0.0)
        assert not server.answers
        pool.down = False
        await server.devices()
        assert server.answers

    async def test_nobody_where_the_token_is_a_nodes(self) -> None:
        pool = MemoryPool(caller=Caller("node1", "node"))
        server = connection(pool, PoolUser("", by_token=True))
        assert await server.user() == ""
        for part in ("node1 (role node)", "c.GpuPoolExtension.token_file is '/home/ann/token'"):
            assert part in server.problem

    @pytest.mark.parametrize("hub_user", ["", "bob"])
    async def test_an_administrator_who_asks_under_a_hub_for_its_user(
        self, hub_user: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("JUPYTERHUB_USER", hub_user)
        server = connection(MemoryPool(caller=Caller("root", "admin")), PoolUser("", by_token=True))
        assert await server.user() == (hub_user or "root")

    async def test_who_the_token_says_under_a_hub_as_well(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("JUPYTERHUB_USER", "ann@example.org")
        assert await connection(MemoryPool(), PoolUser("", by_token=True)).user() == "ann"


class TestAUser:
    async def test_of_a_setting_stays(self) -> None:
        pool = MemoryPool()
        server = connection(pool, PoolUser("anne", by_token=True))
        await server.request(ASKED, wait_seconds=0)
        assert (pool.requests[0].on_behalf_of, said_by(pool, "whoami")) == ("anne", 0)
        await server.whoami()
        assert server.known_user == "anne"
        for part in ("'anne'", "c.GpuPoolExtension.user", "ann (role user)"):
            assert part in server.problem

    def test_without_a_token_is_the_hubs_or_the_systems(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert PoolUser("").name == os_user()
        monkeypatch.setenv("JUPYTERHUB_USER", "bob")
        assert PoolUser("").name == "bob"

    def test_who_is_not_known_is_no_other_user_whose_name_is_hidden(self) -> None:
        held = say("holds", user=param.user(""), milli=param.milli(500))
        assert str(personal(held, Reader(""))) == "another user holds 0.50"


@pytest.mark.parametrize(
    ("access", "endpoint", "by_token"),
    [
        (TOKEN, ADDRESS, True),
        (TOKEN, "tls:pool.example.org:7460", True),
        (TOKEN, "unix1:7460", True),
        (PoolAccess(), ADDRESS, False),
        # The pool looks at no token there.
        (TOKEN, "unix:/run/pool.sock", False),
        # The Hub's identity goes before a token.
        (PoolAccess(token_file=TOKEN.token_file, hub_identity=True), ADDRESS, False),
    ],
)
def test_where_a_token_says_who_it_is(access: PoolAccess, endpoint: str, by_token: bool) -> None:
    assert access.is_by_token(endpoint) == by_token


def test_a_token_may_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPOOL_TOKEN_FILE", "/run/secrets/token")
    assert PoolAccess().named_token() == ("$GPUPOOL_TOKEN_FILE", "/run/secrets/token")
    assert PoolAccess().is_by_token(ADDRESS)
    assert not PoolAccess(hub_identity=True).is_by_token(ADDRESS)
