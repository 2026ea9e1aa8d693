"""One request of a holder at a time: who gives up in the moment in which the turn comes leaves no turn behind."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from gpupool.client.holder import LeaseHolder
from gpupool.client.program.session import ProgramSession

from jupyter_gpupool.server.session.session import KernelSession
from tests.support.memory_pool import MemoryPool


def kernel_session(folder: Path) -> KernelSession:
    pool: Any = MemoryPool()
    return KernelSession(
        "k1",
        pool,
        folder / "session",
        leases=LeaseHolder(pool, on_ended=lambda _: None),
        on_change=lambda _: None,
    )


def program_session(folder: Path) -> ProgramSession:
    pool: Any = MemoryPool()
    return ProgramSession(pool, folder, holder="program", interval=5.0, say=lambda _: None)


@pytest.mark.parametrize("passes", range(5))
@pytest.mark.parametrize("make", [kernel_session, program_session])
async def test_a_request_that_is_cancelled_when_its_turn_comes_is_cancelled(
    make: Any, passes: int, tmp_path: Path
) -> None:
    session = make(tmp_path)

    async def waits() -> None:
        async with session._turn(30.0):
            await asyncio.Event().wait()

    async with session._turn(30.0):
        waiting = asyncio.create_task(waits())
        for _ in range(3):
            await asyncio.sleep(0)
    for _ in range(passes):
        await asyncio.sleep(0)
    waiting.cancel()
    done, _ = await asyncio.wait([waiting], timeout=1.0)
    assert done, "the cancellation got lost"
    async with session._turn(30.0):
        pass
