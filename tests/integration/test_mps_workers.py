"""Workers that a node starts as clients of MPS: what they are told, what they say, and who takes turns.

The software GPU knows no MPS, so nothing here says what a real device does with it: `make gpu-check` does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gpupool.client.native import native_directory
from gpupool.engines.local import LocalEngine
from gpupool.engines.mps import MpsDaemon
from gpupool.engines.records import DeviceGrant, Placement, WorkerSpec
from gpupool.engines.turn_books import TurnBooks
from gpupool.node.clock import boottime_ns
from gpupool.node.control import ControlChannel, Notice, WorkerStats
from gpupool.node.driver import probe

from tests.support.pool_node import native_worker_is_built

pytestmark = pytest.mark.skipif(not native_worker_is_built(), reason="needs the native build (`make build`)")

STRICT, SOFT = "1" * 32, "2" * 32


@pytest.fixture
async def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalEngine]:
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "77")  # of the agent: for nobody else
    native = native_directory()
    worker = (str(native / "bin" / "gpupool-worker"),)
    driver = str(native / "softgpu" / "libcuda.so.1")
    daemon = MpsDaemon(tmp_path / "pipes", 4711)

    async def inventory():  # type: ignore[no-untyped-def]
        return (await probe(driver, worker, {})).inventory()

    made = LocalEngine(
        run_directory=tmp_path / "workers",
        worker_command=worker,
        driver=driver,
        inventory=inventory,
        environment=daemon.environment(),
        turn_books=TurnBooks(tmp_path / "turns"),
        warm_workers=1,
        mps_daemon=daemon,
    )
    await made.list_owned()
    try:
        yield made
    finally:
        for session in (STRICT, SOFT):
            await made.stop(session, 0.1)
        await made.close()


async def started(
    engine: LocalEngine, folder: Path, session: str, *, strict: bool
) -> tuple[dict[str, str], WorkerStats, ControlChannel]:
    """The environment of a worker, what it says, and the way to it."""
    placement = await engine.reserve((DeviceGrant(0, "", 255, 512),))
    assert isinstance(placement, Placement)
    spec = WorkerSpec(session, 1, placement.devices, "ab" * 32, boottime_ns() + 60 * 10**9, strict=strict)
    worker = await engine.start(placement, spec)
    text = Path(f"/proc/{worker.state['pid']}/environ").read_bytes().decode()
    environment = dict(line.split("=", 1) for line in text.split("\0") if "=" in line)
    said: list[Notice] = []
    channel = await ControlChannel.connect(folder / "workers" / session / "control.sock", said.append)
    await channel.stats()
    [stats] = [notice for notice in said if isinstance(notice, WorkerStats)][-1:]
    return environment, stats, channel


async def test_a_strict_share_is_a_part_of_the_device_and_others_take_turns(
    engine: LocalEngine, tmp_path: Path
) -> None:
    environment, stats, channel = await started(engine, tmp_path, STRICT, strict=True)
    assert environment["CUDA_MPS_PIPE_DIRECTORY"] == str(tmp_path / "pipes")
    assert environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert (stats.enforcement, stats.park_obstacle) == ("mps", "mps")
    # What MPS gave the process stays; its memory may change.
    deadline, device = boottime_ns() + 60 * 10**9, 0
    smaller = (DeviceGrant(device, "", 200, 512),)
    refused = await channel.lease(1, deadline, smaller)
    assert (refused.ok, refused.message) == (False, "mps-share")
    assert (await channel.lease(1, deadline, (DeviceGrant(device, "", 255, 400),))).ok
    await channel.close()

    environment, stats, channel = await started(engine, tmp_path, SOFT, strict=False)
    assert environment["CUDA_MPS_PIPE_DIRECTORY"] == str(tmp_path / "pipes")
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in environment
    assert (stats.enforcement, stats.park_obstacle) == ("soft", "mps")
    assert (await channel.lease(1, deadline, smaller)).ok
    await channel.close()
