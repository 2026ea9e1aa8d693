"""What `gpupool health` says of the ports that kernels dial: which of a node's `--port-range` are closed on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpupool.client.admin import AdminClient
from gpupool.client.errors import PoolRefusedError
from gpupool.client.port_check import OpenPorts, PortReport, check_ports
from gpupool.client.types import HealthCheck, Node
from gpupool.node.address import reaches_only_here

#: What to do where kernels are told an address of the loopback, and the node is on another machine.
FORWARD: Final = "forward each port of its --port-range to the same port there"
_HINT: Final = (
    "a firewall is in the way: let these TCP ports through from this machine to the node, or give it others with "
    "--port-range"
)
_TUNNEL_HINT: Final = f"nothing forwards these TCP ports from this machine to the node: {FORWARD}"


async def checks(admin: AdminClient, nodes: Sequence[Node]) -> list[HealthCheck]:
    """A line for each node that has a range of ports."""
    found = []
    for node in nodes:

        async def open_part(part: int, name: str = node.name) -> OpenPorts:
            return await admin.open_ports(name, part)

        try:
            report = await check_ports(open_part)
        except PoolRefusedError as error:
            if error.reason != "no-port-range":
                found.append(HealthCheck(f"data ports of {node.name}", "warn", str(error), ""))
        else:
            found.append(check(node, report))
    return found


def check(node: Node, report: PortReport) -> HealthCheck:
    """The line of one node.

    No firewall stands before a machine's own loopback: where a port of it is closed, a tunnel should begin.
    """
    name = f"data ports of {node.name}"
    of = f"{report.first}-{report.last}"
    untried = f"; {report.untried} were not tried" if report.untried else ""
    if not report.closed:
        return HealthCheck(name, "ok", f"{report.open} of {of} can be reached from here{untried}", "")
    detail = f"closed to this machine: {report.closed_text} of {of}; {report.open} can be reached{untried}"
    hint = _TUNNEL_HINT if reaches_only_here(node.address) else _HINT
    return HealthCheck(name, "warn" if report.open else "fail", detail, hint)
