"""Client or worker killed at random moments, again and again: no hang, no leak, clear errors.

They launch kernels of their own, or operations of the math libraries. `GPUPOOL_DEATHS` says how often
(`make test-deaths`: 200 each).
"""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from gpupool.client.errors import RuntimeMissingError
from gpupool.client.native import native_directory, native_file
from gpupool.client.session_file import SessionFile

from benchmarks.worker_process import ProbedDevice, WorkerProcess, probe, software_driver
from tests.support.library_training import BUSY_TRAINING, loader_path
from tests.support.stack import ROOT
from tests.support.worker_state import used_bytes

DEATHS = int(os.environ.get("GPUPOOL_DEATHS", "12"))
SEED = int(os.environ.get("GPUPOOL_DEATHS_SEED", "20261121"))
SOFTWARE = {"GPUPOOL_SOFTGPU_MEMORY_MIB": "1024"}
MIB = 1 << 20
#: Deaths of workers that have nothing to do with each other.
AT_A_TIME = 4
#: No process needs longer than this for anything it does here, on a busy machine.
PATIENCE = 60.0

#: What clients are, and where they find libraries.
PROGRAMS = {
    "kernels": ([str(ROOT / "tests" / "support" / "busy_client.py")], str(native_directory() / "client")),
    "operations": (["-W", "ignore", "-c", BUSY_TRAINING], loader_path()),
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(60 + 30 * DEATHS),
    pytest.mark.parametrize("program", PROGRAMS),
]


@pytest.fixture(scope="module")
def device() -> ProbedDevice:
    try:
        native_file("bin", "gpupool-worker")
        return probe(software_driver(), SOFTWARE)[1][0]
    except RuntimeMissingError as missing:
        pytest.fail(str(missing))


@dataclass
class Place:
    """Where one worker and its clients meet."""

    worker: WorkerProcess
    session_file: Path

    program: str

    def client(self, seed: int, threads: int = 4) -> subprocess.Popen[str]:
        command, folders = PROGRAMS[self.program]
        return subprocess.Popen(
            [sys.executable, *command, str(seed), str(threads)],
            env=dict(
                os.environ,
                GPUPOOL_SESSION_FILE=str(self.session_file),
                LD_LIBRARY_PATH=folders,
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def start_worker(folder: Path, device: ProbedDevice, program: str) -> Place:
    folder.mkdir(exist_ok=True)
    worker = WorkerProcess(folder, software_driver(), [(device, 1000, 512)], environment=SOFTWARE)
    worker.__enter__()
    file = SessionFile(folder / "session")
    file.write(
        "attached", session=worker.session, epoch=worker.epoch, address=worker.address, token=worker.token,
        software=True,
    )  # fmt: skip
    return Place(worker, file.path, program)


@pytest.fixture
def place(tmp_path: Path, device: ProbedDevice, program: str) -> Iterator[Place]:
    place = start_worker(tmp_path / "w", device, program)
    yield place
    place.worker.__exit__(None, None, None)


def read_line(client: subprocess.Popen[str], seconds: float = PATIENCE) -> str:
    assert client.stdout is not None
    waiting = select.poll()
    waiting.register(client.stdout, select.POLLIN | select.POLLHUP)
    if not waiting.poll(seconds * 1000):
        raise AssertionError(f"the client said nothing for {seconds} s")
    return client.stdout.readline().strip()


def wait_until_busy(client: subprocess.Popen[str]) -> None:
    line = read_line(client)
    if line != "busy":
        client.kill()
        raise AssertionError(f"{line} {client.communicate()}")


@dataclass(frozen=True)
class Held:
    """What a worker process holds when no client is there."""

    descriptors: int
    threads: int
    resident_mib: float
    device_bytes: int

    @classmethod
    def of(cls, worker: WorkerProcess) -> Held:
        assert worker.process is not None
        process = psutil.Process(worker.process.pid)
        used = used_bytes(worker)
        return cls(process.num_fds(), process.num_threads(), process.memory_info().rss / MIB, used)


def settled(place: Place) -> Held:
    """After a client that came, computed and left properly."""
    last = place.client(1, threads=0)
    output, errors = last.communicate(timeout=PATIENCE)
    assert last.returncode == 0, output + errors
    deadline = time.monotonic() + PATIENCE
    while int(place.worker.stats()["client"]) != 0:
        assert time.monotonic() < deadline, "the worker still believes that a client is there"
        time.sleep(0.05)
    time.sleep(0.2)
    return Held.of(place.worker)


def test_a_client_killed_at_random_moments_leaves_nothing_behind(place: Place, program: str) -> None:
    choice = random.Random(SEED)
    before = settled(place)
    for death in range(DEATHS):
        client = place.client(death)
        try:
            if choice.random() < 0.8:
                wait_until_busy(client)  # which says, too, that the one before spoilt nothing
                time.sleep(choice.random() * 0.3)
            else:
                time.sleep(choice.random() * 0.3)  # while it starts, connects, loads
        finally:
            client.kill()
            client.communicate(timeout=PATIENCE)
        assert place.worker.process is not None
        assert place.worker.process.poll() is None, place.worker.log_path.read_text()
        place.worker.stats()  # who does not read what a worker says is dropped
    after = settled(place)
    deadline = time.monotonic() + PATIENCE
    while after.threads > before.threads + 2 and time.monotonic() < deadline:  # lanes end when they are idle
        time.sleep(0.5)
        after = Held.of(place.worker)
    assert after.descriptors <= before.descriptors + 2, (before, after)
    assert after.threads <= before.threads + 2, (before, after)
    # Room for what threads keep; a program that stayed for each client (0.3 MiB) is more.
    assert after.resident_mib <= before.resident_mib + 32 + 0.05 * DEATHS, (before, after)
    assert after.device_bytes <= before.device_bytes, (before, after)
    print(f"{DEATHS} clients of {program}: {before} -> {after}")


def test_a_worker_killed_at_random_moments_is_a_clear_error_at_once(
    tmp_path: Path, device: ProbedDevice, program: str
) -> None:
    choice = random.Random(SEED + 1)
    moments = [choice.random() * 0.3 for _ in range(DEATHS)]

    def die(death: int) -> float:
        place = start_worker(tmp_path / f"w{death}", device, program)
        client = place.client(death)
        try:
            wait_until_busy(client)
            time.sleep(moments[death])
            assert place.worker.process is not None
            place.worker.process.kill()
            killed = time.monotonic()
            output, errors = client.communicate(timeout=PATIENCE)
            took = time.monotonic() - killed
        finally:
            client.kill()
            client.communicate(timeout=PATIENCE)
            place.worker.__exit__(None, None, None)
        assert client.returncode == 0, (death, output, errors)
        said = output.strip().split(" ", 2)
        assert said[0] == "error", (death, output, errors)
        assert len(said) == 3 and "worker" in said[2], (death, output)
        assert took < 45, f"death {death}: the client needed {took:.1f} s to notice"
        return took

    # A client looks for its worker for three seconds; several at a time wait together.
    with ThreadPoolExecutor(AT_A_TIME) as deaths:
        slowest = max(deaths.map(die, range(DEATHS)))
    print(f"{DEATHS} workers of {program}: every client said so, after {slowest:.1f} s at most")
