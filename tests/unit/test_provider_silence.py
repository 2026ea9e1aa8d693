"""An engine that does not answer in time holds up no other, and is asked no more of for now."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from gpupool.providers.contract import JobReport, ProviderSilentError, State
from gpupool.providers.elasticity import Ask, Scale
from gpupool.providers.grower import Grower

from tests.support.scripted_provider import MemoryBook, ScriptedPool, ScriptedProvider


@dataclass
class Stuck(ScriptedProvider):
    """It says how its jobs are, and then no more. `asked`: to end a job."""

    asked: int = 0
    waited: asyncio.Event = field(default_factory=asyncio.Event)

    async def cancel(self, job: str, state: State) -> None:
        self.asked += 1
        await self.waited.wait()
        raise ProviderSilentError("no answer within 20 s")


async def test_an_engine_that_hangs_at_the_end_of_many_jobs_is_waited_for_once_and_alone() -> None:
    stuck, other, pool = Stuck(), ScriptedProvider(), ScriptedPool()
    scales = {"stuck": Scale(maximum=9, idle=60.0), "other": Scale(maximum=1)}
    grower = Grower(
        MemoryBook(), pool, {"stuck": (stuck, scales["stuck"]), "other": (other, scales["other"])}
    )

    async def look(after: float = 5.0) -> None:
        pool.clock += after
        await grower.step()

    pool.waiting = [Ask(f"u{number}", 1000, None, unlike=frozenset({"other"})) for number in range(5)]
    await look()
    for job in stuck.living():
        pool.connect(stuck.node_of(job))
    pool.waiting = []
    await look()
    await look(70.0)  # all are drained now
    pool.waiting = [Ask("bob", 1000, None, unlike=frozenset({"stuck"}))]
    pool.clock += 5.0
    looking = asyncio.ensure_future(grower.step())
    for _ in range(100):
        await asyncio.sleep(0)
    assert other.submits == 1 and not looking.done()
    stuck.waited.set()
    await looking
    assert stuck.asked == 1
    _, _, trouble = grower.provider("stuck")
    assert "no answer within 20 s" in trouble.problem


async def test_strangers_of_an_engine_that_hangs_are_waited_for_once() -> None:
    stuck, pool = Stuck(), ScriptedPool()
    stuck.jobs = {name: JobReport("running") for name in ("x", "y", "z")}
    stuck.waited.set()
    grower = Grower(MemoryBook(), pool, {"stuck": (stuck, Scale())})
    await grower.step()
    assert stuck.asked == 1
    assert grower.provider("stuck")[2].failures == 1
