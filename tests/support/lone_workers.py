"""Workers without a node agent, on the software GPU, as a test starts and asks them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gpupool.client.errors import RuntimeMissingError
from gpupool.client.native import native_file

from benchmarks.worker_process import (
    ProbedDevice,
    WorkerProcess,
    boottime_ns,
    probe,
    software_driver,
)
from tests.support import wire_client
from tests.support.wire_client import WireClient

SOFTWARE = {"GPUPOOL_SOFTGPU_DEVICES": "2", "GPUPOOL_SOFTGPU_MEMORY_MIB": "1024"}

Start = Callable[..., WorkerProcess]


@pytest.fixture(scope="module")
def driver() -> Path:
    try:
        native_file("bin", "gpupool-worker")
        return software_driver()
    except RuntimeMissingError as missing:
        pytest.fail(str(missing))


@pytest.fixture(scope="module")
def devices(driver: Path) -> list[ProbedDevice]:
    return probe(driver, SOFTWARE)[1]


@pytest.fixture
def start(driver: Path, devices: list[ProbedDevice], tmp_path: Path) -> Iterator[Start]:
    """Starts workers that the test need not end; checks that none of them died by itself."""
    running: list[WorkerProcess] = []

    def start_one(
        *, epoch: int = 7, lease_seconds: float = 600.0, options: tuple[str, ...] = ()
    ) -> WorkerProcess:
        folder = tmp_path / f"w{len(running)}"
        folder.mkdir()
        shares = [(devices[0], 200, 256), (devices[1], 500, 512)]
        worker = WorkerProcess(
            folder,
            driver,
            shares,
            epoch=epoch,
            lease_seconds=lease_seconds,
            environment=SOFTWARE,
            options=options,
        )
        running.append(worker.__enter__())
        return worker

    yield start_one
    for worker in running:
        worker.__exit__(None, None, None)


def connect(worker: WorkerProcess, *, pid: int | None = None) -> WireClient:
    """An authenticated connection."""
    client = WireClient(worker.port)
    reply = client.hello(worker.token, worker.session, pid=pid)
    assert reply.status == wire_client.OK, reply
    return client


def alive(worker: WorkerProcess) -> bool:
    return worker.process is not None and worker.process.poll() is None


def deadline_in(seconds: float) -> int:
    return boottime_ns() + int(seconds * 1e9)


def lease_status(client: WireClient, epoch: int) -> int:
    return client.ask(wire_client.LEASE, epoch=epoch).status
