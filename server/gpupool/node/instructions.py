"""Executes the pool's instructions: start, apply, revoke, park, stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from gpupool.engines.local import LocalEngine
from gpupool.engines.records import (
    EngineError,
    Placement,
    WorkerExited,
    WorkerSpec,
)
from gpupool.node.connection import Connection
from gpupool.node.control import Applied, ControlError
from gpupool.node.messages import BadInstructionError, device_grants, exited, started, worker_report
from gpupool.node.session_images import SessionImages
from gpupool.node.worker_link import FIGURES_SECONDS, WorkerLink
from gpupool.proto import pool_pb2

#: Why a worker is stopped whose user ended the session: it does not get the time that others have to finish.
RESET: Final = "reset"
#: Such a worker is killed after this time, seconds; with the way to the node that is within a second of the request.
AT_ONCE_SECONDS: Final = 0.5

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
        images: where sessions are kept on disk; None: nowhere.
        send: puts a message on the connection of now; without one the next hello says what counts.
    """

    def __init__(
        self,
        *,
        node: str,
        engine: LocalEngine,
        send: Callable[[Any], None],
        answer_seconds: float,
        stop_grace_seconds: float,
        images: SessionImages | None = None,
    ) -> None:
        #: Workers that run, by session.
        self.links: dict[str, WorkerLink] = {}
        #: Ends of workers that the pool has not confirmed to have heard.
        self.ends: dict[str, Any] = {}
        #: Workers that were ended in place of being adopted, until the pool has heard why.
        self.refused: dict[str, WorkerLink] = {}
        #: The node is going down: no worker is started any more.
        self.ending = False
        #: Sessions that outlast their worker: they lie on disk, or it was ready too late. Its end is put here.
        self.outlasting: dict[str, asyncio.Future[WorkerExited]] = {}
        self._images = images
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
            "park": self._park_memory,
            "stop": self._stop_instruction,
        }[kind]
        order = self._order.setdefault(session, _Order())
        order.waiting += 1
        try:
            if kind == "stop" and instruction.reason == RESET and session in self.links:
                # Its user waits for the end, perhaps behind a revocation that waits for a kernel.
                await self.stop_worker(session, at_once=True)
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
        image = self._images.folder(start.session_id) if start.from_image and self._images else None
        try:
            if start.from_image and image is None:
                raise EngineError(f"The image of session {start.session_id} is not on node {self._node}.")
            if self.ending:
                raise EngineError(f"Node {self._node} is going down.")
            reservation = await self._reserve(start)
            spec = WorkerSpec(
                session=start.session_id,
                epoch=start.epoch,
                devices=reservation.devices,
                token=start.token,
                move_key=start.move_key,
                deadline_ns=connection.deadline_ns(start.fence_seconds),
                drain_seconds=start.drain_seconds,
                user=start.user,
                strict=start.strict,
                image=image,
                image_source=start.image_source,
            )
            # Whoever starts it again has heard of the end of an earlier one, which must not be taken for this one's.
            self.ends.pop(start.session_id, None)
            worker = await self._engine.start(reservation, spec)
            if self.ending:
                await self._take_back(spec.session)
                raise EngineError(f"Node {self._node} is going down.")
        except (EngineError, BadInstructionError, OSError, ValueError) as error:
            # The pool must hear of it, whatever it was: it would wait for this worker.
            logger.warning("a worker did not start", session=start.session_id, reason=str(error))
            failed = pool_pb2.WorkerFailed(session_id=start.session_id, epoch=start.epoch, message=str(error))
            self._send(pool_pb2.FromNode(failed=failed))
            return
        link = WorkerLink(worker, self._answer_seconds)
        self.links[start.session_id] = link
        # Starting may have taken longer than a lease lasts; heartbeats answered meanwhile count for this worker, too.
        # Only then is it looked at: it would seem fenced.
        await asyncio.wait([link.extend(connection.deadline_ns(start.fence_seconds))])
        logger.info("started a worker", session=link.session, epoch=link.epoch, address=link.address)
        if image is not None and self._images is not None:
            await asyncio.to_thread(self._images.remove, link.session)
        with contextlib.suppress(ControlError):
            await link.refresh()
        self._send(started(link))

    async def _take_back(self, session: str) -> None:
        """Ends a worker that was ready after all others had been ended. Its end is none of the session, which began nothing."""
        gone = self.outlasting[session] = asyncio.get_running_loop().create_future()
        await self._engine.stop(session, 0.0)
        await gone

    async def adopted(self, link: WorkerLink) -> None:
        """A session that a worker has is not on disk: an agent that was killed may have left an image of it, or of before."""
        if self._images is not None:
            await asyncio.to_thread(self._images.remove, link.session)

    async def _reserve(self, instruction: Any) -> Placement:
        """The instruction's shares with the driver's names of their devices.

        Raises:
            EngineError: they cannot be used now.
            BadInstructionError: they are not devices of this node.
        """
        grants = device_grants(self._node, instruction.shares)
        return await self._engine.reserve(grants)

    async def _apply_lease(self, connection: Connection, request: int, lease: Any) -> None:
        link = self.links.get(lease.session_id)
        answer, answered, unsure = Applied(False, "no worker of this session runs here"), False, False
        if link is not None:
            try:
                grants = (await self._reserve(lease)).devices if lease.shares else link.devices
                await self._engine.record(lease.session_id, lease.epoch, grants)
                answer = await link.apply(
                    lease.epoch, lambda: connection.deadline_ns(lease.fence_seconds), grants
                )
                answered = True
            except ControlError as error:
                answer, unsure = Applied(False, str(error)), True
            except (BadInstructionError, EngineError, OSError) as error:
                answer = Applied(False, str(error))
            if not answer.ok:
                with contextlib.suppress(OSError):  # a full disk, of which the answer tells
                    await self._engine.record(lease.session_id, link.epoch, link.devices)
        _answer(connection, request, lease, answer, link, answered=answered, unsure=unsure)

    async def _revoke_lease(self, connection: Connection, request: int, revoke: Any) -> None:
        link = self.links.get(revoke.session_id)
        # A worker that is gone holds nothing: that is what a revocation is to achieve.
        answer, answered = Applied(True, "no worker of this session runs here"), False
        if link is not None:
            try:
                answer = await link.revoke(revoke.epoch)
                answered = True
            except ControlError as error:
                answer = Applied(False, str(error))
        _answer(connection, request, revoke, answer, link, answered=answered)

    async def _park_memory(self, connection: Connection, request: int, park: Any) -> None:
        link = self.links.get(park.session_id)
        answer = Applied(False, "no worker of this session runs here")
        if link is not None:
            try:
                if park.place == "image":
                    answer = await self._write_image(link)
                else:
                    answer = await link.park(park.epoch)
            except (ControlError, OSError) as error:
                answer = Applied(False, str(error))
        logger.info(
            "parked memory", session=park.session_id, place=park.place, ok=answer.ok, bytes=answer.bytes
        )
        parked = pool_pb2.MemoryParked(
            session_id=park.session_id,
            epoch=park.epoch,
            ok=answer.ok,
            message=answer.message,
            bytes=answer.bytes,
            request=request,
            place="image" if park.place == "image" else "host",
        )
        connection.outgoing.put_nowait(pool_pb2.FromNode(memory_parked=parked))

    async def _write_image(self, link: WorkerLink) -> Applied:
        """The session goes to disk and its worker ends; at every moment one of the two is whole."""
        if self._images is None:
            return Applied(False, "this node keeps no session images")
        session = link.session
        folder = await asyncio.to_thread(self._images.begin, session)
        try:
            answer = await link.export(folder)
        except ControlError as error:
            answer = Applied(False, str(error))
        if answer.ok and self.links.get(session) is not link:
            answer = Applied(False, "the worker has ended")
        if not answer.ok:
            # A worker that is still writing cannot go on without its folder: it fails, and keeps the session.
            await asyncio.to_thread(self._images.remove, session)
            return answer
        # The worker may end at any moment from here on.
        gone = self.outlasting[session] = asyncio.get_running_loop().create_future()
        try:
            await asyncio.to_thread(self._images.finish, session)
        except OSError:
            await asyncio.to_thread(self._images.remove, session)
            self.outlasting.pop(session, None)
            if gone.done():
                self.tell_end(gone.result(), link)
            raise
        await self.stop_worker(session)
        await gone
        return answer

    def tell_end(self, event: WorkerExited, link: WorkerLink | None) -> None:
        """The pool hears that a session has ended with its worker, again with each hello until it confirms that."""
        told = self.ends[event.session] = exited(event, link)
        self._send(told)

    def images(self) -> frozenset[str]:
        """Sessions that lie on disk and have no worker."""
        return self._images.sessions() - self.links.keys() if self._images is not None else frozenset()

    async def _stop_instruction(self, connection: Connection, request: int, stop: Any) -> None:
        session = stop.session_id
        runs = session in self.links
        if runs:
            await self.stop_worker(session, at_once=stop.reason == RESET)
        if self._images is not None:
            await asyncio.to_thread(self._images.remove, session)
        if not runs:
            nothing = WorkerExited(session, 0, "no worker of this session runs here")
            self._send(self.ends.get(session) or exited(nothing))

    async def stop_worker(self, session: str, *, at_once: bool = False) -> None:
        """Asks for its last figures, then to stop; terminates, kills; the engine's watch then tells the end.

        Args:
            session: the session's id.
            at_once: it is gone within :data:`AT_ONCE_SECONDS`, whatever its devices do; a client of MPS after its work has
                left them, too.
        """
        link = self.links.get(session)
        if link is None:
            await self._engine.stop(session, self._stop_grace_seconds)
            return
        await link.last_figures()
        grace = AT_ONCE_SECONDS - FIGURES_SECONDS if at_once else self._stop_grace_seconds
        await self._engine.stop(session, grace, link.ask_to_stop, at_once=at_once)


def _answer(
    connection: Connection,
    request: int,
    lease: Any,
    answer: Applied,
    link: WorkerLink | None,
    *,
    answered: bool,
    unsure: bool = False,
) -> None:
    # Request numbers belong to the connection on which they came.
    applied = pool_pb2.LeaseApplied(
        session_id=lease.session_id,
        epoch=lease.epoch,
        ok=answer.ok,
        message=answer.message,
        used_mib=answer.used_mib,
        answered=answered,
        unsure=unsure,
        request=request,
        worker=worker_report(link) if link is not None else None,
    )
    connection.outgoing.put_nowait(pool_pb2.FromNode(applied=applied))
