"""gpupool-worker as a process: what it says, whom it lets in, when it stops serving, how it ends.

Real process, real sockets, the software GPU behind it.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import stat
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gpupool.bench.worker_process import (
    ProbedDevice,
    WorkerError,
    WorkerProcess,
    boottime_ns,
    probe,
    software_driver,
)
from gpupool.client.errors import RuntimeMissing
from gpupool.client.native import native_file

from tests.support import wire_client
from tests.support.frozen import frozen
from tests.support.wire_client import Closed, WireClient, hello_frame

SOFTWARE = {"GPUPOOL_SOFTGPU_DEVICES": "2", "GPUPOOL_SOFTGPU_MEMORY_MIB": "1024"}

Start = Callable[..., WorkerProcess]


@pytest.fixture(scope="module")
def driver() -> Path:
    try:
        native_file("bin", "gpupool-worker")
        return software_driver()
    except RuntimeMissing as missing:
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


# ---- start


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


# ---- who is let in


def test_the_right_token_gets_the_profile(start: Start, devices: list[ProbedDevice]) -> None:
    worker = start()
    with WireClient(worker.port) as client:
        reply = client.hello(worker.token, worker.session)
        assert reply.status == wire_client.OK
        assert devices[0].uuid.encode() in reply.body
        assert devices[1].uuid.encode() in reply.body


def test_a_wrong_token_or_session_is_closed_without_a_word(start: Start) -> None:
    worker = start()
    for token, session in [("00" * 32, worker.session), (worker.token, "00" * 16)]:
        with WireClient(worker.port) as client:
            client.socket.sendall(hello_frame(token, session))
            assert client.closed()
    with connect(worker):
        assert alive(worker)


def test_strangers_who_say_something_else_are_closed(start: Start) -> None:
    worker = start()
    ask = wire_client.HEADER.pack(24, wire_client.PING, wire_client.FLAG_ASK, 0, 0, 1)
    for first in [
        b"GET / HTTP/1.1\r\nHost: worker\r\n\r\n",
        ask,
        hello_frame(worker.token, worker.session, magic=0),
        wire_client.HEADER.pack(0xFFFFFFFF, wire_client.HELLO, wire_client.FLAG_ASK, 0, 0, 1) + bytes(72),
        wire_client.HEADER.pack(4097, wire_client.HELLO, wire_client.FLAG_ASK, 0, 0, 1) + bytes(4073),
    ]:
        with WireClient(worker.port) as client:
            client.socket.sendall(first)
            assert client.closed()
    assert alive(worker)


@pytest.mark.slow
def test_a_stranger_who_says_nothing_is_cut_after_five_seconds_and_holds_nobody_up(start: Start) -> None:
    worker = start()
    began = time.monotonic()
    with WireClient(worker.port, timeout=8) as silent, WireClient(worker.port, timeout=8) as slow:
        slow.socket.sendall(hello_frame(worker.token, worker.session)[:30])
        with connect(worker):
            assert time.monotonic() - began < 2
        assert silent.closed()
        assert slow.closed()
        assert 4 < time.monotonic() - began < 7


def test_a_crowd_of_strangers_does_not_keep_the_client_out(start: Start) -> None:
    worker = start()
    crowd = [WireClient(worker.port) for _ in range(100)]
    try:
        began = time.monotonic()
        with connect(worker):
            assert time.monotonic() - began < 2
    finally:
        for stranger in crowd:
            stranger.socket.close()


def test_one_client_at_a_time(start: Start) -> None:
    worker = start()
    with connect(worker, pid=100) as first:
        with WireClient(worker.port) as second:
            assert second.hello(worker.token, worker.session, pid=200).status == wire_client.CLOSED
            assert second.closed()
        assert first.ask(wire_client.PING).status == wire_client.OK
    with connect(worker, pid=200):
        assert alive(worker)


def test_the_same_process_may_replace_its_own_lost_connection(start: Start) -> None:
    worker = start()
    with connect(worker, pid=100) as lost, connect(worker, pid=100) as again:
        assert lost.closed()
        assert again.ask(wire_client.PING).status == wire_client.OK


# ---- malformed frames after HELLO


def malformed(seed: int) -> bytes:
    """A valid header with one thing wrong, or plain noise."""
    chance = random.Random(seed)
    message = chance.choice([1, 2, 3, 4, 64, 65, 70, 100, 150, 999, 65535])
    flags = chance.choice([0, 1, 2, 4, 5, 0xFFFF])
    length = chance.choice([0, 23, 24, 25, 32, 40, 4096, (64 << 20) + 1, 0x7FFFFFFF, 0xFFFFFFFF])
    header = wire_client.HEADER.pack(
        length, message, flags, chance.choice([0, 7, 8]), 0, chance.getrandbits(64)
    )
    return chance.choice([header, header + chance.randbytes(chance.randrange(200)), chance.randbytes(64)])


def test_malformed_and_truncated_frames_cost_their_connection_and_nothing_else(start: Start) -> None:
    worker = start()
    before = worker.stats()
    descriptors = 0
    for seed in range(120):
        with connect(worker) as client:
            client.socket.sendall(malformed(seed))
            client.socket.shutdown(socket.SHUT_WR)  # whatever was announced, no more comes
            while True:
                try:
                    if not client.socket.recv(65536):
                        break
                except ConnectionError:
                    break
        assert alive(worker), f"seed {seed}: {worker.log_path.read_text()[-2000:]}"
        if seed == 20:
            descriptors = idle_descriptors(worker)
    with connect(worker) as client:
        assert client.ask(wire_client.PING).status == wire_client.OK
    assert idle_descriptors(worker) <= descriptors
    assert worker.stats()["mem"] == before["mem"]


def idle_descriptors(worker: WorkerProcess) -> int:
    """Open files of the worker once it has put the last connection away: the fewest within a second."""
    assert worker.process is not None
    folder = Path(f"/proc/{worker.process.pid}/fd")
    counts = []
    for _ in range(20):
        counts.append(len(list(folder.iterdir())))
        time.sleep(0.05)
    return min(counts)


# ---- the lease


def lease_status(client: WireClient, epoch: int) -> int:
    return client.ask(wire_client.LEASE, epoch=epoch).status


def test_the_control_socket_grants_renews_and_revokes(start: Start) -> None:
    worker = start(epoch=7)
    with connect(worker) as client:
        assert lease_status(client, 7) == wire_client.OK
        assert lease_status(client, 6) == wire_client.PAST_EPOCH
        assert lease_status(client, 8) == wire_client.NOT_ATTACHED

        soon = deadline_in(600)
        assert worker.ask(f"lease epoch=7 deadline_ns={soon} share=0:200:256,1:500:512") == "ok epoch=7"
        assert worker.ask(f"lease epoch=6 deadline_ns={soon}") == "refused epoch=6 reason=past-epoch"

        assert worker.ask("revoke epoch=7") == "ok epoch=7"
        assert worker.ask("revoke epoch=7") == "ok epoch=7"
        assert worker.stats()["state"] == "parked"
        assert lease_status(client, 7) == wire_client.NOT_ATTACHED
        assert worker.ask(f"lease epoch=7 deadline_ns={soon}") == "refused epoch=7 reason=past-epoch"

        assert worker.ask(f"lease epoch=8 deadline_ns={soon} share=0:1000:1024") == "ok epoch=8"
        assert lease_status(client, 7) == wire_client.PAST_EPOCH
        assert lease_status(client, 8) == wire_client.OK
        assert worker.stats()["state"] == "attached"


def test_a_memory_share_that_changes_is_told_before_the_next_answer(start: Start) -> None:
    worker = start()
    with connect(worker) as client:
        assert client.ask(wire_client.LEASE, epoch=7).body == b""
        assert not client.pushes, "HELLO has said it"
        worker.ask(f"lease epoch=7 deadline_ns={deadline_in(600)} share=0:200:300,1:500:512")
        client.ask(wire_client.PING)
        [(message, body)] = client.pushes
        assert message == wire_client.SHARE_LIMIT
        assert struct.unpack("<IQI", body) == (0, 300 << 20, 0)


def test_commands_that_make_no_sense_are_answered_and_survived(start: Start) -> None:
    worker = start()
    for line in [
        "",
        "banana",
        "lease",
        "lease epoch=x deadline_ns=1",
        "revoke epoch=-1",
        "lease epoch=8 deadline_ns=1 share=9",
    ]:
        assert worker.ask(line).startswith("error ")
    assert worker.ask(f"lease epoch=8 deadline_ns={deadline_in(600)} share=2:100:100") == (
        "refused epoch=8 reason=bad-share"
    )
    assert worker.stats()["epoch"] == "7"


def test_an_endless_line_ends_its_connection_only(start: Start) -> None:
    worker = start()
    with socket.socket(socket.AF_UNIX) as other:
        other.settimeout(10)
        other.connect(str(worker.control_path))
        with contextlib.suppress(ConnectionError):
            other.sendall(b"x" * 100_000)
        with contextlib.suppress(ConnectionError):
            while other.recv(65536):
                pass
    assert worker.stats()["epoch"] == "7"


def test_a_worker_that_is_not_renewed_fences_itself(start: Start) -> None:
    worker = start(epoch=7, lease_seconds=1.5)
    with connect(worker) as client:
        assert lease_status(client, 7) == wire_client.OK
        assert worker.wait_for("fenced ", timeout=4) == "fenced epoch=7"
        assert lease_status(client, 7) == wire_client.FENCED
        assert worker.stats()["state"] == "fenced"
        # A renewal that comes too late must not resurrect it: the pool may have lent the share again.
        assert worker.ask(f"lease epoch=7 deadline_ns={deadline_in(600)}") == "refused epoch=7 reason=fenced"
        assert lease_status(client, 7) == wire_client.FENCED
        assert worker.ask(f"lease epoch=8 deadline_ns={deadline_in(600)}") == "ok epoch=8"
        assert lease_status(client, 8) == wire_client.OK


def test_renewals_keep_it_from_fencing(start: Start) -> None:
    worker = start(epoch=7, lease_seconds=1.0)
    with connect(worker) as client:
        for _ in range(6):
            time.sleep(0.3)
            assert worker.ask(f"lease epoch=7 deadline_ns={deadline_in(1.0)}") == "ok epoch=7"
        assert lease_status(client, 7) == wire_client.OK


def test_a_worker_stopped_beyond_its_deadline_wakes_up_fenced(start: Start) -> None:
    worker = start(epoch=7, lease_seconds=1.0)
    assert worker.process is not None
    with connect(worker) as client:
        with frozen(worker.process.pid):
            time.sleep(1.3)
        assert lease_status(client, 7) == wire_client.FENCED


# ---- what it tells


def test_the_agent_hears_of_the_client_and_of_changed_figures(start: Start) -> None:
    worker = start()
    client = connect(worker)
    assert worker.wait_for("client ") == "client connected=1"
    assert worker.stats()["client"] == "1"
    client.goodbye()
    client.socket.close()
    assert worker.wait_for("client ") == "client connected=0"
    pushed = worker.wait_for("stats ", timeout=3)
    assert " client=0 " in pushed


def test_a_lost_client_has_a_while_to_come_back(start: Start) -> None:
    worker = start(options=("--client-grace-seconds", "1"))
    with connect(worker):
        assert worker.wait_for("client ") == "client connected=1"
    began = time.monotonic()
    assert worker.wait_for("client ", timeout=4) == "client connected=0"
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


# ---- ends


def test_stop_answers_and_leaves_nothing(start: Start) -> None:
    worker = start()
    assert worker.process is not None
    assert worker.ask("stop") == "ok"
    assert worker.process.wait(5) == 0
    assert not worker.control_path.exists()
    with pytest.raises(ConnectionError):
        WireClient(worker.port)


def test_a_connected_client_sees_the_end_at_once(start: Start) -> None:
    worker = start()
    with connect(worker) as client:
        worker.send("stop")
        began = time.monotonic()
        assert client.closed()
        assert time.monotonic() - began < 3


def test_a_terminated_worker_removes_its_socket(start: Start) -> None:
    worker = start()
    assert worker.process is not None
    worker.process.terminate()
    assert worker.process.wait(5) == 0
    assert not worker.control_path.exists()


def test_kill_9_frees_both_sockets_for_a_successor(
    start: Start, driver: Path, devices: list[ProbedDevice]
) -> None:
    first = start()
    assert first.process is not None
    client = connect(first)
    first.process.kill()
    first.process.wait(5)
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
