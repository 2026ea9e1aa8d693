"""The delayed network of the benchmarks: bytes come later, in order, and as many at a time as without it."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from gpupool.bench.longer_way import longer_way

from tests.support.pool_node import native_worker_is_built

pytestmark = pytest.mark.skipif(not native_worker_is_built(), reason="native parts not built")


def echo(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        while data := connection.recv(1 << 16):
            connection.sendall(data)


def receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (part := connection.recv(size - len(data))):
        data += part
    return data


def test_a_round_trip_takes_the_delay_and_a_stream_takes_it_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=echo, args=(listener,), daemon=True).start()
        with longer_way(f"127.0.0.1:{listener.getsockname()[1]}", 40_000) as address:
            host, _, port = address.partition(":")
            with socket.create_connection((host, int(port))) as connection:
                started = time.monotonic()
                connection.sendall(b"x")
                assert receive(connection, 1) == b"x"
                assert time.monotonic() - started >= 0.04
                sent = bytes(range(256)) * 400
                started = time.monotonic()
                for at in range(0, len(sent), 1024):
                    connection.sendall(sent[at : at + 1024])
                    time.sleep(0.001)
                assert receive(connection, len(sent)) == sent
                # A hundred pieces that each waited for the one before would take four seconds.
                assert 0.1 <= time.monotonic() - started < 2


def test_no_delay_is_no_detour() -> None:
    with longer_way("192.0.2.1:1", 0) as address:
        assert address == "192.0.2.1:1"
