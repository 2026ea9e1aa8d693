"""gpupool-worker and its lease: what the control socket grants and revokes, and when the worker fences itself."""

from __future__ import annotations

import contextlib
import socket
import struct
import time

from tests.support import wire_client
from tests.support.frozen import frozen
from tests.support.lone_workers import Start, connect, deadline_in, devices, driver, lease_status, start

__all__ = ["devices", "driver", "start"]  # the fixtures


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
        assert lease_status(client, 7) == wire_client.PAST_EPOCH
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
