"""Answers what the pool asks of a node besides its workers: log lines, a place to measure the network, how it is."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, Final

import structlog

from gpupool.client.agreement import own_version
from gpupool.node.doors import Doors, DoorsBusyError
from gpupool.node.meter import Meter, MeterBusyError
from gpupool.node.recent_log import Line, RecentLog, worker_log
from gpupool.node.selfcheck import NodeFacts, checks
from gpupool.proto import pool_pb2

#: Instructions that are questions.
QUESTIONS: Final = ("logs", "meter", "check", "ports")

logger = structlog.get_logger(__name__)


class Answers:
    """What does not touch a worker.

    Args:
        workers: folder of the workers' folders.
        meter: where the network to this node is measured.
        doors: where its ports are tried.
    """

    def __init__(self, facts: NodeFacts, workers: Path, meter: Meter, doors: Doors, log: RecentLog) -> None:
        self._doors = doors
        self._facts = facts
        self._workers = workers
        self._meter = meter
        self._log = log

    async def answer(self, kind: str, message: Any, parked_mib: int) -> Any:
        """The message for the pool; ``parked_mib``: host memory that parked sessions take now."""
        if kind == "logs":
            lines = await asyncio.to_thread(self._lines, message.logs.session_id, message.logs.lines)
            told = [pool_pb2.LogLine(at_unix=x.at_unix, level=x.level, text=x.text) for x in lines]
            return pool_pb2.FromNode(logs=pool_pb2.LogLines(request=message.request, lines=told))
        if kind == "meter":
            return pool_pb2.FromNode(meter=self._open_meter(message))
        if kind == "ports":
            return pool_pb2.FromNode(ports=await asyncio.to_thread(self._open_ports, message))
        found = await asyncio.to_thread(checks, self._facts, parked_mib)
        return pool_pb2.FromNode(
            checks=pool_pb2.NodeChecks(
                request=message.request,
                checks=[
                    pool_pb2.HealthCheck(name=x.name, status=x.status, detail=x.detail, hint=x.hint)
                    for x in found
                ],
                version=own_version(),
                now_unix=time.time(),
            )
        )

    def _open_meter(self, message: Any) -> Any:
        try:
            port = self._meter.open(message.meter.ticket)
        except MeterBusyError as error:
            return pool_pb2.MeterOpened(request=message.request, problem=str(error))
        logger.info("the network is being measured", port=port, seconds=self._meter.open_seconds)
        return pool_pb2.MeterOpened(request=message.request, port=port, seconds=self._meter.open_seconds)

    def _open_ports(self, message: Any) -> Any:
        ports = self._doors.ports
        answer = pool_pb2.PortsOpened(request=message.request, first=ports.first, last=ports.last)
        try:
            opened = self._doors.open(message.ports.part)
        except DoorsBusyError as error:
            answer.problem = str(error)
            return answer
        answer.ports.extend(opened.ports)
        answer.taken.extend(opened.taken)
        answer.parts, answer.seconds = opened.parts, opened.seconds
        return answer

    def _lines(self, session: str, count: int) -> list[Line]:
        lines = self._log.latest(count, session)
        if session:
            lines = sorted([*lines, *worker_log(self._workers, session, count)], key=lambda x: x.at_unix)
        return lines[-count:] if count > 0 else []
