"""Executes the pool's instructions: start, apply, revoke, stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import structlog

from gpupool.engines.base import (
    Engine,
    EngineError,
    Never,
    Pending,
    WorkerExited,
    WorkerSpec,
)
from gpupool.node.connection import Connection
from gpupool.node.control import ControlError
from gpupool.node.messages import BadInstruction, device_grants, exited, started
from gpupool.node.worker_link import WorkerLink
from gpupool.proto import pool_pb2

logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Order:
    """Instructions for one session wait for each other."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class Instructions:
    """Carries out what the pool asks and sends the outcome back.

    Instructions for one session are executed in the order in which they came, those for
    different sessions side by side.

    Args:
        send: puts a message on the connection of now; without one the next hello says what counts.
    """

    def __init__(
        self,
        *,
        node: str,
        engine: Engine,
        send: Callable[[Any], None],
        answer_seconds: float,
        stop_grace_seconds: float,
    ) -> None:
        #: Workers that run, by session.
        self.links: dict[str, WorkerLink] = {}
        #: Ends of workers that the pool has not confirmed to have heard.
        self.ends: dict[str, WorkerExited] = {}
        #: The node is going down: no worker is started any more.
        self.ending = False
        self._node = node
        self._engine = engine
        self._send = send
        self._answer_seconds = answer_seconds
        self._stop_grace_seconds = stop_grace_seconds
        self._order: dict[str, _Order] = {}

    async def obey(self, connection: Connection, kind: str, message: Any) -> None:
        """Executes one instruction; those for the same session one after the other."""
        instruction = getattr(message, kind)
        session = instruction.session_id
        obey: Callable[[Connection, int, Any], Awaitable[None]] = {
            "start": self._start_worker,
            "lease": self._apply_lease,
            "revoke": self._revoke_lease,
            "stop": self._stop_instruction,
        }[kind]
        order = self._order.setdefault(session, _Order())
        order.waiting += 1
        try:
            async with order.lock:
                await obey(connection, message.request, instruction)
        except Exception:
            logger.exception("an instruction failed", instruction=kind, session=session)
        finally:
            order.waiting -= 1
            if not order.waiting:
                self._order.pop(session, None)

    async def _start_worker(self, connection: Connection, request: int, start: Any) -> None:
        link = self.links.get(start.session_id)
        if link is not None and link.epoch == start.epoch:
            self._send(started(link))
            return
        try:
            if self.ending:
                raise EngineError(f"Node {self._node} is going down.")
            grants = device_grants(self._node, start.shares)
            reservation = await self._engine.reserve(grants, start.epoch)
            if isinstance(reservation, Pending | Never):
                raise EngineError(reservation.reason)
            spec = WorkerSpec(
                session=start.session_id,
                epoch=start.epoch,
                devices=reservation.devices,
                token=start.token,
                deadline_ns=connection.deadline_ns(start.fence_seconds),
                user=start.user,
            )
            worker = await self._engine.start(reservation, spec)
        except (EngineError, BadInstruction, OSError) as error:
            logger.warning("a worker did not start", session=start.session_id, reason=str(error))
            failed = pool_pb2.WorkerFailed(session_id=start.session_id, epoch=start.epoch, message=str(error))
            self._send(pool_pb2.FromNode(failed=failed))
            return
        link = WorkerLink(worker, self._answer_seconds)
        self.links[start.session_id] = link
        # Starting took time; heartbeats answered meanwhile count for this worker, too.
        link.extend(connection.deadline_ns(start.fence_seconds))
        logger.info("started a worker", session=link.session, epoch=link.epoch, address=link.address)
        self._send(started(link))

    async def _apply_lease(self, connection: Connection, request: int, lease: Any) -> None:
        link = self.links.get(lease.session_id)
        ok, text = False, "no worker of this session runs here"
        if link is not None:
            try:
                grants = device_grants(self._node, lease.shares) or link.devices
                await self._engine.record(lease.session_id, lease.epoch, grants)
                answer = await link.apply(lease.epoch, connection.deadline_ns(lease.fence_seconds), grants)
                ok, text = answer.ok, answer.message
            except (ControlError, BadInstruction, OSError) as error:
                text = str(error)
            if not ok:
                await self._engine.record(lease.session_id, link.epoch, link.devices)
        _answer(connection, request, lease, ok, text)

    async def _revoke_lease(self, connection: Connection, request: int, revoke: Any) -> None:
        link = self.links.get(revoke.session_id)
        # A worker that is gone holds nothing: that is what a revocation is to achieve.
        ok, text = True, "no worker of this session runs here"
        if link is not None:
            try:
                answer = await link.revoke(revoke.epoch)
                ok, text = answer.ok, answer.message
            except ControlError as error:
                ok, text = False, str(error)
        _answer(connection, request, revoke, ok, text)

    async def _stop_instruction(self, connection: Connection, request: int, stop: Any) -> None:
        session = stop.session_id
        if session in self.links:
            await self.stop_worker(session)
        else:
            event = self.ends.get(session) or WorkerExited(session, 0, "no worker of this session runs here")
            self._send(exited(event))

    async def stop_worker(self, session: str) -> None:
        """Asks, terminates, kills; the engine's watch then tells the end."""
        link = self.links.get(session)
        ask = link.ask_to_stop if link is not None else None
        await self._engine.stop(session, self._stop_grace_seconds, ask)


def _answer(connection: Connection, request: int, lease: Any, ok: bool, text: str) -> None:
    # Request numbers belong to the connection on which they came.
    applied = pool_pb2.LeaseApplied(
        session_id=lease.session_id, epoch=lease.epoch, ok=ok, message=text, request=request
    )
    connection.outgoing.put_nowait(pool_pb2.FromNode(applied=applied))
