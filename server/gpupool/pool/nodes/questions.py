"""Questions to node agents that change nothing in the pool: their logs, how they are, a way to measure the network.

They travel on the node's stream beside the machine's instructions, and their answers never reach the machine.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable

from gpupool.proto.gpupool.v1 import pool_pb2 as pb

#: Fields of `FromNode` that answer a question.
ANSWERS = ("logs", "meter", "checks", "ports")


class NodeSilentError(Exception):
    """A node is not connected, or did not answer in time; `str()` is one sentence."""


class NodeQuestions:
    """Keeps who waits for which answer.

    Args:
        send: puts a message on a node's stream; returns whether it has one.
    """

    def __init__(self, send: Callable[[str, pb.ToNode], bool]) -> None:
        self._send = send
        self._waiting: dict[tuple[str, int], asyncio.Future[pb.FromNode]] = {}
        # Random, so that answers to an earlier run of this server miss.
        self._numbers = itertools.count(secrets.randbelow(2**40) + 1)

    async def ask(self, node: str, question: pb.ToNode, seconds: float) -> pb.FromNode:
        """The node's answer.

        Raises:
            NodeSilentError: there is none within `seconds`.
        """
        number = next(self._numbers)
        question.request = number
        future: asyncio.Future[pb.FromNode] = asyncio.get_running_loop().create_future()
        self._waiting[node, number] = future
        try:
            if not self._send(node, question):
                raise NodeSilentError(f"node {node} is not connected to the pool")
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            text = f"node {node} did not answer within {seconds:g} s"
            raise NodeSilentError(text) from None
        finally:
            self._waiting.pop((node, number), None)

    def answered(self, node: str, message: pb.FromNode) -> bool:
        """Takes an answer to whoever waits for it; returns whether `message` is one, wanted or not."""
        kind = message.WhichOneof("message")
        if kind not in ANSWERS:
            return False
        future = self._waiting.get((node, getattr(message, kind).request))
        if future is not None and not future.done():
            future.set_result(message)
        return True
