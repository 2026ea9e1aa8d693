"""Nodes and explanations, as typed calls: what those who look after a pool ask."""

from __future__ import annotations

from collections.abc import AsyncIterator

from gpupool.client import convert
from gpupool.client.pool import PoolClient
from gpupool.client.port_check import OpenPorts
from gpupool.client.services import Services
from gpupool.client.types import ExplainAnswer, LeaseRequest, LogLine, Meter, Node, Token
from gpupool.proto import pool_pb2


async def node_logs(
    pool: PoolClient, node: str, lines: int = 0, session_id: str = ""
) -> AsyncIterator[LogLine]:
    """The latest ``lines`` (0: 200) of the log of a node's agent; with ``session_id`` only of that session and its worker.

    For administrators.
    """
    message = pool_pb2.NodeLogsRequest(node=node, lines=lines, session_id=session_id)
    async for line in pool.stream("Administration", "NodeLogs", message):
        yield LogLine(line.at_unix, line.level, line.text)


class AdminClient:
    """The services Administration, Explanations and Identities of an open connection; errors are its."""

    def __init__(self, pool: Services) -> None:
        self._pool = pool

    async def nodes(self) -> list[Node]:
        answer = await self._pool.call("Administration", "ListNodes", pool_pb2.ListRequest())
        return [convert.node(item) for item in answer.nodes]

    async def drain(self, node: str, *, drained: bool = True, reason: str = "", evict: bool = False) -> Node:
        """Lets ``node`` take no new leases, or take them again. With ``evict`` its leases end too, with notice.

        For administrators.
        """
        message = pool_pb2.DrainRequest(node=node, drained=drained, reason=reason, evict=evict)
        return convert.node(await self._pool.call("Administration", "Drain", message))

    async def open_meter(self, node: str) -> Meter:
        """A place to measure the network to ``node``, for :func:`gpupool.client.netperf.measure`."""
        answer = await self._pool.call("Administration", "OpenMeter", pool_pb2.OpenMeterRequest(node=node))
        return Meter(answer.address, answer.ticket, answer.seconds)

    async def open_ports(self, node: str, part: int) -> OpenPorts:
        """Part number ``part``, from 0, of the ports of ``node``'s workers, open for a moment: see `port_check`.

        Raises:
            PoolRefusedError: reason ``no-port-range``: the system picks them; ``ports-busy``: somebody else tries them now.
        """
        message = pool_pb2.OpenPortsRequest(node=node, part=part)
        answer = await self._pool.call("Administration", "OpenPorts", message)
        return OpenPorts(
            answer.host,
            answer.first,
            answer.last,
            tuple(answer.ports),
            tuple(answer.taken),
            answer.parts,
            answer.seconds,
        )

    async def explain_request(self, request_id: str) -> ExplainAnswer:
        """Why a request waits; ``request_id`` is that of its entry in the queue."""
        return await self._explain(pool_pb2.ExplainRequest(request_id=request_id))

    async def explain_lease(self, lease_id: str) -> ExplainAnswer:
        """What a lease may expect."""
        return await self._explain(pool_pb2.ExplainRequest(lease_id=lease_id))

    async def explain_wish(self, request: LeaseRequest) -> ExplainAnswer:
        """What would be said to ``request`` now; nothing is granted, and nothing waits."""
        return await self._explain(pool_pb2.ExplainRequest(wish=convert.lease_request(request, 0.0)))

    async def tokens(self) -> list[Token]:
        """All tokens of the pool, oldest first, revoked ones too. For administrators."""
        answer = await self._pool.call("Identities", "ListTokens", pool_pb2.ListRequest())
        return [convert.token(item) for item in answer.tokens]

    async def revoke_token(self, token_id: str) -> bool:
        """Ends a token at once; False when there is no such live token. For administrators."""
        message = pool_pb2.RevokeTokenRequest(id=token_id)
        answer = await self._pool.call("Identities", "RevokeToken", message)
        return bool(answer.existed)

    async def _explain(self, message: object) -> ExplainAnswer:
        return convert.explain_answer(await self._pool.call("Explanations", "Explain", message))
