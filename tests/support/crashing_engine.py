"""Starts one worker by the local engine and kills itself at the N-th step: `crashing_engine.py FOLDER N [warm]`.

`warm`: it takes a worker that was started ahead.

Steps are the system calls by which the engine changes the world, each counted before and after.
Prints nothing; ends by SIGKILL at step N, or with status 0 when the start had fewer steps.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpupool.engines.local import LocalEngine
from gpupool.engines.records import DeviceGrant, DeviceInventory, Placement, WorkerSpec

SCRIPTED_WORKER = str(Path(__file__).with_name("scripted_worker.py"))
SESSION = "0123456789abcdef0123456789abcdef"
DEVICE = DeviceGrant(0, "0" * 32, 200, 1587)

steps = 0


def step(fatal: int) -> None:
    global steps
    steps += 1
    if steps == fatal:
        os.kill(os.getpid(), signal.SIGKILL)


def counted(function: Callable[..., Any], fatal: int) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        step(fatal)
        result = function(*arguments, **named)
        step(fatal)
        return result

    return call


async def start(folder: Path, fatal: int, warm: bool) -> None:
    async def inventory() -> tuple[DeviceInventory, ...]:
        return (DeviceInventory(0, DEVICE.uuid, "", 8192),)

    engine = LocalEngine(
        run_directory=folder,
        worker_command=(sys.executable, SCRIPTED_WORKER),
        driver="/dev/null",
        inventory=inventory,
        warm_workers=1 if warm else 0,
    )
    if warm:
        await engine.list_owned()
        while not (folder / ".warm" / "1" / "worker.log").exists():
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.01)
    for name in ("open", "fsync", "replace", "rename", "pidfd_open", "write", "mkdir"):
        setattr(os, name, counted(getattr(os, name), fatal))
    subprocess.Popen._execute_child = counted(subprocess.Popen._execute_child, fatal)  # type: ignore[attr-defined]
    await engine.start(Placement((DEVICE,)), WorkerSpec(SESSION, 1, (DEVICE,), "ab" * 32, 2**62))
    await engine.close()


if __name__ == "__main__":
    asyncio.run(start(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] == ["warm"]))
