"""The agent killed at every step of starting a worker: no worker is lost, none is started twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from gpupool.engines.local import LocalEngine
from gpupool.engines.records import DeviceGrant, DeviceInventory, Placement, WorkerSpec

from tests.support.crashing_engine import DEVICE, SCRIPTED_WORKER, SESSION

SCRIPT = Path(__file__).parents[1] / "support" / "crashing_engine.py"
MOST_STEPS = 200


def workers(folder: Path) -> set[int]:
    found = set()
    for process in psutil.process_iter(["cmdline", "cwd", "status"]):
        alive = process.info["status"] != psutil.STATUS_ZOMBIE
        inside = (process.info["cwd"] or "").startswith(f"{folder}/")
        if alive and inside and SCRIPTED_WORKER in (process.info["cmdline"] or []):
            found.add(process.pid)
    return found


def crash(folder: Path, step: int, *options: str) -> bool:
    """Whether the start had that many steps."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), str(step), *options],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


def engine(folder: Path) -> LocalEngine:
    async def inventory() -> tuple[DeviceInventory, ...]:
        return (DeviceInventory(0, "0" * 32, "", 8192),)

    return LocalEngine(
        run_directory=folder,
        worker_command=(sys.executable, SCRIPTED_WORKER),
        driver="/dev/null",
        inventory=inventory,
    )


async def check(folder: Path, step: int) -> str:
    """The next agent after a crash: what it found."""
    next_engine = engine(folder)
    owned = await next_engine.list_owned()
    adopted = {int(worker.state["pid"]) for worker in owned}
    deadline = time.monotonic() + 60
    # A worker whose start record never came ends by itself; one without an address was ended.
    while workers(folder) != adopted:
        assert time.monotonic() < deadline, f"step {step}: {workers(folder)} live, {adopted} adopted"
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.05)
    if owned:
        await next_engine.stop(SESSION, 0.1)
    await next_engine.forget(SESSION)
    placement = Placement((DeviceGrant(0, "0" * 32, 200, 1587),))
    await next_engine.start(placement, WorkerSpec(SESSION, 2, (DEVICE,), "ab" * 32, 2**62))
    assert len(workers(folder)) == 1
    await next_engine.stop(SESSION, 0.1)
    await next_engine.close()
    return "adopted" if owned else "none"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "each", "least"),
    # A start ahead of time has the same steps but the fork; every fifth is enough.
    [pytest.param((), 1, 20, id="cold"), pytest.param(("warm",), 5, 5, id="warm")],
)
async def test_an_agent_killed_at_any_step_of_a_start_leaves_nothing_unknown(
    tmp_path: Path, options: tuple[str, ...], each: int, least: int
) -> None:
    found = []
    for step in range(1, MOST_STEPS, each):
        folder = tmp_path / str(step)
        crashed = crash(folder, step, *options)
        try:
            found.append(await check(folder, step))
        finally:
            for pid in workers(folder):
                os.kill(pid, signal.SIGKILL)
        if not crashed:
            break
    assert len(found) > least, "the start has fewer steps than it must have"
    assert found[0] == "none"
    assert found[-1] == "adopted"
    # Once it can be adopted it stays so: there is no later step at which it would be lost.
    assert found == sorted(found, key=["none", "adopted"].index)
