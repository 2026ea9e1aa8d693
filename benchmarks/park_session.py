"""One session that gives its device up and comes back: what is measured of it, without a pool."""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import selectors
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.client_process import write_attached
from benchmarks.lone_session import LoneSession
from benchmarks.worker_process import WorkerError, boottime_ns

MIB: Final = 1 << 20
GIB: Final = 1 << 30


#: What a client may take for its start, and for one answer, seconds.
START_SECONDS: Final = 150.0
ANSWER_SECONDS: Final = 60.0


class Client:
    """A process that is a session's client: it answers when it is ready, and then each line with a line of JSON.

    Args:
        environment: of the process.
        arguments: of its Python; see :mod:`benchmarks.park_client`.
    """

    def __init__(
        self, environment: Mapping[str, str], arguments: Sequence[str] = ("-m", "benchmarks.park_client")
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            self._read(START_SECONDS)
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

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
        """Raises WorkerError when the process could not, or gave no answer in time."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the reading tells why
        return self._read(ANSWER_SECONDS)

    def _read(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                raise WorkerError(f"the client gave no answer in {seconds:g} s")
        line = self._process.stdout.readline()
        if not line:
            said = self._process.stderr.read().strip()[-800:]
            raise WorkerError(f"the client ended: {said or 'it said nothing'}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def move(session: LoneSession, mib: int, rounds: int) -> dict[str, Any]:
    """Device memory goes to the host and back, ``rounds`` times, and every byte is compared; medians.

    Raises:
        WorkerError: worker or client did not do their part, or a byte was lost.
    """
    cold, warm = memcpy_seconds_per_gib(mib * MIB)
    with Client(session.environment(python_path())) as client:
        client.do("begin")
        client.do(f"fill {mib}")
        client.do("read")
        parked, resumed, touched, usual = [], [], [], []
        for _ in range(rounds):
            usual.append(client.do("read")["seconds"])
            client.do("detach")
            ask(session, f"revoke epoch={session.worker.epoch}")
            began = time.perf_counter()
            answer = ask(session, f"park epoch={session.worker.epoch}")
            parked.append(time.perf_counter() - began)
            gib = int(answer.split("bytes=")[1]) / GIB
            began = time.perf_counter()
            attach(session)
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


def come_back(session: LoneSession, returns: int) -> dict[str, Any]:
    """The session is detached and attached again while nobody wanted its room."""
    times = []
    with Client(session.environment(python_path())) as client:
        client.do("begin")
        for _ in range(returns):
            client.do("detach")
            ask(session, f"revoke epoch={session.worker.epoch}")
            began = time.perf_counter()
            attach(session)
            done = client.do("kernel")
            times.append(time.perf_counter() - began)
            if done["counted"] != done["launches"]:
                raise WorkerError("a kernel was lost")
    return {"reattach_ms": round(statistics.median(times) * 1e3, 2)}


def attach(session: LoneSession, *more: str) -> None:
    """The worker first, the session file after it, as everybody does who attaches a session.

    ``more`` are further fields of the worker's lease command.
    """
    worker = session.worker
    worker.epoch += 1
    deadline = boottime_ns() + 600 * 10**9
    ask(session, " ".join((f"lease epoch={worker.epoch} deadline_ns={deadline}", *more)))
    write_attached(session.file, worker, Path(session.file.read().profile), session.client_log)


def ask(session: LoneSession, line: str) -> str:
    answer = session.worker.ask(line, 120)
    if not answer.startswith("ok"):
        raise WorkerError(f"the worker answered {answer!r} to {line.split()[0]!r}")
    return answer


def python_path() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
