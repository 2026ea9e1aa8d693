"""The place where the network is measured: for whom it is, once, for a short time."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest
from gpupool.client.netperf import NotMeasuredError, measure
from gpupool.node.meter import ORDER, Meter, MeterBusyError

from tests.support.patience import until_late

TICKET = "ab" * 32
HOST = "127.0.0.1"


def test_it_measures_round_trips_and_both_directions() -> None:
    port = Meter(HOST).open(TICKET)
    measured = measure(f"{HOST}:{port}", TICKET, round_trips=100, seconds=0.05)
    assert measured.round_trips == 100
    assert 0 < measured.round_trip_us <= measured.round_trip_p99_us
    assert measured.to_node_gbit > 0
    assert measured.from_node_gbit > 0


def test_a_slow_way_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    import gpupool.node.meter as module

    receive = module._receive

    def slow(connection: socket.socket, buffer: bytearray, deadline: float) -> bytearray:
        time.sleep(0.003)
        return receive(connection, buffer, deadline)

    monkeypatch.setattr(module, "_receive", slow)
    measured = measure(f"{HOST}:{Meter(HOST).open(TICKET)}", TICKET, round_trips=20, seconds=0.05)
    assert measured.round_trip_us > 3000
    assert not measured.advised


def test_one_at_a_time_and_free_again_afterwards() -> None:
    meter = Meter(HOST, open_seconds=5.0)
    port = meter.open(TICKET)
    with pytest.raises(MeterBusyError, match="somebody else"):
        meter.open("cd" * 32)
    measure(f"{HOST}:{port}", TICKET, round_trips=10, seconds=0.05)
    deadline = time.monotonic() + 5
    while True:
        try:
            meter.open(TICKET)
            break
        except MeterBusyError:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_stranger_gets_nothing_and_takes_nobodys_place() -> None:
    port = Meter(HOST).open(TICKET)
    with socket.create_connection((HOST, port), timeout=5) as stranger:
        stranger.sendall(b"0" * 64 + ORDER.pack(b"D", 1 << 20))
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    assert measure(f"{HOST}:{port}", TICKET, round_trips=10, seconds=0.05).round_trips == 10


def test_a_ticket_is_good_once() -> None:
    port = Meter(HOST).open(TICKET)
    measure(f"{HOST}:{port}", TICKET, round_trips=10, seconds=0.05)
    with pytest.raises(NotMeasuredError, match=str(port)):
        measure(f"{HOST}:{port}", TICKET, round_trips=10, seconds=0.05)


def free_again(meter: Meter) -> None:
    """It opens once more, as soon as it has closed."""
    until = until_late(5)
    while True:
        with contextlib.suppress(MeterBusyError):
            meter.open(TICKET)
            return
        assert time.monotonic() < until
        time.sleep(0.01)


def test_it_closes_when_nobody_comes() -> None:
    meter = Meter(HOST, open_seconds=0.2)
    meter.open(TICKET)
    free_again(meter)


def test_it_closes_when_its_time_is_over() -> None:
    meter = Meter(HOST, open_seconds=1.0)
    port = meter.open(TICKET)
    with socket.create_connection((HOST, port), timeout=5) as caller:
        caller.sendall(TICKET.encode() + ORDER.pack(b"U", 1 << 30))
        caller.settimeout(5)
        try:
            while True:
                caller.sendall(bytes(65536))
        except OSError:
            pass
    free_again(meter)


@pytest.mark.parametrize("order", [ORDER.pack(b"D", 1 << 60), ORDER.pack(b"E", 1 << 40), ORDER.pack(b"?", 1)])
def test_orders_that_are_too_large_or_unknown_end_the_connection(order: bytes) -> None:
    port = Meter(HOST).open(TICKET)
    with socket.create_connection((HOST, port), timeout=5) as caller:
        caller.sendall(TICKET.encode() + order)
        assert caller.recv(1) == b""


def test_where_nothing_listens_is_said_with_the_address() -> None:
    with pytest.raises(NotMeasuredError, match=r"127\.0\.0\.1:1 "):
        measure("127.0.0.1:1", TICKET)
    with pytest.raises(MeterBusyError, match=r"192\.0\.2\.1"):
        Meter("192.0.2.1").open(TICKET)
