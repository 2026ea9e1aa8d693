"""Which ports of a node a firewall closes, seen from another machine: a network namespace with real firewall rules."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from gpupool.client.port_check import OpenPorts, check_ports, ranges
from gpupool.node.doors import Doors, DoorsBusyError
from gpupool.node.ports import PortRange

from tests.integration.test_two_networks import HERE, far_away  # noqa: F401 (a fixture)
from tests.support.patience import BUSY
from tests.support.pool_node import ROOT, PoolAndNode, native_worker_is_built

FIRST, LAST = 41200, 41211


def iptables(*words: str) -> None:
    subprocess.run(["iptables", *words], check=True, capture_output=True, timeout=20)


@pytest.fixture
def closed(request: pytest.FixtureRequest) -> Iterator[list[int]]:
    """Ports of this machine that a firewall closes: two that answer nothing, and one that is refused."""
    shut = [FIRST + 3, FIRST + 4, FIRST + 8]
    rules = [
        ("INPUT", "-p", "tcp", "-d", HERE, "--dport", str(port), "-j", action)
        for port, action in zip(shut, ("DROP", "DROP", "REJECT"), strict=True)
    ]
    made = []
    try:
        for rule in rules:
            try:
                iptables("-I", *rule)
            except (OSError, subprocess.SubprocessError) as refused:
                pytest.skip(f"no firewall rule can be made here: {refused}")
            made.append(rule)
        yield shut
    finally:
        for rule in made:
            iptables("-D", *rule)


@pytest.mark.slow
@pytest.mark.skipif(not native_worker_is_built(), reason="native worker not built")
def test_health_names_the_ports_that_are_closed(far_away: str, closed: list[int]) -> None:  # noqa: F811
    with socket.create_server((HERE, 0)) as free:
        port = free.getsockname()[1]
    node = ("--listen-host", HERE, "--port-range", f"{FIRST}-{LAST}")
    with PoolAndNode("--listen", f"{HERE}:{port}", real_worker=True, gpus=1, node_arguments=node) as stack:
        token = stack.home / "ann.token"
        token.touch(mode=0o600)
        token.write_text(stack.gpupool("token", "create", "--user", "ann").stdout)
        said = subprocess.run(
            ["ip", "netns", "exec", far_away, sys.executable, "-m", "gpupool.cli.main", "health", "--json",
             "--pool", f"{HERE}:{port}", "--token-file", str(token)],
            env=stack.environment | {"GPUPOOL_HOME": str(stack.home / "elsewhere")},
            cwd=ROOT, capture_output=True, text=True, timeout=60 * BUSY, check=False,
        )  # fmt: skip
    checks = {check["name"]: check for check in json.loads(said.stdout)["checks"]}
    found = checks["data ports of n1"]
    assert found["status"] == "warn"
    assert f"{FIRST + 3}-{FIRST + 4}, {FIRST + 8} of {FIRST}-{LAST}" in found["detail"]
    assert f"{LAST - FIRST + 1 - len(closed)} can be reached" in found["detail"]


def free_range(count: int) -> PortRange:
    """Ports next to each other at which nobody listens now."""
    for first in range(42000, 60000, count):
        try:
            for port in range(first, first + count):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return PortRange(first, first + count - 1)
    pytest.skip("no ports are free next to each other")


class TestDoors:
    def test_leave_ports_for_workers_and_close_behind_whoever_came(self) -> None:
        ports = free_range(10)
        doors = Doors("127.0.0.1", ports)
        opened = doors.open(0)
        assert opened.parts == 4
        assert opened.ports == tuple(range(ports.first, ports.last + 1, 4))
        for port in set(range(ports.first, ports.last + 1)).difference(opened.ports):
            socket.create_server(("127.0.0.1", port)).close()
        for port in opened.ports:
            socket.create_connection(("127.0.0.1", port), timeout=5 * BUSY).close()
        deadline = time.monotonic() + 5 * BUSY
        while True:
            try:
                assert doors.open(1).ports == tuple(range(ports.first + 1, ports.last + 1, 4))
                break
            except DoorsBusyError:
                assert time.monotonic() < deadline
                time.sleep(0.01)

    def test_close_when_nobody_comes(self) -> None:
        ports = free_range(4)
        doors = Doors("127.0.0.1", ports, open_seconds=3.0)
        opened = doors.open(0)
        with pytest.raises(DoorsBusyError, match="somebody else"):
            doors.open(1)
        deadline = time.monotonic() + 5 * BUSY
        while True:
            try:
                doors.open(1)
                break
            except DoorsBusyError:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        for port in opened.ports:
            socket.create_server(("127.0.0.1", port)).close()

    def test_a_node_without_a_range_and_parts_that_are_none_are_refused(self) -> None:
        with pytest.raises(DoorsBusyError, match="--port-range"):
            Doors("127.0.0.1", PortRange()).open(0)
        with pytest.raises(DoorsBusyError, match="no part 4"):
            Doors("127.0.0.1", free_range(4)).open(4)


class TestTryingThem:
    async def test_a_port_that_a_worker_has_counts_as_reached_and_one_that_is_silent_as_untried(self) -> None:
        ports = free_range(6)
        doors = Doors("127.0.0.1", ports)
        with (
            socket.create_server(("127.0.0.1", ports.first)),
            socket.socket() as bound,
        ):
            bound.bind(("127.0.0.1", ports.first + 1))  # has the port, and does not listen

            async def open_part(part: int) -> OpenPorts:
                opened = doors.open(part)
                return OpenPorts(
                    "127.0.0.1",
                    ports.first,
                    ports.last,
                    opened.ports,
                    opened.taken,
                    opened.parts,
                    opened.seconds,
                )

            report = await check_ports(open_part)
        assert (report.closed, report.open, report.untried) == ((), 5, 1)

    @pytest.mark.parametrize(
        ("numbers", "text"),
        [([], ""), ([5], "5"), ([5, 6, 7], "5-7"), ([1, 3, 4, 9], "1, 3-4, 9")],
    )
    def test_neighbours_are_said_together(self, numbers: list[int], text: str) -> None:
        assert ranges(numbers) == text
