"""``gpupool bench park``: what it costs to give a device up and to come back, beside a copy of the same bytes."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json as json_text
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

from gpupool.bench.lone_session import LoneSession, lone_session
from gpupool.bench.wire import machine
from gpupool.bench.worker_process import WorkerError, boottime_ns, software_driver
from gpupool.client.errors import GpupoolError, RuntimeMissing
from gpupool.client.native import native_directory, native_file
from gpupool.client.pool import PoolClient
from gpupool.client.session_file import SESSION_FILE_VARIABLE, SessionFile
from gpupool.client.types import Ask
from gpupool.shares import Share

MIB: Final = 1 << 20
GIB: Final = 1 << 30
#: The figure, what it is, and the bound that the project set itself.
TARGETS: Final[tuple[tuple[str, str, float], ...]] = (
    ("park_ratio", "device -> host / memcpy of the same bytes", 1.5),
    ("resume_ratio", "host -> device / memcpy of the same bytes", 1.5),
    ("reattach_ms", "lease -> kernel done, memory still on the device, ms", 20.0),
    ("first_kernel_ms", "attach -> first kernel of a new session, ms", 150.0),
)
#: Between two new sessions, seconds: a node makes its next worker ready meanwhile.
SETTLE_SECONDS: Final = 1.0
#: What the software GPU does with memory that leaves its device.
HOW: Final = "moved: pages change their place, none is copied"


class Client:
    """A process that is a session's client; see :mod:`gpupool.bench.park_client`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gpupool.bench.park_client"],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def do(self, command: str) -> dict[str, Any]:
        """Raises WorkerError when the process could not."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the reading tells why
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        line = self._process.stdout.readline()
        if not line:
            said = self._process.stderr.read().strip().splitlines()
            raise WorkerError(f"the client ended: {said[-1] if said else 'it said nothing'}")
        answer: dict[str, Any] = json_text.loads(line)
        return answer


def measure(mib: int = 1024, rounds: int = 3, returns: int = 20, beginnings: int = 5) -> dict[str, Any]:
    """Runs the measurement on the software GPU; figures are medians.

    Args:
        mib: how much device memory is moved.
        rounds: how often it is moved.
        returns: how often an undisturbed session is attached again.
        beginnings: how many new sessions are begun, through a pool and a node of their own.

    Raises:
        WorkerError: worker, client or pool did not do their part, or a byte was lost.
        RuntimeMissing: the native parts are not installed.
    """
    figures: dict[str, Any] = {"how": HOW}
    with tempfile.TemporaryDirectory(prefix="gpupool-park-") as name:
        more = {"SOFTGPU_MEMORY_MIB": str(mib + 512)}
        with lone_session(Path(name), software_driver(), mib + 256, environment=more) as session:
            figures |= _moves(session, mib, rounds)
            figures |= _returns(session, returns)
    figures |= _beginnings(beginnings)
    figures["machine"] = machine()
    return figures


def _moves(session: LoneSession, mib: int, rounds: int) -> dict[str, Any]:
    cold, warm = memcpy_seconds_per_gib(mib * MIB)
    with Client(session.environment(_python_path())) as client:
        client.do("begin")
        client.do(f"fill {mib}")
        client.do("read")
        parked, resumed, touched, usual = [], [], [], []
        for _ in range(rounds):
            usual.append(client.do("read")["seconds"])
            client.do("detach")
            _ask(session, f"revoke epoch={session.worker.epoch}")
            began = time.perf_counter()
            answer = _ask(session, f"park epoch={session.worker.epoch}")
            parked.append(time.perf_counter() - began)
            gib = int(answer.split("bytes=")[1]) / GIB
            began = time.perf_counter()
            _attach(session)
            resumed.append(time.perf_counter() - began)
            client.do("kernel")
            seen = client.do("read")
            touched.append(seen["seconds"])
            if not seen["same"]:
                raise WorkerError("a byte was lost on the way to the host and back")
    park, resume = statistics.median(parked) / gib, statistics.median(resumed) / gib
    late = max(0.0, statistics.median(touched) - statistics.median(usual)) / gib
    return {
        "gib": round(gib, 3),
        "park_ratio": round(park / warm, 4),
        "resume_ratio": round(resume / warm, 4),
        # Pages that have come back are found by faults when they are used next.
        "resume_and_read_ratio": round((resume + late) / warm, 4),
        "park_s_per_gib": round(park, 5),
        "resume_s_per_gib": round(resume, 5),
        "first_read_more_s_per_gib": round(late, 5),
        "memcpy_s_per_gib": round(warm, 4),
        "memcpy_untouched_s_per_gib": round(cold, 4),
    }


def memcpy_seconds_per_gib(size: int, rounds: int = 3) -> tuple[float, float]:
    """Of one thread: into memory that was never touched before, and into memory that was; medians."""
    source = mmap.mmap(-1, size)
    at = ctypes.addressof(ctypes.c_char.from_buffer(source))
    ctypes.memset(at, 0x5A, size)
    cold: list[float] = []
    warm: list[float] = []
    for _ in range(rounds):
        target = mmap.mmap(-1, size)
        place = ctypes.c_char.from_buffer(target)
        for times in (cold, warm):
            began = time.perf_counter()
            ctypes.memmove(ctypes.addressof(place), at, size)
            times.append((time.perf_counter() - began) * GIB / size)
        del place
        target.close()
    return statistics.median(cold), statistics.median(warm)


def _returns(session: LoneSession, returns: int) -> dict[str, Any]:
    """The session is detached and attached again while nobody wanted its room."""
    times = []
    with Client(session.environment(_python_path())) as client:
        client.do("begin")
        for _ in range(returns):
            client.do("detach")
            _ask(session, f"revoke epoch={session.worker.epoch}")
            began = time.perf_counter()
            _attach(session)
            done = client.do("kernel")
            times.append(time.perf_counter() - began)
            if done["counted"] != done["launches"]:
                raise WorkerError("a kernel was lost")
    return {"reattach_ms": round(statistics.median(times) * 1e3, 2)}


def _attach(session: LoneSession) -> None:
    """The worker first, the session file after it, as everybody does who attaches a session."""
    worker, before = session.worker, session.file.read()
    worker.epoch += 1
    _ask(session, f"lease epoch={worker.epoch} deadline_ns={boottime_ns() + 600 * 10**9}")
    session.file.write(
        "attached",
        session=before.session,
        epoch=worker.epoch,
        address=before.address,
        token=before.token,
        software=before.software,
        profile=before.profile,
        log=before.log,
    )


def _ask(session: LoneSession, line: str) -> str:
    answer = session.worker.ask(line, 120)
    if not answer.startswith("ok"):
        raise WorkerError(f"the worker answered {answer!r} to {line.split()[0]!r}")
    return answer


def _python_path() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@contextlib.contextmanager
def _pool_and_node(home: Path) -> Iterator[str]:
    """A pool server and a node with one software GPU; yields the pool's address."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GPUPOOL_")}
    environment |= {"GPUPOOL_HOME": str(home), "GPUPOOL_NATIVE_DIR": str(native_directory())} | _python_path()
    command = [sys.executable, "-m", "gpupool.cli.main"]
    node = ["node", "--name", "bench", "--driver", "software", "--software-gpus", "1"]
    with (home / "services.log").open("wb") as log, contextlib.ExitStack() as stack:

        def start(*arguments: str) -> None:
            process = subprocess.Popen([*command, *arguments], env=environment, stdout=log, stderr=log)
            stack.callback(_end, process)

        start("serve")
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
            environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
            environment |= _python_path() | {
                SESSION_FILE_VARIABLE: str(file.path),
                "LD_LIBRARY_PATH": str(native_file("client", "libcuda.so.1").parent),
            }
            with Client(environment) as client:
                began = time.perf_counter()
                grant = await pool.request(Ask(Share(milli=200), label="bench park"), wait_seconds=10)
                profile = home / f"profile-{number}"
                profile.write_text(grant.profile)
                file.write(
                    "attached",
                    session=grant.session_id,
                    epoch=grant.epoch,
                    address=grant.worker_address,
                    token=grant.worker_token,
                    software=grant.software,
                    profile=str(profile),
                )
                attached = time.perf_counter()
                client.do("begin")
                measured.append((attached - began, time.perf_counter() - attached))
            await pool.release(grant.lease_id, "exit", close_session=True)
    return measured


def main(json: bool) -> int:
    """Measures and prints; 0, or 1 with one sentence on standard error."""
    try:
        figures = measure()
    except (WorkerError, RuntimeMissing, GpupoolError, OSError) as error:
        sys.stderr.write(f"gpupool bench park: {error}\n")
        return 1
    sys.stdout.write(json_text.dumps(figures, indent=2) + "\n" if json else report(figures))
    return 0


def report(figures: dict[str, Any]) -> str:
    """The figures for people, with the bounds that they are held against."""
    lines = [f"{'':56}{'measured':>10}{'target':>10}"]
    for key, meaning, bound in TARGETS:
        value = float(figures[key])
        lines.append(
            f"{meaning:56}{value:10.3f}{'<= ' + format(bound, 'g'):>10}{'' if value <= bound else '  missed'}"
        )
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
