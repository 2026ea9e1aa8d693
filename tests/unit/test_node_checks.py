"""Nodes are asked how they are once for all who look at the same time, and again when that is two seconds old."""

from __future__ import annotations

import asyncio

import pytest
from gpupool.pool.nodes.checks import REMEMBERED_SECONDS, NodeChecks
from gpupool.pool.nodes.questions import NodeQuestions
from gpupool.proto.gpupool.v1 import pool_pb2 as pb


class Stand:
    """Nodes that answer when they are told to; each answer names how many it was."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked: list[str] = []
        self.answers = True
        self._open: list[tuple[str, int]] = []
        self.questions = NodeQuestions(self._send)
        self.checks = NodeChecks(self.questions, lambda: self.now)

    def _send(self, node: str, question: pb.ToNode) -> bool:
        self.asked.append(node)
        self._open.append((node, question.request))
        if self.answers:
            asyncio.get_running_loop().call_soon(self.answer)
        return True

    def answer(self) -> None:
        for node, number in self._open:
            said = pb.NodeChecks(request=number, version=str(len(self.asked)))
            assert self.questions.answered(node, pb.FromNode(checks=said))
        self._open.clear()

    async def versions(self, **connections: int) -> dict[str, str]:
        return {report.node: report.version for report in await self.checks.of(connections)}


async def test_within_two_seconds_a_node_is_asked_once() -> None:
    stand = Stand()
    assert await stand.versions(b=1, a=2) == {"a": "2", "b": "2"}
    stand.now = REMEMBERED_SECONDS - 0.01
    await stand.versions(b=1, a=2)
    assert sorted(stand.asked) == ["a", "b"]
    stand.now = REMEMBERED_SECONDS
    assert await stand.versions(b=1) == {"b": "3"}
    assert stand.asked[2:] == ["b"]


async def test_all_who_look_at_once_wait_for_one_answer_also_when_the_first_goes_away() -> None:
    stand = Stand()
    stand.answers = False
    looks = [asyncio.create_task(stand.versions(a=1)) for _ in range(50)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    looks[0].cancel()
    await asyncio.sleep(0)
    stand.answer()
    with pytest.raises(asyncio.CancelledError):
        await looks[0]
    assert await asyncio.gather(*looks[1:]) == [{"a": "1"}] * 49
    assert stand.asked == ["a"]


async def test_a_node_that_has_come_back_is_asked_anew_and_one_that_left_is_forgotten() -> None:
    stand = Stand()
    await stand.versions(a=1)
    assert await stand.versions(a=2) == {"a": "2"}
    assert await stand.versions() == {}
    assert await stand.versions(a=2) == {"a": "3"}


async def test_a_silent_node_is_not_waited_for_by_each_who_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpupool.pool.nodes.checks.NODE_SECONDS", 0.01)
    stand = Stand()
    stand.answers = False
    for _ in range(3):
        (report,) = await stand.checks.of({"a": 1})
        assert "did not answer within" in report.silence
    assert stand.asked == ["a"]
