"""A session goes straight from one worker to another, or stays where it is."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest

from benchmarks.worker_process import WorkerError, WorkerProcess
from tests.support.moving_session import (
    GRANULE,
    Program,
    Start,
    connect,
    start,
)
from tests.support.stack import wait_until
from tests.support.table_client import TableClient, handle
from tests.support.wire_client import SESSION, hello_frame
from tests.support.worker_state import used_bytes

__all__ = ["start"]  # the fixture


def address_of(worker: WorkerProcess, how: str) -> str:
    tcp = f"127.0.0.1:{worker.port}"
    return {"tcp": tcp, "tls": f"{tcp} tls={worker.fingerprint}", "shared memory": worker.address}[how]


def come_for(start: Start, old: WorkerProcess, **more: object) -> WorkerProcess:
    """Starts a worker that takes the session of `old` over."""
    return start(session=old.session, token=old.token, move_key=old.move_key, **more)


@pytest.mark.parametrize("how", ["tcp", "tls", "shared memory"])
def test_a_session_goes_straight_from_one_worker_to_another(start: Start, how: str) -> None:
    old = start(options=("--tls", "on") if how == "tls" else ())
    program = Program()
    client = connect(old)
    program.set_up(client)
    assert old.ask("revoke epoch=1").startswith("ok")
    new = come_for(start, old, epoch=2, image_from=address_of(old, how), device=1)
    program.check(connect(new))
    # The old one has it still, and stands still: nothing that a late client says changes what was taken.
    assert used_bytes(old) // GRANULE == 17
    client.post("UnmapMemory", device=0, address=program.large, size=16 * GRANULE)
    assert used_bytes(old) // GRANULE == 17


class Meddler:
    """Passes bytes between two TCP ends; damages one, or hangs up, after so many from the worker."""

    def __init__(self, port: int, *, after: int, damage: bool) -> None:
        self._target, self._after, self._damage = port, after, damage
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        near, _ = self._listener.accept()
        far = socket.create_connection(("127.0.0.1", self._target))
        threading.Thread(target=self._pass, args=(near, far, None), daemon=True).start()
        self._pass(far, near, self._after)

    def _pass(self, source: socket.socket, sink: socket.socket, after: int | None) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if after is not None and passed <= after < passed + len(data):
                    changed = bytearray(data)
                    changed[after - passed] ^= 1
                    data = bytes(changed) if self._damage else data[: after - passed]
                    sink.sendall(data)
                    if not self._damage:
                        break
                else:
                    sink.sendall(data)
                passed += len(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()


@pytest.mark.parametrize("after", [5, 400, GRANULE])
@pytest.mark.parametrize("damage", [True, False], ids=["damaged", "cut"])
def test_a_move_that_goes_wrong_leaves_the_session_where_it_is(
    start: Start, after: int, damage: bool
) -> None:
    old = start()
    program = Program()
    client = connect(old)
    program.set_up(client)
    assert old.ask("revoke epoch=1").startswith("ok")
    meddler = Meddler(old.port, after=after, damage=damage)
    with pytest.raises(WorkerError) as failure:
        come_for(start, old, epoch=2, image_from=f"127.0.0.1:{meddler.port}")
    meddler.close()
    said = str(failure.value)
    assert any(
        words in said for words in ("damaged", "broke", "something else", "sent no image", "too large")
    ), said
    assert old.move_key not in said
    assert old.ask("lease epoch=3 deadline_ns=9000000000000000000").startswith("ok")
    client.epoch = 3
    program.check(client)


def test_a_session_with_a_lease_in_force_is_not_handed_over(start: Start) -> None:
    old = start()
    program = Program()
    client = connect(old)
    program.set_up(client)
    with pytest.raises(WorkerError, match="does not hand it over: attached"):
        come_for(start, old, epoch=2, image_from=address_of(old, "tcp"))
    assert old.ask("revoke epoch=1").startswith("ok")
    with pytest.raises(WorkerError, match="broke"):  # the client's token is not enough
        start(epoch=2, session=old.session, token=old.token, image_from=address_of(old, "tcp"))
    graph = handle("graph", 1)
    assert old.ask("lease epoch=2 deadline_ns=9000000000000000000").startswith("ok")
    client.epoch = 2
    assert client.call("cuGraphCreate", phGraph=graph, flags=0)["result"] == 0
    assert old.ask("revoke epoch=2").startswith("ok")
    with pytest.raises(WorkerError, match="does not hand it over: graphs"):
        come_for(start, old, epoch=3, image_from=address_of(old, "tcp"))


def test_a_worker_that_stops_in_the_middle_does_not_keep_the_session(start: Start) -> None:
    old = start()
    program = Program()
    client = connect(old)
    program.set_up(client)
    assert old.ask("revoke epoch=1").startswith("ok")
    with TableClient(old.port) as stopped:
        frame = bytearray(hello_frame(old.move_key, old.session))
        frame[4] = SESSION
        stopped.socket.sendall(frame)
        assert stopped.socket.recv(10)  # the manifest begins, so the session stands still
        assert old.ask("lease epoch=2 deadline_ns=9000000000000000000").startswith("ok")
        client.epoch = 2
        program.check(client)


def test_a_client_does_not_bring_its_parked_memory_back_without_a_lease(start: Start) -> None:
    old = start()
    Program().set_up(connect(old))
    assert old.ask("revoke epoch=1").startswith("ok")
    assert old.ask("park epoch=1", timeout=30).startswith("ok")
    with TableClient(old.port) as client:
        client.socket.sendall(hello_frame(old.token, old.session, message=SESSION))
        assert client.socket.recv(1) == b""
    assert old.stats()["place"] == "host"


def test_memory_in_the_host_goes_there_again_when_the_move_goes_wrong(start: Start) -> None:
    old = start()
    program = Program()
    client = connect(old)
    program.set_up(client)
    assert old.ask("revoke epoch=1").startswith("ok")
    assert old.ask("park epoch=1", timeout=30).startswith("ok")
    meddler = Meddler(old.port, after=400, damage=False)
    with pytest.raises(WorkerError):
        come_for(start, old, epoch=2, image_from=f"127.0.0.1:{meddler.port}")
    meddler.close()
    wait_until(lambda: old.stats()["place"] == "host", 30, "the memory to be in the host", interval=0.05)
    assert old.ask("lease epoch=3 deadline_ns=9000000000000000000", timeout=30).startswith("ok")
    client.epoch = 3
    program.check(client)


def test_a_worker_that_comes_waits_for_the_end_of_one_that_is_gone(start: Start) -> None:
    old = start()
    Program().set_up(connect(old))
    assert old.ask("revoke epoch=1").startswith("ok")
    frame = hello_frame(old.move_key, old.session, message=SESSION)
    with TableClient(old.port) as gone, TableClient(old.port) as next_one:
        gone.socket.sendall(frame)
        assert gone.socket.recv(10)
        next_one.socket.sendall(frame)
        gone.socket.close()
        assert next_one.socket.recv(10)


def test_a_worker_that_is_not_there_is_named(start: Start) -> None:
    with pytest.raises(WorkerError, match="cannot be reached"):
        start(epoch=2, image_from="127.0.0.1:1")
