"""What a server knows of who the pool takes it for."""

from __future__ import annotations

import asyncio

import pytest
from gpupool.client.errors import PoolRefusedError
from gpupool.client.types import Caller

from jupyter_gpupool.server.pool import identity
from jupyter_gpupool.server.pool.identity import PoolCaller
from tests.support.memory_pool import MemoryPool

ADMIN = Caller("root", "admin")


@pytest.fixture
def pool() -> MemoryPool:
    return MemoryPool(caller=ADMIN)


def asked(pool: MemoryPool) -> int:
    return sum(name == "whoami" for name, _ in pool.calls)


async def test_nobody_is_an_admin_before_the_pool_has_said_so(pool: MemoryPool) -> None:
    caller = PoolCaller()
    assert not caller.is_admin("root")
    assert await caller.learn(pool) == ADMIN
    assert caller.is_admin("root")


async def test_it_is_asked_once_a_minute(pool: MemoryPool, monkeypatch: pytest.MonkeyPatch) -> None:
    caller = PoolCaller()
    await asyncio.gather(*(caller.learn(pool) for _ in range(10)))
    assert asked(pool) == 1
    monkeypatch.setattr(identity, "KNOWN_SECONDS", 0.0)
    pool.caller = Caller("root", "user")
    caller.learn_soon(pool)
    caller.learn_soon(pool)
    await asyncio.sleep(0.05)
    assert not caller.is_admin("root")
    assert asked(pool) == 2
    await caller.stop()


async def test_a_pool_that_is_away_leaves_things_as_they_are(
    pool: MemoryPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = PoolCaller()
    await caller.learn(pool)
    monkeypatch.setattr(identity, "KNOWN_SECONDS", 0.0)
    pool.down = True
    assert await caller.learn(pool) is None
    assert caller.is_admin("root")


async def test_who_is_not_let_in_any_more_is_no_admin_any_more(
    pool: MemoryPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = PoolCaller()
    await caller.learn(pool)

    async def refused() -> Caller:
        raise PoolRefusedError("forbidden", "the token has been revoked")

    monkeypatch.setattr(identity, "KNOWN_SECONDS", 0.0)
    monkeypatch.setattr(pool, "whoami", refused)
    assert await caller.learn(pool) is None
    assert not caller.is_admin("root")


async def test_an_administrators_token_that_asks_for_somebody_else_makes_nobody_one(pool: MemoryPool) -> None:
    caller = PoolCaller()
    await caller.learn(pool)
    assert not caller.is_admin("ann")
    assert not caller.is_admin("")


async def test_a_pool_that_hangs_is_waited_for_once_however_many_ask(
    pool: MemoryPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(identity, "AGAIN_SECONDS", 60.0)
    questions = []

    async def never() -> Caller:
        questions.append(1)
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(pool, "whoami", never)
    caller = PoolCaller()
    assert await asyncio.gather(*(caller.learn(pool) for _ in range(5))) == [None] * 5
    assert len(questions) == 1
