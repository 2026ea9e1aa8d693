"""What `gpupool health` says of the way to a node whose address is 127.0.0.1: the node is here, or a tunnel ends here."""

from __future__ import annotations

from typing import Any, cast

import pytest
from gpupool.cli.top import data_ports, health
from gpupool.client import netperf
from gpupool.client.admin import AdminClient
from gpupool.client.netperf import MARK_BYTES, machine_mark, measure
from gpupool.client.port_check import PortReport
from gpupool.client.types import Meter as OpenedMeter
from gpupool.client.types import Node
from gpupool.node import meter
from gpupool.node.meter import Meter

TICKET = "ab" * 32


def node(address: str = "127.0.0.1") -> Node:
    return Node("n1", True, 0.0, False, False, "", "default", "isolated", {}, address, 1, 0, 0, 0)


class Admin:
    """The pool's part: opens the meter of a node, which listens at 127.0.0.1, or names an address that nothing has."""

    def __init__(self, address: str = "") -> None:
        self._address = address

    async def open_meter(self, _node: str) -> OpenedMeter:
        address = self._address or f"127.0.0.1:{Meter('127.0.0.1').open(TICKET)}"
        return OpenedMeter(address, TICKET, 10.0)


@pytest.fixture
def tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node is on another machine, and something forwards its ports."""
    monkeypatch.setattr(meter, "machine_mark", lambda _ticket: b"another machine".ljust(MARK_BYTES))


async def network(admin: Any, of: Node) -> Any:
    return await health._network(cast("AdminClient", admin), [of])


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """No network is as good as advised."""
    monkeypatch.setattr(netperf, "ADVISED_GBIT", 1e9)


async def test_a_node_on_this_machine_is_never_too_slow(slow: None) -> None:
    found = await network(Admin(), node())
    assert (found.status, found.hint) == ("ok", "")
    assert found.detail.endswith("; on this machine, where kernels use shared memory")


async def test_a_node_behind_a_tunnel_is_none_of_this_machine(tunnel: None, slow: None) -> None:
    found = await network(Admin(), node())
    assert found.status == "warn"
    assert "shared memory" not in found.detail
    assert found.detail.endswith("; behind a tunnel that ends here at 127.0.0.1")
    assert "advised" in found.hint


async def test_a_node_on_this_machine_that_tells_its_networks_address_is_here(slow: None) -> None:
    found = await network(Admin(), node("10.0.0.6"))
    assert (found.status, "on this machine" in found.detail) == ("ok", True)


async def test_a_tunnel_that_is_missing_is_named() -> None:
    found = await network(Admin("127.0.0.1:1"), node())
    assert found.status == "warn"
    assert data_ports.FORWARD in found.hint
    assert data_ports.FORWARD not in (await network(Admin("127.0.0.1:1"), node("10.0.0.6"))).hint


@pytest.mark.parametrize(
    ("address", "says"),
    [("127.0.0.1", data_ports.FORWARD), ("localhost", data_ports.FORWARD), ("10.0.0.6", "firewall")],
)
def test_ports_that_no_tunnel_forwards_are_closed_by_no_firewall(address: str, says: str) -> None:
    found = data_ports.check(node(address), PortReport(40000, 40003, (40002,), 3, 0))
    assert found.status == "warn"
    assert says in found.hint
    assert ("firewall" in found.hint) == (says == "firewall")


def test_a_node_of_before_does_not_say_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    unpack = meter.ORDER.unpack

    class Order:
        size = meter.ORDER.size

        @staticmethod
        def unpack(said: bytes) -> tuple[bytes, int]:
            letter, number = unpack(said)
            return (b"?" if letter == b"W" else letter), number

    monkeypatch.setattr(meter, "ORDER", Order)
    measured = measure(f"127.0.0.1:{Meter('127.0.0.1').open(TICKET)}", TICKET, round_trips=10, seconds=0.05)
    assert (measured.round_trips, measured.here) == (10, False)


def test_a_mark_is_for_one_conversation_and_the_same_for_both_ends() -> None:
    assert machine_mark("a") == machine_mark("a") != machine_mark("b")
    assert len(machine_mark("a")) == MARK_BYTES


def test_where_the_machine_cannot_be_told_nothing_is_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(netperf, "_BOOT", tmp_path / "nothing")
    assert machine_mark("a") != machine_mark("a")
