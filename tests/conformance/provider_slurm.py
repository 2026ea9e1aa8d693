"""The conformance suite of providers on a real Slurm, and the whole way from an empty one. `make slurm-check` runs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gpupool.providers.contract import ProviderDownError, ProviderRefusedError

from tests.conformance.provider_contract import ProviderContract
from tests.support import slurm
from tests.support.provider_engines import SlurmEngine, nothing_left, order, until


@pytest.fixture(scope="module")
def cluster() -> Iterator[slurm.SlurmCluster]:
    problem = slurm.why_not()
    if problem:
        pytest.fail(problem)
    with slurm.slurm_cluster() as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
        yield cluster


@pytest.fixture
def engine(cluster: slurm.SlurmCluster) -> SlurmEngine:
    return SlurmEngine(cluster)


class TestSlurm(ProviderContract):
    pass


async def test_a_job_for_which_there_is_no_room_waits_and_says_why(engine: SlurmEngine) -> None:
    provider = engine.provider()
    async with nothing_left(provider):
        first = {"p1": await provider.submit(order("p1", devices=2))}
        await until(provider, first, "running")
        second = {"p2": await provider.submit(order("p2"))}
        report = (await until(provider, second, "pending"))["p2"]
        assert report.seconds_left is None
        await provider.cancel("p2", second["p2"])
        await until(provider, second, "ended")


async def test_more_devices_than_there_are_is_refused(engine: SlurmEngine) -> None:
    with pytest.raises(ProviderRefusedError, match=r"(?i)node configuration"):
        await engine.provider().submit(order("q1", devices=9))


async def test_a_controller_that_is_down_is_no_answer_and_jobs_live_on(engine: SlurmEngine) -> None:
    provider = engine.provider()
    async with nothing_left(provider):
        jobs = {"r1": await provider.submit(order("r1"))}
        await until(provider, jobs, "running")
        engine.cluster.stop("slurmctld")
        try:
            with pytest.raises(ProviderDownError):
                await provider.poll(jobs)
            with pytest.raises(ProviderDownError):
                await provider.submit(order("r2"))
        finally:
            engine.cluster.start_controller()
            engine.cluster.wait_idle()
        assert (await provider.poll(jobs))["r1"].phase == "running"


async def test_a_job_is_never_put_back_into_the_queue(engine: SlurmEngine) -> None:
    provider = engine.provider()
    async with nothing_left(provider):
        jobs = {"s1": await provider.submit(order("s1"))}
        await until(provider, jobs, "running")
        assert "Requeue=0" in engine.cluster.run("scontrol", "show", "job", jobs["s1"]["job"])
