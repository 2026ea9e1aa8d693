"""What every provider of nodes must do: the same cases for each engine. `make test` runs them on processes of this machine and
on a cluster for tests that speaks Kubernetes' API, `make slurm-check` on a real Slurm, `make kubernetes-check` on a real
Kubernetes.
"""

from __future__ import annotations

import asyncio

import pytest
from gpupool.providers.contract import ProviderRefusedError

from tests.support.provider_engines import TestedEngine, nothing_left, order, until

#: An agent that says which devices it was given.
_SAYS = (
    "/bin/sh",
    "-c",
    'echo "gpus=$CUDA_VISIBLE_DEVICES$NVIDIA_VISIBLE_DEVICES"; exec sleep 600 #',
    "agent",
)
_FAILS = ("/bin/sh", "-c", "exit 3 #", "agent")


class ProviderContract:
    """The cases. A subclass has a fixture `engine`."""

    async def test_a_job_runs_until_it_is_cancelled(self, engine: TestedEngine) -> None:
        provider = engine.provider()
        async with nothing_left(provider):
            jobs = {"a1": await provider.submit(order("a1"))}
            await until(provider, jobs, "running")
            await provider.cancel("a1", jobs["a1"])
            await until(provider, jobs, "ended")
            assert await provider.list_owned() == {}

    async def test_cancelling_twice_and_after_the_end_does_nothing(self, engine: TestedEngine) -> None:
        provider = engine.provider()
        async with nothing_left(provider):
            jobs = {"b1": await provider.submit(order("b1")), "b2": await provider.submit(order("b2"))}
            await until(provider, jobs, "running")
            await provider.cancel("b1", jobs["b1"])
            await provider.cancel("b1", jobs["b1"])
            await until(provider, {"b1": jobs["b1"]}, "ended")
            await provider.cancel("b1", jobs["b1"])
            assert (await provider.poll({"b2": jobs["b2"]}))["b2"].phase == "running"

    async def test_a_job_that_never_was_has_ended_and_can_be_cancelled(self, engine: TestedEngine) -> None:
        provider = engine.provider()
        state = {"pid": 2**22 - 1, "started": 1, "gpus": [], "job": "99999999"}
        assert (await provider.poll({"nosuch": state}))["nosuch"].phase == "ended"
        await provider.cancel("nosuch", state)
        await provider.cancel("nosuch", {})

    async def test_another_pool_server_adopts_living_jobs(self, engine: TestedEngine) -> None:
        async with nothing_left(engine.provider()):
            state = await engine.provider().submit(order("c1"))
            later = engine.provider()
            assert set(await later.list_owned()) == {"c1"}
            await until(later, {"c1": state}, "running")
            await later.cancel("c1", state)
            await until(later, {"c1": state}, "ended")

    async def test_a_job_whose_answer_was_lost_is_found_by_its_name(self, engine: TestedEngine) -> None:
        async with nothing_left(engine.provider()):
            await engine.provider().submit(order("d1"))
            later = engine.provider()
            found = dict(await later.list_owned())
            await until(later, found, "running")
            await later.cancel("d1", found["d1"])
            await until(later, found, "ended")

    async def test_jobs_of_another_pool_are_not_owned(self, engine: TestedEngine) -> None:
        ours, theirs = engine.provider(), engine.provider(pool_id="other")
        async with nothing_left(theirs), nothing_left(ours):
            await theirs.submit(order("e1"))
            assert await ours.list_owned() == {}
            assert set(await theirs.list_owned()) == {"e1"}

    async def test_a_job_that_dies_at_its_start_says_how(self, engine: TestedEngine) -> None:
        provider = engine.provider(agent=_FAILS)
        async with nothing_left(provider):
            jobs = {"f1": await provider.submit(order("f1"))}
            reports = await until(provider, jobs, "ended")
            assert any(word in reports["f1"].reason for word in ("exit code 3", "FAILED"))

    async def test_a_job_that_the_engine_takes_away_has_ended(self, engine: TestedEngine) -> None:
        provider = engine.provider()
        async with nothing_left(provider):
            jobs = {"g1": await provider.submit(order("g1"))}
            await until(provider, jobs, "running")
            engine.kill(jobs["g1"])
            assert (await until(provider, jobs, "ended"))["g1"].reason

    async def test_a_time_limit_is_known_before_it_is_over(self, engine: TestedEngine) -> None:
        provider = engine.provider(time_limit=120)
        async with nothing_left(provider):
            jobs = {"h1": await provider.submit(order("h1"))}
            left = (await until(provider, jobs, "running"))["h1"].seconds_left
            assert provider.capabilities.time_limit_known
            assert left is not None and 0 < left <= 120
            await asyncio.sleep(1.1)
            later = (await provider.poll(jobs))["h1"].seconds_left
            assert later is not None and later < left

    async def test_what_the_engine_refuses_leaves_nothing_behind(self, engine: TestedEngine) -> None:
        provider = engine.refusing()
        async with nothing_left(provider):
            with pytest.raises(ProviderRefusedError) as refused:
                await provider.submit(order("i1", devices=2))
            assert str(refused.value)
            assert "i1" not in await provider.list_owned()

    async def test_two_jobs_have_devices_of_their_own(self, engine: TestedEngine) -> None:
        provider = engine.provider(agent=_SAYS)
        async with nothing_left(provider):
            jobs = {name: await provider.submit(order(name)) for name in ("j1", "j2")}
            await until(provider, jobs, "running")
            said = set()
            for name in jobs:
                while not (text := engine.output(name)):
                    await asyncio.sleep(0.05)
                said.add(text.strip())
            assert len(said) == 2 and "gpus=" not in said, said

    async def test_it_says_what_engine_it_is(self, engine: TestedEngine) -> None:
        about = await engine.provider().describe()
        assert about.engine
