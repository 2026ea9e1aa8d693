"""A pool of one user on one machine: it is there for all who hold it, once, and ends with the last of them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import psutil
import pytest
from gpupool.client.admin import AdminClient
from gpupool.client.pool import PoolClient
from gpupool.client.port_check import OpenPorts
from gpupool.embedded import paths
from gpupool.embedded.join import EmbeddedError, Lifeline, join, runs_by_itself
from gpupool.embedded.options import EmbeddedOptions

from tests.support.patience import BUSY
from tests.support.stack import wait_until

OPTIONS = EmbeddedOptions(driver="software", software_gpus=3, memory_mib=1024)
HOLDER = """
import sys, time
from pathlib import Path
from gpupool.embedded.join import join
from gpupool.embedded.options import EmbeddedOptions
line = join(Path(sys.argv[1]), EmbeddedOptions(driver="software", software_gpus=1, memory_mib=1024))
print("held", line.started, flush=True)
time.sleep(600)
"""


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # Its ledger is in its home, whatever other pools this machine's administrator works on.
    monkeypatch.setenv("GPUPOOL_LEDGER", "postgresql+psycopg://nobody@nowhere.invalid/pool")
    # A short path: addresses of Unix sockets end at 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="gp-"))
    yield folder
    for process in of_home(folder):
        process.kill()
    rmtree(folder, ignore_errors=True)


def of_home(home: Path) -> list[psutil.Process]:
    """The keeper, the pool and the node of a home."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        try:
            words = process.info["cmdline"] or []
            ours = any("gpupool.embedded" in word or "gpupool.cli.main" in word for word in words)
            if ours and process.environ().get("GPUPOOL_HOME") == str(home):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def wait_ended(home: Path) -> None:
    wait_until(lambda: not of_home(home), 60, "the keeper, the pool and the node to end")


def held(home: Path, options: EmbeddedOptions = OPTIONS) -> Lifeline:
    lifeline = join(home, options)
    assert lifeline is not None
    return lifeline


def holder(home: Path) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(home)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


@pytest.mark.slow
def test_those_who_come_at_once_find_one_pool_which_ends_with_the_last(home: Path) -> None:
    found: list[Lifeline] = []
    threads = [threading.Thread(target=lambda: found.append(held(home))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120 * BUSY)
    assert sorted(line.started for line in found) == [False, False, False, True]
    assert len({tuple(sorted(line.ready.pids.items())) for line in found}) == 1
    assert len(of_home(home)) == 3
    gpus = found[0].ready.gpus
    assert [(gpu.software, gpu.mib) for gpu in gpus] == [(True, gpus[0].mib)] * 3
    assert found[0].ready.endpoint == f"unix:{home}/pool.sock"
    assert (home / "pool.sqlite").exists()
    assert [line.leave() for line in found[:3]] == [3, 2, 1]
    assert len(of_home(home)) == 3
    assert found[3].leave() == 0
    # What it was told is true: neither pool nor node run any more, and the next one can start.
    assert [each for each in of_home(home) if "gpupool.embedded" not in each.cmdline()] == []
    assert not paths.lifeline_socket(home).exists()
    again = held(home)
    assert again.started
    again.close()
    wait_ended(home)


@pytest.mark.slow
def test_its_node_listens_on_the_ports_that_were_asked_for(home: Path) -> None:
    lifeline = join(home, replace(OPTIONS, port_range="42100-42103"))
    assert lifeline is not None

    async def opened() -> OpenPorts:
        async with PoolClient(lifeline.ready.endpoint) as pool:
            admin = AdminClient(pool)
            (node,) = await admin.nodes()
            return await admin.open_ports(node.name, 0)

    ports = asyncio.run(opened())
    assert (ports.host, ports.first, ports.last) == ("127.0.0.1", 42100, 42103)
    assert lifeline.leave() == 0


@pytest.mark.slow
def test_it_ends_when_who_started_it_is_killed(home: Path) -> None:
    process, said = holder(home)
    assert said == "held True"
    second, said = holder(home)
    assert said == "held False"
    process.kill()
    process.wait()
    line = held(home)
    assert not line.started, "the second holds it still"
    line.close()
    os.kill(second.pid, signal.SIGKILL)
    second.wait()
    wait_ended(home)


@pytest.mark.slow
def test_a_keeper_that_is_killed_leaves_nothing_and_is_in_nobodys_way(home: Path) -> None:
    line = held(home)
    keeper = next(process for process in of_home(home) if "gpupool.embedded" in process.cmdline())
    keeper.kill()
    # At once: the pool of before may still answer, and must not be taken for somebody else's.
    again = held(home)
    assert again.started
    assert not set(again.ready.pids.values()) & set(line.ready.pids.values())
    with pytest.raises(EmbeddedError, match="ended"):
        line.told(5.0)
    again.close()
    wait_ended(home)


@pytest.mark.slow
def test_a_dead_pool_is_started_again_and_its_holders_hear_of_it(home: Path) -> None:
    line = held(home)
    before = line.ready.pids
    os.kill(before["the pool"], signal.SIGKILL)
    told = line.told(60 * BUSY)
    assert told is not None
    assert told.state == "restarted"
    assert "the pool ended with status -9" in told.text
    assert told.pids["the pool"] != before["the pool"]
    assert told.pids["the node"] == before["the node"]
    line.leave()


def test_a_dead_node_that_is_not_to_be_started_again_is_told(home: Path) -> None:
    line = held(home, replace(OPTIONS, restarts=False))
    os.kill(line.ready.pids["the node"], signal.SIGKILL)
    told = line.told(60 * BUSY)
    assert told is not None
    assert told.state == "died"
    assert "the node ended with status -9" in told.text
    line.leave()


def test_a_pool_that_somebody_else_started_is_left_alone(home: Path) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(home / "pool.sock"))
        door.listen()
        assert runs_by_itself(home)
        assert join(home, OPTIONS) is None
    assert not runs_by_itself(home)
    assert of_home(home) == []


@pytest.mark.slow
def test_what_cannot_be_started_says_why(home: Path) -> None:
    said: list[str] = []
    with pytest.raises(EmbeddedError, match="the node ended while starting"):
        join(home, EmbeddedOptions(driver="/nowhere/libcuda.so.1"), said.append)
    wait_ended(home)
    # Nothing is left in the way of the next.
    line = held(home)
    line.leave()


def test_a_keeper_of_another_version_is_not_misunderstood(home: Path) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(paths.lifeline_socket(home)))
        door.listen()

        def speak() -> None:
            connection, _ = door.accept()
            connection.sendall(b'{"state": "ready"}\n')
            time.sleep(1)
            connection.close()

        speaking = threading.Thread(target=speak)
        speaking.start()
        with pytest.raises(EmbeddedError, match="another version"):
            join(home, OPTIONS)
        speaking.join()
