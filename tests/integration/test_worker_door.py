"""Whom gpupool-worker lets in, and what strangers and broken frames cost it."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from pathlib import Path

import pytest

from benchmarks.worker_process import (
    ProbedDevice,
    WorkerProcess,
)
from tests.support import wire_client
from tests.support.lone_workers import Start, alive, connect, devices, driver, start
from tests.support.wire_client import WireClient, hello_frame

#: The worker's exit status after its session was ended at the door.
RESET_EXIT = 10

__all__ = ["devices", "driver", "start"]  # the fixtures


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


def test_strangers_fill_no_log(start: Start) -> None:
    worker = start()
    began = time.monotonic()
    for _ in range(200):
        with WireClient(worker.port) as client:
            client.socket.sendall(b"GET / HTTP/1.1\r\nHost: worker\r\n\r\n")
            assert client.closed()
    seconds = time.monotonic() - began
    assert alive(worker)
    # However long it took: the first one, and one for each second since.
    assert 1 <= worker.log_path.read_text().count("a connection was closed") <= 1 + int(seconds)


@pytest.mark.slow
def test_a_stranger_who_says_nothing_is_cut_after_five_seconds_and_holds_nobody_up(start: Start) -> None:
    worker = start()
    began = time.monotonic()
    with WireClient(worker.port, timeout=60) as silent, WireClient(worker.port, timeout=60) as slow:
        slow.socket.sendall(hello_frame(worker.token, worker.session)[:30])
        with connect(worker):
            assert not silent.ended() and not slow.ended()
        assert silent.closed()
        assert slow.closed()
        assert time.monotonic() - began > 4


def test_a_crowd_of_strangers_does_not_keep_the_client_out(start: Start) -> None:
    worker = start()
    crowd = [WireClient(worker.port) for _ in range(100)]
    try:
        with connect(worker):
            assert not all(stranger.ended() for stranger in crowd)
    finally:
        for stranger in crowd:
            stranger.socket.close()


def test_a_crowd_from_elsewhere_does_not_cut_off_a_slow_client(start: Start) -> None:
    worker = start()
    hello = hello_frame(worker.token, worker.session)
    with contextlib.ExitStack() as stack:
        slow = stack.enter_context(WireClient(worker.port, source="127.0.0.2"))
        slow.socket.sendall(hello[:30])
        for _ in range(100):
            stack.enter_context(WireClient(worker.port))
        slow.socket.sendall(hello[30:])
        assert slow.read_reply().status == wire_client.OK


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


# ---- questions that the door answers itself

#: u8 state, u8 awaits a turn, i32 failure, u64 milliseconds, and two texts without a character.
NOTHING_RUNS = struct.pack("<BBiQII", 0, 0, 0, 0, 0, 0)


def test_who_knows_the_token_may_ask_what_runs_while_a_client_has_the_seat(start: Start) -> None:
    worker = start()
    with connect(worker) as client:
        for _ in range(3):
            with WireClient(worker.port) as visitor:
                visitor.socket.sendall(hello_frame(worker.token, worker.session, message=wire_client.INQUIRE))
                reply = visitor.read_reply()
                assert (reply.message, reply.status) == (wire_client.INQUIRE, wire_client.OK)
                assert reply.body == NOTHING_RUNS
                assert visitor.closed()
        assert client.ask(wire_client.PING).status == wire_client.OK


def test_at_the_unix_socket_the_answer_comes_over_the_socket_itself(start: Start) -> None:
    worker = start()
    with socket.socket(socket.AF_UNIX) as visitor:
        visitor.settimeout(10)
        visitor.connect(str(worker.local_path))
        visitor.sendall(hello_frame(worker.token, worker.session, message=wire_client.INQUIRE))
        answer = b""
        while part := visitor.recv(4096):
            answer += part
    assert answer[wire_client.HEADER.size + wire_client.REPLY.size :] == NOTHING_RUNS


@pytest.mark.parametrize("message", [wire_client.INQUIRE, wire_client.END_SESSION])
def test_strangers_learn_nothing_and_end_nothing(start: Start, message: int) -> None:
    worker = start()
    good = hello_frame(worker.token, worker.session, message=message)
    for frame in [
        hello_frame("00" * 32, worker.session, message=message),
        hello_frame(worker.token, "00" * 16, message=message),
        hello_frame(worker.token, worker.session, message=message, magic=0),
        hello_frame(worker.token, worker.session, message=wire_client.END_SESSION + 1),
        *(good[:size] for size in (1, 23, 24, 60, len(good) - 1)),
    ]:
        with WireClient(worker.port) as stranger:
            stranger.socket.sendall(frame)
            with contextlib.suppress(OSError):  # it has hung up already
                stranger.socket.shutdown(socket.SHUT_WR)
            assert stranger.closed()
    with connect(worker):
        assert alive(worker)


def test_the_end_of_a_session_is_confirmed_and_leaves_nothing(start: Start) -> None:
    worker = start()
    with connect(worker) as client, WireClient(worker.port) as visitor:
        visitor.socket.sendall(hello_frame(worker.token, worker.session, message=wire_client.END_SESSION))
        reply = visitor.read_reply()
        assert (reply.message, reply.status) == (wire_client.END_SESSION, wire_client.OK)
        assert worker.process is not None
        assert worker.process.wait(10) == RESET_EXIT
        assert client.closed()
    assert not worker.control_path.exists()
    assert not worker.local_path.exists()


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
