"""gpupool-worker as a process: how it starts, what it tells, how it ends.

Real process, real sockets, the software GPU behind it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import stat
import subprocess
import time
from pathlib import Path

import pytest
from gpupool.client.native import native_file

from benchmarks.worker_process import (
    ProbedDevice,
    WorkerError,
    WorkerProcess,
    probe,
)
from tests.support import wire_client
from tests.support.lone_workers import (
    SOFTWARE,
    Start,
    alive,
    connect,
    deadline_in,
    devices,
    driver,
    lease_status,
    start,
)
from tests.support.wire_client import Closed, WireClient

__all__ = ["devices", "driver", "start"]  # the fixtures


def test_the_probe_describes_every_device(driver: Path) -> None:
    profile, found = probe(driver, SOFTWARE)
    assert profile.startswith("driver_version ")
    assert len(found) == 2
    assert len({device.uuid for device in found}) == 2
    assert all(device.total_mib == 1024 for device in found)
    assert all(device.name.startswith("Software GPU") for device in found)
    assert "\nsoftware 1\n" in profile
    assert "\nattribute 75 " in profile  # compute capability, major


def test_a_driver_that_cannot_be_opened_is_one_clear_sentence(tmp_path: Path) -> None:
    program = native_file("bin", "gpupool-worker")
    done = subprocess.run(
        [program, "--driver", tmp_path / "no.so", "--probe"], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 1
    assert "cannot open the driver" in done.stderr


def test_wrong_arguments_print_the_usage() -> None:
    program = native_file("bin", "gpupool-worker")
    for arguments in ([], ["--driver"], ["--driver", "x"], ["--bogus"], ["--driver", "x", "--probe", "more"]):
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=30)
        assert done.returncode == 2
        assert "usage: gpupool-worker" in done.stderr


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ("\n", "error start record: `session` is missing"),
        ("session zz\n\n", "error start record: bad value for `session`"),
        ("lonely\n\n", "error start record: a line without a value"),
        ("x" * 70_000, "error start record: longer than 64 KiB"),
    ],
)
def test_a_bad_start_record_ends_it_with_the_reason(
    driver: Path, tmp_path: Path, record: str, said: str
) -> None:
    command: list[str | Path] = [
        native_file("bin", "gpupool-worker"),
        "--driver",
        driver,
        "--control",
        tmp_path / "c.sock",
    ]
    done = subprocess.run(command, input=record, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert done.stdout.strip() == said
    assert not (tmp_path / "c.sock").exists()


def test_an_error_never_shows_the_token(driver: Path, tmp_path: Path) -> None:
    command: list[str | Path] = [
        native_file("bin", "gpupool-worker"),
        "--driver",
        driver,
        "--control",
        tmp_path / "c.sock",
    ]
    secret = "ab" * 32
    record = f"session {'0' * 32}\ntoken {secret}\nepoch 1\ndeadline_ns 1\ndevice 99 {'0' * 32} 1 1\n\n"
    done = subprocess.run(command, input=record, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert done.stdout.startswith("error ")
    assert secret not in done.stdout + done.stderr


def test_a_device_is_found_by_its_uuid_and_never_another_in_its_place(
    driver: Path, devices: list[ProbedDevice], tmp_path: Path
) -> None:
    moved = ProbedDevice(0, devices[1].uuid, 1024, devices[1].name)  # an ordinal from another environment
    with (
        WorkerProcess(tmp_path, driver, [(moved, 200, 256)], environment=SOFTWARE) as worker,
        WireClient(worker.port) as client,
    ):
        profile = client.hello(worker.token, worker.session).body
        assert devices[1].uuid.encode() in profile
        assert devices[0].uuid.encode() not in profile
    unknown = ProbedDevice(0, "0" * 32, 1024, "unknown")
    with pytest.raises(WorkerError, match="no device with UUID"):
        WorkerProcess(tmp_path, driver, [(unknown, 200, 256)], environment=SOFTWARE).__enter__()


def test_ready_means_both_sockets_listen_and_the_process_is_hardened(start: Start) -> None:
    worker = start()
    assert worker.process is not None
    pid = worker.process.pid
    assert stat.S_IMODE(worker.control_path.stat().st_mode) == 0o600
    with WireClient(worker.port):
        pass
    assert os.getpgid(pid) == pid
    status = Path(f"/proc/{pid}/status").read_text()
    assert "NoNewPrivs:\t1" in status
    limits = Path(f"/proc/{pid}/limits").read_text()
    assert any(line.split()[:5] == ["Max", "core", "file", "size", "0"] for line in limits.splitlines())
    assert worker.token not in Path(f"/proc/{pid}/cmdline").read_text()


def test_it_listens_on_loopback_only(start: Start) -> None:
    worker = start()
    listening = [
        line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:] if " 0A " in line
    ]
    mine = [address for address in listening if int(address.partition(":")[2], 16) == worker.port]
    assert mine == [f"0100007F:{worker.port:04X}"]


# ---- what it tells


def test_the_agent_hears_of_the_client_and_of_changed_figures(start: Start) -> None:
    worker = start()
    client = connect(worker)
    assert worker.wait_for("client ") == "client connected=1"
    assert worker.stats()["client"] == "1"
    client.goodbye()
    client.socket.close()
    assert worker.wait_for("client ") == "client connected=0"
    pushed = worker.wait_for("stats ", timeout=30)
    assert " client=0 " in pushed


def test_a_lost_client_has_a_while_to_come_back(start: Start) -> None:
    worker = start(options=("--client-grace-seconds", "1"))
    with connect(worker):
        assert worker.wait_for("client ") == "client connected=1"
    began = time.monotonic()
    assert worker.wait_for("client ", timeout=30) == "client connected=0"
    assert time.monotonic() - began > 0.8


def test_a_new_agent_takes_over_where_the_old_one_crashed(start: Start) -> None:
    worker = start()
    assert worker._control is not None
    worker._control.close()
    with connect(worker) as client:
        worker._control = socket.socket(socket.AF_UNIX)
        worker._control.connect(str(worker.control_path))
        worker._received = b""
        # What it missed is told again.
        assert worker.wait_for("client ") == "client connected=1"
        assert worker.ask(f"lease epoch=7 deadline_ns={deadline_in(600)}") == "ok epoch=7"
        assert lease_status(client, 7) == wire_client.OK


# ---- what runs out


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_thread_that_cannot_be_made_costs_one_command(start: Start) -> None:
    worker = start()
    assert worker.process is not None
    pid = worker.process.pid
    assert worker.ask("revoke epoch=7").startswith("ok")
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + (1 << 20)  # a thread's stack is larger
    resource.prlimit(pid, resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    assert worker.ask("park epoch=7") == "refused epoch=7 reason=busy"
    resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert worker.ask("park epoch=7").startswith("ok epoch=7")


def test_an_agent_that_finds_no_descriptor_left_is_let_in_later_and_the_worker_rests_meanwhile(
    start: Start,
) -> None:
    worker = start()
    assert worker.process is not None
    pid = worker.process.pid
    assert worker.stats()["epoch"] == "7"
    taken = {int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    first_free = min(set(range(len(taken) + 1)) - taken)
    held = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (first_free, held[1]))
    with contextlib.ExitStack() as agents:
        waiting = [agents.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(8)]
        for agent in waiting:
            agent.connect(str(worker.control_path))
        assert worker.stats()["epoch"] == "7"
        before = processor_seconds(pid)
        time.sleep(1.0)
        assert processor_seconds(pid) - before <= 0.1
        resource.prlimit(pid, resource.RLIMIT_NOFILE, held)
        waiting[-1].settimeout(30)
        waiting[-1].sendall(b"stats\n")
        assert waiting[-1].recv(6) == b"stats "


# ---- ends


def test_stop_answers_and_leaves_nothing(start: Start) -> None:
    worker = start()
    assert worker.process is not None
    assert worker.ask("stop") == "ok"
    assert worker.process.wait(60) == 0
    assert not worker.control_path.exists()
    with pytest.raises(ConnectionError):
        WireClient(worker.port)


def test_a_connected_client_sees_the_end_at_once(start: Start) -> None:
    worker = start()
    with connect(worker) as client:
        worker.send("stop")
        assert client.closed()


def test_a_terminated_worker_removes_its_socket(start: Start) -> None:
    worker = start()
    assert worker.process is not None
    worker.process.terminate()
    assert worker.process.wait(60) == 0
    assert not worker.control_path.exists()


def test_kill_9_frees_both_sockets_for_a_successor(
    start: Start, driver: Path, devices: list[ProbedDevice]
) -> None:
    first = start()
    assert first.process is not None
    client = connect(first)
    first.process.kill()
    first.process.wait(60)
    with pytest.raises(Closed):
        client.ask(wire_client.PING)
    client.socket.close()
    with pytest.raises(ConnectionError):
        WireClient(first.port)
    # The dead worker's socket file is in the way of nobody.
    second = WorkerProcess(
        first.directory,
        driver,
        [(devices[0], 200, 256)],
        environment=SOFTWARE,
        options=("--listen", f"127.0.0.1:{first.port}"),
    )
    with second:
        assert second.port == first.port
        assert second.stats()["epoch"] == "1"


def test_a_living_workers_control_socket_is_not_taken_over(
    start: Start, driver: Path, devices: list[ProbedDevice]
) -> None:
    first = start()
    rival = WorkerProcess(first.directory, driver, [(devices[0], 200, 256)], environment=SOFTWARE)
    with pytest.raises(WorkerError, match="cannot listen"):
        rival.__enter__()
    assert first.stats()["epoch"] == "7"


def test_an_orphan_without_lease_ends_by_itself(start: Start) -> None:
    worker = start(lease_seconds=0.5, options=("--orphan-exit-seconds", "1"))
    assert worker.process is not None
    assert worker._control is not None
    worker._control.close()
    assert worker.process.wait(6) == 0
    assert not worker.control_path.exists()


def test_an_orphan_with_a_lease_goes_on(start: Start) -> None:
    worker = start(options=("--orphan-exit-seconds", "0"))
    assert worker._control is not None
    worker._control.close()
    time.sleep(1.5)
    assert alive(worker)
    with connect(worker) as client:
        assert lease_status(client, 7) == wire_client.OK
