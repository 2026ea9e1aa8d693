"""The conformance suite of providers on a real Slurm, and the whole way from an empty one. `make slurm-check` runs it."""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.providers.contract import ProviderDownError, ProviderRefusedError

from tests.conformance.provider_contract import ProviderContract
from tests.support import slurm
from tests.support.patience import BUSY, until_late
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
        assert report.seconds_left is None and report.starts_in is None  # the first job has no limit
        await provider.cancel("p2", second["p2"])
        await until(provider, second, "ended")


async def test_behind_a_job_with_a_time_limit_a_start_is_expected(engine: SlurmEngine) -> None:
    provider = engine.provider(time_limit=120)
    async with nothing_left(provider):
        first = {"s1": await provider.submit(order("s1", devices=2))}
        await until(provider, first, "running")
        second = {"s2": await provider.submit(order("s2"))}
        deadline = until_late(60)
        while (report := (await provider.poll(second))["s2"]).starts_in is None:
            assert time.monotonic() < deadline, report
            await asyncio.sleep(0.5)
        assert report.phase == "pending" and 0.0 <= report.starts_in <= 180.0


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


def test_from_an_empty_slurm_to_a_program_and_back(cluster: slurm.SlurmCluster) -> None:
    """`gpupool run` on a pool without a node: a job starts, serves, is idle, ends; then Slurm is empty again."""
    with tempfile.TemporaryDirectory(prefix="gps-") as folder:
        home = Path(folder)
        (home / "providers.toml").write_text(
            f"""[lab]
kind = "slurm"
maximum = 2
idle = "5s"
pool = "unix:{home}/pool.sock"
advertise_host = "127.0.0.1"
output = "{home}/%x.txt"
command = ["{sys.executable}", "-m", "gpupool.cli.main"]
node_options = ["--driver", "software"]
time_limit = "60m"
"""
        )
        environment = {**cluster.environment, "GPUPOOL_HOME": folder}
        gpupool = [sys.executable, "-m", "gpupool.cli.main"]
        program = (
            "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); n = ctypes.c_int()\n"
            "assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(n)) == 0\n"
            "print('devices', n.value)"
        )
        log = (home / "serve.txt").open("ab")
        command = [*gpupool, "pool", "serve", "--providers", str(home / "providers.toml")]
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            deadline = until_late(30)
            while not (home / "pool.sock").exists():
                assert time.monotonic() < deadline and server.poll() is None, (home / "serve.txt").read_text()
                time.sleep(0.1)
            assert _queue(cluster) == []
            steps, begun = {}, time.monotonic()
            wish = [*gpupool, "run", "-p", "0.2", "--wait", "5m", "--", sys.executable, "-c", program]
            run = subprocess.Popen(
                wish, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            for state in ("", "RUNNING"):
                deadline = until_late(60)
                while not any(line.endswith(state) for line in _queue(cluster)):
                    assert time.monotonic() < deadline, (home / "serve.txt").read_text()
                    time.sleep(0.1)
                steps[f"in Slurm's queue {state}".strip()] = time.monotonic() - begun
            said, _ = run.communicate(timeout=60 * BUSY)
            steps["the program has run"] = time.monotonic() - begun
            assert run.returncode == 0 and "devices 1" in said, said
            assert "lab" in said, said
            deadline = until_late(60)
            while _queue(cluster):
                assert time.monotonic() < deadline, (home / "serve.txt").read_text()
                time.sleep(0.1)
            steps["Slurm is empty again"] = time.monotonic() - begun
            print("\n" + "\n".join(f"{seconds:7.1f} s  {step}" for step, seconds in steps.items()))
            print((home / "serve.txt").read_text())
        finally:
            server.terminate()
            server.wait(30 * BUSY)
            log.close()


def _queue(cluster: slurm.SlurmCluster) -> list[str]:
    return cluster.run("squeue", "--noheader", "--format=%i %T").splitlines()


def test_a_user_without_rights_borrows_her_own_jobs(cluster: slurm.SlurmCluster) -> None:
    """`gpupool up` under her own uid: her job, on her files alone, and it ends with the command."""
    who = pwd.getpwnam("nobody")
    with tempfile.TemporaryDirectory(prefix="gps-") as folder:
        home = Path(folder)
        (home / "slurm.toml").write_text(
            '[slurm]\nkind = "slurm"\nmaximum = 2\nadvertise_host = "127.0.0.1"\ntime_limit = "60m"\n'
            'node_options = ["--driver", "software"]\n'
        )
        for path in (home, home / "slurm.toml"):
            os.chown(path, who.pw_uid, who.pw_gid)
        environment = {**cluster.environment, "GPUPOOL_HOME": folder, "HOME": folder, "USER": who.pw_name}
        gpupool = [sys.executable, "-m", "gpupool.cli.main"]

        def start(*words: str) -> subprocess.Popen[str]:
            return subprocess.Popen(
                [*gpupool, *words], env=environment, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                user=who.pw_uid, group=who.pw_gid, extra_groups=[],
            )  # fmt: skip

        try:
            start("--version").communicate()
        except PermissionError:
            pytest.skip(f"other users cannot run {sys.executable}")
        up = start("up", "--providers", str(home / "slurm.toml"), "--listen", "127.0.0.1")
        try:
            assert up.stdout is not None
            said = ""
            while "ready" not in said:
                line = up.stdout.readline()
                assert line, said
                said += line
            assert "borrows GPUs from slurm" in said and _queue(cluster) == []
            run = start(
                "run", "-p", "0.2", "--wait", "5m", "--", sys.executable, "-c", "print('her program')"
            )
            answer, _ = run.communicate(timeout=120 * BUSY)
            assert run.returncode == 0 and "her program" in answer, answer
            assert cluster.run("squeue", "--noheader", "--states=RUNNING", "--format=%u").split() == [
                "nobody"
            ]
        finally:
            up.send_signal(signal.SIGINT)
            up.communicate(timeout=60 * BUSY)
        deadline = until_late(60)
        while _queue(cluster):
            assert time.monotonic() < deadline, _queue(cluster)
            time.sleep(0.1)
