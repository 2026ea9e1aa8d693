"""``gpupool bench park``: what it costs to give a device up and to come back, beside a copy of the same bytes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from gpupool.client.native import native_directory
from gpupool.client.pool import PoolClient
from gpupool.client.session_file import SessionFile
from gpupool.client.types import LeaseRequest
from gpupool.shares import Share

from benchmarks.client_process import client_environment
from benchmarks.lone_session import lone_session
from benchmarks.park_session import Client, come_back, move, python_path
from benchmarks.results import Target, beside_bounds, machine, publish
from benchmarks.worker_process import WorkerError, software_driver

#: The figure, what it is, and the bound that the project set itself.
TARGETS: Final[tuple[Target, ...]] = (
    ("park_ratio", "device -> host / memcpy of the same bytes", "<=", 1.5),
    ("resume_ratio", "host -> device / memcpy of the same bytes", "<=", 1.5),
    ("reattach_ms", "lease -> kernel done, memory still on the device, ms", "<=", 20.0),
    ("first_kernel_ms", "attach -> first kernel of a new session, ms", "<=", 150.0),
)
#: Between two new sessions, seconds: a node makes its next worker ready meanwhile.
SETTLE_SECONDS: Final = 1.0
#: What the software GPU does with memory that leaves its device.
HOW: Final = "moved: pages change their place, none is copied"


def measure(mib: int = 1024, rounds: int = 3, returns: int = 20, beginnings: int = 5) -> dict[str, Any]:
    """Runs the measurement on the software GPU; figures are medians.

    Args:
        mib: how much device memory is moved.
        rounds: how often it is moved.
        returns: how often an undisturbed session is attached again.
        beginnings: how many new sessions are begun, through a pool and a node of their own.

    Raises:
        WorkerError: worker, client or pool did not do their part, or a byte was lost.
        RuntimeMissingError: the native parts are not installed.
    """
    figures: dict[str, Any] = {"how": HOW}
    with tempfile.TemporaryDirectory(prefix="gpupool-park-") as name:
        more = {"GPUPOOL_SOFTGPU_MEMORY_MIB": str(mib + 512)}
        with lone_session(Path(name), software_driver(), mib + 256, environment=more) as session:
            figures |= move(session, mib, rounds)
            figures |= come_back(session, returns)
    figures |= _beginnings(beginnings)
    figures["machine"] = machine()
    return figures


@contextlib.contextmanager
def _pool_and_node(home: Path) -> Iterator[str]:
    """A pool server and a node with one software GPU; yields the pool's address."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GPUPOOL_")}
    environment |= {"GPUPOOL_HOME": str(home), "GPUPOOL_NATIVE_DIR": str(native_directory())} | python_path()
    command = [sys.executable, "-m", "gpupool.cli.main"]
    node = ["node", "start", "--name", "bench", "--driver", "software", "--software-gpus", "1"]
    with (home / "services.log").open("wb") as log, contextlib.ExitStack() as stack:

        def start(*arguments: str) -> None:
            process = subprocess.Popen([*command, *arguments], env=environment, stdout=log, stderr=log)
            stack.callback(_end, process)

        start("pool", "serve")
        _wait((home / "pool.sock").exists, "the pool's socket", home)
        start(*node)
        yield f"unix:{home}/pool.sock"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait(done: Callable[[], bool], what: str, home: Path) -> None:
    limit = time.monotonic() + 20
    while not done():
        if time.monotonic() > limit:
            raise WorkerError(f"{what} did not come: {(home / 'services.log').read_text()[-400:]}")
        time.sleep(0.05)


def _beginnings(times: int) -> dict[str, Any]:
    """Whole way below Jupyter: the pool is asked, the session file is written, a process that waits for it begins."""
    with tempfile.TemporaryDirectory(prefix="gpupool-park-") as name, _pool_and_node(Path(name)) as endpoint:
        measured = asyncio.run(_begin_sessions(endpoint, Path(name), times))
    attached, begun = zip(*measured, strict=True)
    return {
        "first_kernel_ms": round(statistics.median(map(sum, measured)) * 1e3, 1),
        "first_kernel_attach_ms": round(statistics.median(attached) * 1e3, 1),
        "first_kernel_run_ms": round(statistics.median(begun) * 1e3, 1),
        "first_kernel_all_ms": [round(sum(pair) * 1e3, 1) for pair in measured],
    }


async def _begin_sessions(endpoint: str, home: Path, times: int) -> list[tuple[float, float]]:
    """Seconds until the session file was written, and from there to the end of the first kernel."""
    measured = []
    async with PoolClient(endpoint) as pool:
        limit = time.monotonic() + 20
        while not any(device.healthy for device in await pool.devices()):
            if time.monotonic() > limit:
                raise WorkerError("the node's device did not come")
            await asyncio.sleep(0.05)
        for number in range(times):
            await asyncio.sleep(SETTLE_SECONDS)
            file = SessionFile(home / f"session-{number}")
            file.write("none")
            with Client(client_environment(file, python_path())) as client:
                began = time.perf_counter()
                grant = await pool.request(
                    LeaseRequest(Share(milli=200), label="bench park"), wait_seconds=10
                )
                profile = home / f"profile-{number}"
                profile.write_text(grant.profile)
                file.write_attached(grant, profile=str(profile))
                attached = time.perf_counter()
                client.do("begin")
                measured.append((attached - began, time.perf_counter() - attached))
            await pool.release(grant.lease_id, "exit", close_session=True)
    return measured


def main(json: bool) -> int:
    """Measures and prints; 0, or 1 with one sentence on standard error."""
    return publish("park", measure, report, json=json)


def report(figures: dict[str, Any]) -> str:
    """The figures for people, with the bounds that they are held against."""
    lines = beside_bounds(TARGETS, figures, digits=3)
    where = figures["machine"]
    lines += [
        f"memory is {figures['how']}; the first read afterwards takes "
        f"{figures['first_read_more_s_per_gib']:.3f} s per GiB more",
        f"park {figures['park_s_per_gib']:.4f} s, resume {figures['resume_s_per_gib']:.4f} s, memcpy "
        f"{figures['memcpy_s_per_gib']:.3f} s per GiB ({figures['memcpy_untouched_s_per_gib']:.3f} s into untouched memory)",
        f"{where['cpu']}, {where['cores']} cores, {where['kernel']}, {where['date']}",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(json="--json" in sys.argv[1:]))
