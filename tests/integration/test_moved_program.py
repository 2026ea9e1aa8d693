"""A real program whose session moves to another worker between two of its lines, and which notices nothing.

Its numbers depend on every launch and every copy: one that was lost, or executed twice, changes the digest at its end.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.client.session_file import SessionFile

from benchmarks.worker_process import ProbedDevice, WorkerProcess, probe, software_driver
from tests.support.worker_client import Client

SOFTWARE = {"GPUPOOL_SOFTGPU_DEVICES": "2", "GPUPOOL_SOFTGPU_MEMORY_MIB": "512"}

PROGRAM = """
import ctypes, hashlib, sys
import numpy as np
from numba import cuda

runtime = ctypes.CDLL("libcuda.so.1")

@cuda.jit
def step(weights, batch, rate):
    i = cuda.grid(1)
    if i < weights.size:
        weights[i] = weights[i] * 3 + batch[i % batch.size] * rate + 1

@cuda.jit
def shared_sum(out, values):
    block = cuda.shared.array(64, np.uint32)
    block[cuda.threadIdx.x] = values[cuda.grid(1)]
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        for n in range(64):
            out[cuda.blockIdx.x] += block[n]

random = np.random.default_rng(7)
weights = cuda.to_device(np.arange(200_000, dtype=np.uint32))
sums = cuda.to_device(np.zeros(100, dtype=np.uint32))
managed = cuda.managed_array(10_000, dtype=np.uint32)
managed[:] = np.arange(10_000)
pinned = cuda.pinned_array(1000, dtype=np.uint32)
streams = [cuda.stream() for _ in range(3)]
events = [cuda.event(timing=False) for _ in range(5)]
digest = hashlib.sha256()

def rounds(first, count):
    for n in range(first, first + count):
        stream = streams[n % 3]
        batch = cuda.to_device(random.integers(0, 1000, 700, dtype=np.uint32), stream=stream)
        for rate in range(3):
            step[782, 256, stream](weights, batch, rate)
        events[n % 5].record(stream)
        events[n % 5].wait(streams[(n + 1) % 3])
        shared_sum[100, 64, streams[(n + 1) % 3]](sums, weights)
        step[40, 256, streams[(n + 1) % 3]](managed, batch, 2)
        events[n % 5].record(streams[(n + 1) % 3])
        if n % 2:
            events[n % 5].synchronize()
            managed[n % 100] += 5
        else:
            weights[:1000].copy_to_host(pinned, stream=streams[(n + 1) % 3])
            streams[(n + 1) % 3].synchronize()
            digest.update(pinned.tobytes())
        events[n % 5].wait(streams[(n + 1) % 3])

rounds(0, 4)
cuda.synchronize()
for stage in range(int(sys.stdin.readline())):
    runtime.gpupool_detach()  # as the end of a cell does
    print("here", flush=True)
    assert sys.stdin.readline()
    for event in events:
        assert event.query()
    rounds(4 + 4 * stage, 4)
    cuda.synchronize()
digest.update(weights.copy_to_host().tobytes())
digest.update(sums.copy_to_host().tobytes())
digest.update(managed.tobytes())
print(digest.hexdigest(), flush=True)
"""


@pytest.fixture(scope="module")
def devices() -> list[ProbedDevice]:
    return probe(software_driver(), SOFTWARE)[1]


class Home:
    """The session's workers, one after the other, and the file that tells the program where it is."""

    def __init__(self, folder: Path, devices: list[ProbedDevice], tls: bool) -> None:
        self.folder, self.devices = folder, devices
        self.options = ("--tls", "on") if tls else ("--tls", "off")
        self.workers: list[WorkerProcess] = []

    def start(self, **more: object) -> WorkerProcess:
        n = len(self.workers)
        folder = self.folder / f"w{n}"
        folder.mkdir()
        worker = WorkerProcess(
            folder, software_driver(), [(self.devices[n % 2], 500, 256)], environment=SOFTWARE,
            epoch=n + 1, options=self.options, drain_seconds=120.0, **more,
        )  # type: ignore[arg-type]  # fmt: skip
        self.workers.append(worker.__enter__())
        return worker

    def move(self, client: Client, how: str) -> None:
        """The session goes to a new worker on the other device; the old one is killed."""
        old = self.workers[-1]
        assert old.ask(f"revoke epoch={old.epoch}", timeout=60).startswith("ok")
        assert old.stats()["move"] == "ok"
        if how == "folder":
            folder = self.folder / f"image{old.epoch}"
            assert old.ask(f"export folder={folder}", timeout=30).startswith("ok")
            old.process.kill()  # type: ignore[union-attr]
            new = self.start(session=old.session, token=old.token, image=folder)
        else:
            tcp = old.address.replace(f" local={old.local_path}", "")
            new = self.start(
                session=old.session,
                token=old.token,
                move_key=old.move_key,
                image_from=old.address if how == "local" else tcp,
            )
            old.process.kill()  # type: ignore[union-attr]
        SessionFile(client.folder / "session").write(
            "attached",
            session=new.session,
            epoch=new.epoch,
            address=new.address,
            token=new.token,
            software=True,
        )


@pytest.fixture
def home(request: pytest.FixtureRequest, tmp_path: Path, devices: list[ProbedDevice]) -> Iterator[Home]:
    made = Home(tmp_path, devices, request.param == "tls")
    yield made
    for worker in made.workers:
        worker.__exit__(None, None, None)


def talk(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def result(client: Client, home: Home, moves: list[str]) -> str:
    process = client.start(PROGRAM)
    talk(process, str(len(moves)))
    for how in moves:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said == "here\n", said + process.communicate()[1][-3000:]
        if how != "stay":
            home.move(client, how)
        talk(process, "go")
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, out + errors[-3000:]
    return out.strip()


MOVES = ["folder", "direct", "local", "folder"]


@pytest.fixture(scope="module")
def unmoved(tmp_path_factory: pytest.TempPathFactory, devices: list[ProbedDevice]) -> str:
    """What the program says when its session stays where it is."""
    folder = tmp_path_factory.mktemp("stay")
    home = Home(folder, devices, tls=False)
    try:
        return result(Client(folder, home.start()), home, ["stay"] * len(MOVES))
    finally:
        home.workers[0].__exit__(None, None, None)


@pytest.mark.parametrize("home", ["tcp", "tls"], indirect=True)
def test_a_program_goes_on_in_other_workers_as_if_it_had_stayed(
    home: Home, tmp_path: Path, unmoved: str
) -> None:
    assert result(Client(tmp_path, home.start()), home, MOVES) == unmoved
