"""The `Administration` service: nodes, for those who look after them."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from gpupool.ledger.ledger import LedgerError
from gpupool.model import events
from gpupool.pool.access import validate
from gpupool.pool.access.auth import current_identity, refuse
from gpupool.pool.access.rate_limit import RateLimits
from gpupool.pool.api import convert
from gpupool.pool.lifecycle.shell import PoolShell
from gpupool.pool.nodes.questions import NodeSilentError
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.proto.gpupool.v1 import pool_pb2_grpc
from gpupool.text import printable

#: How long a node may take to answer, seconds.
ANSWER_SECONDS = 5.0
#: Lines of a log that are sent when no number is asked, and at most.
DEFAULT_LINES = 200
MAX_LINES = 2000
_MAX_LINE = 2000
_MOST_PORTS = 1000
#: How often one user has ports of one node opened: for three looks at all of them, then one part in so many seconds.
#: They are not a worker's meanwhile.
PARTS_AT_ONCE = 12
SECONDS_FOR_PART = 15.0
_MOST_TRIED = 4096


class AdministrationService(pool_pb2_grpc.AdministrationServicer):
    """Who may call what is in `auth.ALLOWED_ROLES`."""

    def __init__(self, pool: PoolShell) -> None:
        self._pool = pool
        self._tried = RateLimits(1.0 / SECONDS_FOR_PART, PARTS_AT_ONCE, _MOST_TRIED)

    async def ListNodes(self, request: pb.ListRequest, context: Any) -> pb.NodeList:
        return convert.node_list(self._pool.state, self._pool.clock.now())

    async def Drain(self, request: pb.DrainRequest, context: Any) -> pb.Node:
        node = await self._known(request.node, context)
        try:
            reason = validate.text(request.reason, "reason")
        except validate.BadInputError as error:
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, error.reason, str(error))
        if request.evict and not request.drained:
            text = f"node {node} cannot take leases again and end those that it has; ask for one of the two"
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "bad-request", text)
        before = self._pool.state.nodes[node]
        if request.drained and before.drained:
            reason = reason or before.drain_reason  # `--evict` later, of a node that is drained already
        now = self._pool.clock.now()
        by = current_identity().name
        try:
            self._pool.apply(events.NodeDrained(now, node, request.drained, reason, by, request.evict))
        except LedgerError as error:
            await refuse(context, grpc.StatusCode.UNAVAILABLE, "ledger", str(error))
        return convert.node_list(self._pool.state, now, node).nodes[0]

    async def NodeLogs(self, request: pb.NodeLogsRequest, context: Any) -> AsyncIterator[pb.LogLine]:
        node = await self._known(request.node, context)
        if not 0 <= request.lines <= MAX_LINES:
            text = f"{request.lines} lines are not within 1..{MAX_LINES}"
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "bad-request", text)
        question = pb.SendLogs(lines=request.lines or DEFAULT_LINES, session_id=request.session_id[:64])
        answer = await self._ask(node, pb.ToNode(logs=question), context)
        for line in answer.logs.lines[-MAX_LINES:]:
            text = printable(line.text[:_MAX_LINE])
            yield pb.LogLine(at_unix=line.at_unix, level=printable(line.level[:16]), text=text)

    async def OpenMeter(self, request: pb.OpenMeterRequest, context: Any) -> pb.Meter:
        node = await self._known(request.node, context)
        ticket = secrets.token_hex(32)
        answer = await self._ask(node, pb.ToNode(meter=pb.OpenMeter(ticket=ticket)), context)
        opened = answer.meter
        if not 0 < opened.port < 65536:
            text = printable(opened.problem[:200]) or f"node {node} opens no place to measure"
            await refuse(context, grpc.StatusCode.FAILED_PRECONDITION, "meter-busy", text)
        host = self._pool.state.nodes[node].advertise_host
        host = f"[{host}]" if ":" in host else host
        return pb.Meter(address=f"{host}:{opened.port}", ticket=ticket, seconds=opened.seconds)

    async def OpenPorts(self, request: pb.OpenPortsRequest, context: Any) -> pb.OpenedPorts:
        node = await self._known(request.node, context)
        await self._admit_to_ports(node, context)
        answer = await self._ask(node, pb.ToNode(ports=pb.TryPorts(part=request.part)), context)
        opened = answer.ports
        if not opened.parts:
            text = printable(opened.problem[:200]) or f"node {node} opens no ports"
            reason = "ports-busy" if opened.first else "no-port-range"
            await refuse(context, grpc.StatusCode.FAILED_PRECONDITION, reason, text)
        return pb.OpenedPorts(
            host=self._pool.state.nodes[node].advertise_host,
            first=opened.first,
            last=opened.last,
            ports=opened.ports[:_MOST_PORTS],
            taken=opened.taken[:_MOST_PORTS],
            parts=opened.parts,
            seconds=opened.seconds,
        )

    async def _admit_to_ports(self, node: str, context: Any) -> None:
        """Whoever asks again and again would keep workers from these ports."""
        identity, now = current_identity(), time.monotonic()
        tried = self._tried.of((identity.name, node), now)
        if not identity.is_admin and not tried.admits(now):
            text = (
                f"{identity.name} has tried the ports of node {node} too often; "
                f"try again in {math.ceil(tried.seconds_left(now))} s"
            )
            await refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "ports-busy", text)

    async def _known(self, node: str, context: Any) -> str:
        if node not in self._pool.state.nodes:
            known = ", ".join(sorted(self._pool.state.nodes)[:8]) or "none"
            text = f"the pool knows no node {printable(node[:64])!r}; it knows {known}"
            await refuse(context, grpc.StatusCode.NOT_FOUND, "unknown-node", text)
        return node

    async def _ask(self, node: str, question: pb.ToNode, context: Any) -> pb.FromNode:
        try:
            return await self._pool.questions.ask(node, question, ANSWER_SECONDS)
        except NodeSilentError as error:
            await refuse(context, grpc.StatusCode.FAILED_PRECONDITION, "node-silent", str(error))
