"""What a large pool costs its server: many node agents with workers, their holders, and everybody who asks at once.

A real `gpupool pool serve` in a process of its own. Agents and holders are `crowd_process.py`: they speak the protocol, and
have neither GPUs nor workers. All use the server's Unix socket, each agent on a connection of its own.
"""

from __future__ import annotations

import contextlib
import json as json_text
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psutil
from gpupool.client.errors import GpupoolError

from benchmarks.results import Target, beside_bounds, machine, publish

ROOT: Final = Path(__file__).resolve().parents[1]
#: Agents and holders are shared out among so many processes.
PROCESSES: Final = 2
_START_SECONDS: Final = 60.0
#: Between the last attach and the measurement: who was told to look again soon has done so.
_SETTLE_SECONDS: Final = 10.0
TARGETS: Final[tuple[Target, ...]] = (
    ("server_cores", "cores of the server while all renew", "<=", 1.0),
    ("attach_p99_s", "99 % of all that ask at once are attached within, s", "<=", 5.0),
)


class CrowdError(GpupoolError):
    """The pool server or the crowd did not do what was asked; ``str()`` is one clause with it."""


class Server:
    """A pool server of the measurement's own, in an empty folder."""

    def __init__(self, home: Path) -> None:
        self.endpoint = f"unix:{home}/pool.sock"
        self._log = home / "pool.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gpupool.cli.main", "pool", "serve"],
                env={**os.environ, "GPUPOOL_HOME": str(home), "PYTHONPATH": str(ROOT / "server")},
                stdout=log,
                stderr=log,
            )
        self._measured = psutil.Process(self._process.pid)
        deadline = time.monotonic() + _START_SECONDS
        while not (home / "pool.sock").exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise CrowdError(f"the pool server does not start: {self._log.read_text()[-400:]}")
            time.sleep(0.1)

    def processor_seconds(self) -> float:
        times = self._measured.cpu_times()
        return times.user + times.system

    def resident_mib(self) -> float:
        return self._measured.memory_info().rss / (1 << 20)

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Crowd:
    """The processes with agents and holders; they go on with one step after the other, all together."""

    def __init__(self, endpoint: str, agents: int, workers: int) -> None:
        each = -(-agents // PROCESSES)
        self._running = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.crowd_process", endpoint, str(first),
                 str(min(each, agents - first)), str(workers)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "server")])},
            )
            for first in range(0, agents, each)
        ]  # fmt: skip

    def do(self, step: str) -> list[Any]:
        """Lets all of them take the step, and returns what they say of it."""
        for process in self._running:
            assert process.stdin is not None
            process.stdin.write(step + "\n")
            process.stdin.flush()
        said: list[Any] = []
        for process in self._running:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise CrowdError(f"a process of the crowd ended at {step!r}")
            said += json_text.loads(line)
        return said

    def close(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _running(agents: int, workers: int) -> Iterator[tuple[Server, Crowd]]:
    # A short path: addresses of Unix sockets end at 107 bytes.
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpc-")))
        server = Server(home)
        stack.callback(server.close)
        crowd = Crowd(server.endpoint, agents, workers)
        stack.callback(crowd.close)
        yield server, crowd


def measure(agents: int, workers: int, seconds: float) -> dict[str, Any]:
    """One pool, filled at once and then watched.

    Args:
        agents: nodes, each with `workers` devices.
        workers: of each agent; each holds a whole device.
        seconds: how long all renew while the server is watched.

    Raises:
        CrowdError: the server did not start, or a request failed.
    """
    with _running(agents, workers) as (server, crowd):
        before = server.processor_seconds()
        crowd.do("connect")
        connecting = server.processor_seconds() - before
        before, began = server.processor_seconds(), time.monotonic()
        waits = sorted(crowd.do("attach"))
        attaching, took = server.processor_seconds() - before, time.monotonic() - began
        time.sleep(min(_SETTLE_SECONDS, seconds))
        crowd.do("count")
        before, began = server.processor_seconds(), time.monotonic()
        time.sleep(seconds)
        watched = time.monotonic() - began
        used = server.processor_seconds() - before
        beats, late = (sum(column) for column in zip(*crowd.do("count"), strict=True))
        leases = agents * workers
        return {
            "agents": agents,
            "workers": leases,
            "seconds": watched,
            "server_cores": used / watched,
            "heartbeats": beats,
            "late_heartbeats": late,
            "lost": sum(crowd.do("lost")),
            "connect_cpu_ms": 1000 * connecting / agents,
            "attach_cpu_ms": 1000 * attaching / leases,
            "attach_p50_s": waits[len(waits) // 2],
            "attach_p99_s": waits[min(len(waits) - 1, len(waits) * 99 // 100)],
            "attach_all_s": took,
            "server_mib": server.resident_mib(),
            "machine": machine(),
        }


def main(json: bool, agents: int, workers: int, seconds: float) -> int:
    """Measures and prints; 0, or 1 with one sentence on standard error."""
    return publish("crowd", lambda: measure(agents, workers, seconds), report, json=json)


def report(figures: dict[str, Any]) -> str:
    """The figures for people."""
    lines = [
        f"{figures['agents']} agents, {figures['workers']} workers, one pool server ({figures['server_mib']:.0f} MiB)",
        f"{figures['heartbeats']} heartbeats in {figures['seconds']:.0f} s, {figures['late_heartbeats']} of them answered "
        f"after more than a second; {figures['lost']} leases lost",
        f"processor time of the server: {figures['connect_cpu_ms']:.2f} ms for an agent that connects, "
        f"{figures['attach_cpu_ms']:.2f} ms for an attach",
        f"half of those who ask at once are attached after {figures['attach_p50_s']:.1f} s, all after "
        f"{figures['attach_all_s']:.1f} s",
        "",
        *beside_bounds(TARGETS, figures, digits=2),
    ]
    return "\n".join(lines) + "\n"
