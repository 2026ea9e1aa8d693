"""Processes of this machine as a provider of nodes."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from gpupool.providers.contract import ProviderRefusedError
from gpupool.providers.local import MARK, WORKER_MARK, LocalProvider, LocalSettings

from tests.conformance.provider_contract import ProviderContract
from tests.support.patience import until_late
from tests.support.provider_engines import LocalEngine, nothing_left, order, until


class TestLocal(ProviderContract):
    @pytest.fixture
    def engine(self, tmp_path: Path) -> LocalEngine:
        return LocalEngine(tmp_path / "jobs")


async def test_a_time_limit_ends_the_job(tmp_path: Path) -> None:
    provider = LocalEngine(tmp_path).provider(time_limit=1)
    async with nothing_left(provider):
        jobs = {"k1": await provider.submit(order("k1"))}
        await until(provider, jobs, "ended")


async def test_who_does_not_end_is_made_to(tmp_path: Path) -> None:
    deaf = ("/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done", "agent")
    provider = LocalEngine(tmp_path).provider(agent=deaf, grace=0.2)
    async with nothing_left(provider):
        jobs = {"l1": await provider.submit(order("l1"))}
        while (await provider.poll(jobs))["l1"].phase != "ended":
            await provider.cancel("l1", jobs["l1"])


async def test_workers_of_an_agent_that_died_keep_its_gpu_until_they_are_ended(tmp_path: Path) -> None:
    agent = (
        "/bin/sh", "-c",
        f'env -u {MARK} {WORKER_MARK}="${MARK}" setsid sleep 600 & echo $! > {tmp_path}/worker; wait', "agent",
    )  # fmt: skip
    provider = LocalProvider(LocalSettings(tmp_path / "jobs", "pool", agent, gpus=("6",)))
    async with nothing_left(provider):
        state = await provider.submit(order("p1"))
        deadline = until_late(20)
        told = tmp_path / "worker"
        while not told.exists() or not told.read_text() or not provider._process(int(told.read_text())):
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.02)
        os.kill(state["pid"], signal.SIGKILL)
        with pytest.raises(ProviderRefusedError, match="0 of this machine's 1"):
            await provider.submit(order("p2"))
        await until(provider, {"p1": state}, "ended")
        again = await provider.submit(order("p3"))
        await provider.cancel("p3", again)
        await until(provider, {"p3": again}, "ended")


async def test_an_agent_that_is_not_there_is_refused(tmp_path: Path) -> None:
    provider = LocalProvider(LocalSettings(tmp_path, "pool", ("/nonexistent/gpupool",)))
    with pytest.raises(ProviderRefusedError, match="cannot be started"):
        await provider.submit(order("m1"))


async def test_an_agent_that_refuses_to_start_says_why(tmp_path: Path) -> None:
    agent = ("/bin/sh", "-c", "echo 'Error: 256 MiB are too few' >&2; exit 2", "agent")
    provider = LocalProvider(LocalSettings(tmp_path, "pool", agent))
    state = await provider.submit(order("m2"))
    deadline = until_late(20)
    while (report := (await provider.poll({"m2": state}))["m2"]).phase != "ended":
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.05)
    assert "exit code 2" in report.reason and "256 MiB are too few" in report.reason


async def test_a_number_that_came_again_is_another_process(tmp_path: Path) -> None:
    provider = LocalEngine(tmp_path).provider()
    async with nothing_left(provider):
        state = dict(await provider.submit(order("n1")))
        reports = await provider.poll({"n1": {**state, "started": state["started"] - 1}})
        assert reports["n1"].phase == "ended"
