"""Whether a server leads is asked in a thread of its own: nothing else that the server waits for delays the answer."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from gpupool.ledger.database import Lead
from gpupool.ledger.servers import ServerIdentity
from gpupool.pool.access import hub as hub_module
from gpupool.pool.access.hub import Hub, HubDownError, HubOptions
from gpupool.pool.leading.lead_times import LeadTimes
from gpupool.pool.leading.leadership import Leadership

NO_DATABASE: Any = None


@pytest.fixture
def over() -> Iterator[threading.Event]:
    """Set when the test is over: until then what hangs goes on hanging."""
    event = threading.Event()
    yield event
    event.set()


async def test_a_hub_that_hangs_does_not_take_the_lead_away(
    over: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))

    def hangs(token: str) -> tuple[int, bytes]:
        over.wait(60)
        raise TimeoutError

    hub = Hub(HubOptions("http://127.0.0.1:1/hub/api"), hangs)
    asking = [asyncio.ensure_future(hub.exchange(f"token-{n}")) for n in range(20)]
    await asyncio.sleep(0.05)
    leadership = Leadership(
        NO_DATABASE, ServerIdentity(), LeadTimes(sure=60.0, free=61.0, silent=62.0), alone=True
    )
    leadership._confirmed_at = -math.inf
    monkeypatch.setattr(leadership, "_ask", lambda: Lead.HELD)
    await asyncio.wait_for(leadership.admit(None), 20)
    over.set()
    answers = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(answer, HubDownError) for answer in answers)


async def test_those_who_waited_behind_a_silent_hub_do_not_each_wait_for_it(over: threading.Event) -> None:
    asked: list[str] = []

    def silent(token: str) -> tuple[int, bytes]:
        asked.append(token)
        over.wait(0.05)
        raise TimeoutError

    hub = Hub(HubOptions("http://127.0.0.1:1/hub/api"), silent)
    asking = [hub.exchange(f"token-{n}") for n in range(50)]
    answers = await asyncio.gather(*asking, return_exceptions=True)
    assert len(asked) <= hub_module._AT_ONCE
    assert all(isinstance(answer, Exception) for answer in answers)
