"""What nodes say of themselves for the health report: each is asked at most once in two seconds, whoever looks.

Many look at once where a dashboard or a probe does; who asks while a node is being asked waits for the same answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpupool.pool.nodes.questions import NodeQuestions, NodeSilentError
from gpupool.pool.nodes.reports import NodeReport
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.text import printable

#: How long nodes may take to say how they are, seconds: a report must come quickly.
NODE_SECONDS = 1.0
#: An answer counts for so long, seconds.
REMEMBERED_SECONDS = 2.0
_STATUSES = ("ok", "warn", "fail")


@dataclass(frozen=True, slots=True)
class _Asked:
    """`until`: when the node is asked again; `connection`: one that has come back is another."""

    connection: int
    until: float
    answer: asyncio.Task[NodeReport]


class NodeChecks:
    """Asks nodes, and remembers. Belongs to one event loop.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, questions: NodeQuestions, clock: Callable[[], float] = time.monotonic) -> None:
        self._questions = questions
        self._clock = clock
        self._asked: dict[str, _Asked] = {}

    async def of(self, connections: Mapping[str, int]) -> list[NodeReport]:
        """What each of these nodes says, in order of their names; a node that is silent is reported as that.

        Args:
            connections: the number of each node's stream.
        """
        now = self._clock()
        for name in [
            name for name, asked in self._asked.items() if not self._counts(asked, name, connections, now)
        ]:
            del self._asked[name]
        for name, connection in connections.items():
            if name not in self._asked:
                task = asyncio.create_task(self._ask(name), name=f"checks of {name}")
                self._asked[name] = _Asked(connection, now + REMEMBERED_SECONDS, task)
        tasks = [self._asked[name].answer for name in sorted(connections)]
        # A caller that goes away does not end the question of those that still wait.
        return list(await asyncio.gather(*(asyncio.shield(task) for task in tasks)))

    @staticmethod
    def _counts(asked: _Asked, name: str, connections: Mapping[str, int], now: float) -> bool:
        return now < asked.until and connections.get(name) == asked.connection

    async def _ask(self, name: str) -> NodeReport:
        question = pb.ToNode(check=pb.CheckYourself())
        sent = time.time()
        try:
            answer = (await self._questions.ask(name, question, NODE_SECONDS)).checks
        except NodeSilentError as error:
            return NodeReport(name, str(error), "", 0.0, ())
        checks = tuple(_read_check(check) for check in answer.checks[:32])
        # Its clock was read between the question and the answer.
        ahead = min(answer.now_unix - sent, answer.now_unix - time.time(), key=abs)
        return NodeReport(name, "", printable(answer.version[:32]), ahead, checks)


def _read_check(check: pb.HealthCheck) -> pb.HealthCheck:
    return pb.HealthCheck(
        name=printable(check.name[:40]),
        status=check.status if check.status in _STATUSES else "warn",
        detail=printable(check.detail[:300]),
        hint=printable(check.hint[:300]),
    )
