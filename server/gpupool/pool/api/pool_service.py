"""The `Pool` service: what holders and people call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from typing import Any

import grpc
import grpc.aio

from gpupool.ledger.ledger import LedgerError
from gpupool.ledger.servers import ServerRow
from gpupool.model import events
from gpupool.model.instructions import TellGranted, TellQueued, TellResized
from gpupool.model.state import LeaseRecord, key_of
from gpupool.pool.access import validate
from gpupool.pool.access.auth import Identity, current_identity, refuse, refuse_revoked, still_admitted
from gpupool.pool.api import convert, explanations
from gpupool.pool.api.refusals import Refusals
from gpupool.pool.leases import gang_view
from gpupool.pool.leases.resize_rules import MAKING_ROOM
from gpupool.pool.lifecycle.shell import MAXIMUM_WAITING, PoolShell
from gpupool.pool.nodes import reported
from gpupool.pool.reporting import healthcheck
from gpupool.pool.reporting.lenders import Lender
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.proto.gpupool.v1 import pool_pb2_grpc
from gpupool.proto.sentences import to_message
from gpupool.sentences import param, say
from gpupool.sentences.reasons import OF_HOLDERS, REASONS

#: How long Release waits for the worker's word that the share is free: work under way has 4 s, and is stopped then.
RELEASE_SECONDS = 6.0
#: How long Resize waits for the worker; both sizes stay taken until it has answered.
RESIZE_SECONDS = 8.0
#: How often a resize looks whether memory of parked sessions has left.
ROOM_SECONDS = 0.1
_RESIZE_STATUS = {
    "bad-share": grpc.StatusCode.INVALID_ARGUMENT,
    "full": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "quota": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "limit": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "over-quota": grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_MAX_RENEWALS = 10_000
#: Leases that are looked up by their names at once.
_MOST_LISTED = 1000


class PoolService(pool_pb2_grpc.PoolServicer):
    """Checks identity and input, hands events to the shell, and turns records into messages.

    `servers`: all pool servers of the ledger, this one too; empty: there can be but one. `lenders`: who lends nodes.
    """

    def __init__(
        self,
        pool: PoolShell,
        servers: Callable[[], Sequence[ServerRow]] = tuple,
        lenders: Callable[[], Sequence[Lender]] = tuple,
    ) -> None:
        self._pool = pool
        self._servers = servers
        self._lenders = lenders
        #: Leases that somebody resizes.
        self._resizing: set[str] = set()
        self._refusals = Refusals()

    async def Request(self, request: pb.RequestLease, context: Any) -> AsyncIterator[pb.RequestEvent]:
        user = await self._user_of(request, context)
        await self._refusals.admit(user, context)
        try:
            event = validate.request(
                request, user, self._pool.clock.now(), current_identity().groups_of(user)
            )
        except validate.BadInputError as error:
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, error.reason, str(error))
        if self._pool.has_too_many(user, event.key):
            said = say("too-many-requests", count=param.count(MAXIMUM_WAITING))
            await refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "too-many-requests", said)
        mailbox = self._pool.join(user, event.key)
        answered = False
        pause = 0.0
        try:
            await self._apply(event, context)
            while not answered:
                told = await mailbox.get(pause)
                if told is None:
                    await refuse(context, grpc.StatusCode.UNAVAILABLE, "stopping", "the pool is stopping")
                if not await still_admitted():
                    await refuse_revoked(context)
                if isinstance(told, TellQueued):
                    eta = -1.0 if told.eta is None else told.eta
                    waiting = self._pool.state.requests.get(key_of(user, event.key))
                    why = None if waiting is None else explanations.of_request(waiting, self._pool.state)
                    place = pb.QueuePlace(
                        place=told.place, said=to_message(told.said), eta_seconds=eta, explanation=why
                    )
                    yield pb.RequestEvent(queued=place)
                    pause = self._pool.place_seconds()
                    continue
                if isinstance(told, TellGranted):
                    lease = self._pool.state.leases.get(told.lease_id)
                    if lease is None or not lease.live:
                        why = explanations.of_sentence(
                            "lease-ended", say("lease-ended-unheard", lease=param.text(told.lease_id))
                        )
                        answer = pb.RequestEvent(refused=pb.Refusal(reason="lease-ended", details=why))
                    else:
                        answer = pb.RequestEvent(granted=convert.grant(self._pool.state, lease))
                else:
                    self._refusals.count(user)
                    why = explanations.of_refusal(told, self._pool.state)
                    answer = pb.RequestEvent(refused=pb.Refusal(reason=told.reason, details=why))
                # Before the yield: a caller that has its answer may hang up before we come back from it.
                answered = True
                yield answer
        finally:
            if self._pool.leave(user, event.key, mailbox) and not answered and not self._pool.closing:
                self._refusals.count(user)
                self._pool.forget(user, event.key)

    async def Renew(self, request: pb.RenewLeases, context: Any) -> pb.RenewedLeases:
        identity = current_identity()
        if len(request.lease_ids) > _MAX_RENEWALS:
            text = f"{len(request.lease_ids)} leases in one call, more than {_MAX_RENEWALS}"
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "bad-request", text)
        asked = tuple(dict.fromkeys(request.lease_ids))
        own = tuple(name for name in asked if self._is_own(identity, name))
        if own:
            await self._apply(events.Renewed(self._pool.clock.now(), own), context)
        return pb.RenewedLeases(leases=self._statuses(asked, frozenset(own)))

    async def Release(self, request: pb.ReleaseLease, context: Any) -> pb.Released:
        lease = self._pool.state.leases.get(request.lease_id)
        if lease is None:
            return pb.Released(was_held=False)
        await self._require_owner(lease.user, "lease", context)
        # The holder may answer a notice that another one has taken the place of meanwhile.
        told = REASONS if lease.notice is not None else {lease.reason}
        reason = await self._reason(request.reason, "release", context, told)
        if lease.notice is not None and reason not in OF_HOLDERS and not current_identity().is_admin:
            reason = lease.notice.reason
        was_held = lease.live
        now = self._pool.clock.now()
        await self._apply(events.Released(now, lease.id, reason, request.close_session), context)
        await self._until_free(lease.id)
        return pb.Released(was_held=was_held)

    async def Resize(self, request: pb.ResizeLease, context: Any) -> pb.Grant:
        lease = self._pool.state.leases.get(request.lease_id)
        if lease is None:
            text = f"the pool knows no lease {request.lease_id[:64]!r}"
            await refuse(context, grpc.StatusCode.NOT_FOUND, "unknown-lease", text)
        await self._require_owner(lease.user, "lease", context)
        try:
            milli, mib = validate.size(request.milli, request.mib)
        except validate.BadInputError as error:
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, error.reason, str(error))
        await self._refusals.admit(lease.user, context)
        if lease.id in self._resizing:
            # The answer to the one before would be taken for the answer to this one.
            await refuse(context, grpc.StatusCode.FAILED_PRECONDITION, "busy", say("resize.busy"))
        self._resizing.add(lease.id)
        try:
            told = await self._resized(lease.id, milli, mib, context)
        finally:
            self._resizing.discard(lease.id)
        if told.said:
            self._refusals.count(lease.user)
            code = _RESIZE_STATUS.get(told.reason, grpc.StatusCode.FAILED_PRECONDITION)
            await refuse(context, code, told.reason, told.said)
        return convert.grant(self._pool.state, self._pool.state.leases[lease.id])

    async def _resized(self, lease_id: str, milli: int | None, mib: int | None, context: Any) -> TellResized:
        """What the machine says in the end."""
        told: TellResized | None = None
        try:
            async with asyncio.timeout(RESIZE_SECONDS):
                while told is None or told.reason == MAKING_ROOM:
                    if told is not None:
                        await asyncio.sleep(ROOM_SECONDS)
                        told = None  # what is waited for from here on is another answer
                    future = self._pool.expect_resize(lease_id)
                    await self._apply(events.Resized(self._pool.clock.now(), lease_id, milli, mib), context)
                    told = await future
        except TimeoutError:
            if told is not None:
                said = say("resize.ask-again", why=told.said)
                await refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "full", said)
            text = f"the worker has not confirmed within {RESIZE_SECONDS:.0f} s; both sizes are kept until it has"
            await refuse(context, grpc.StatusCode.DEADLINE_EXCEEDED, "worker-failed", text)
        return told

    async def CloseSession(self, request: pb.CloseSessionRequest, context: Any) -> pb.Released:
        session = self._pool.state.sessions.get(request.session_id)
        if session is None:
            return pb.Released(was_held=False)
        await self._require_owner(session.user, "session", context)
        reason = await self._reason(request.reason, "release", context)
        was_open = session.state != "closed"
        await self._apply(events.SessionClosed(self._pool.clock.now(), session.id, reason), context)
        if session.lease_id:
            await self._until_free(session.lease_id)
        return pb.Released(was_held=was_open)

    async def ListDevices(self, request: pb.ListRequest, context: Any) -> pb.DeviceList:
        pool = self._pool
        found = convert.device_list(pool.state, pool.timers, pool.clock.now(), current_identity().viewer)
        found.lenders.extend(promise.provider for promise in pool.machine.view.promised)
        return found

    async def ListLeases(self, request: pb.LeaseListRequest, context: Any) -> pb.LeaseList:
        if len(request.ids) > _MOST_LISTED:
            text = f"{len(request.ids)} leases in one call, more than {_MOST_LISTED}"
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "bad-request", text)
        viewer = current_identity().viewer
        return convert.lease_list(self._pool.state, self._pool.clock, viewer, request.ids)

    async def ListSessions(self, request: pb.ListRequest, context: Any) -> pb.SessionList:
        return convert.session_list(self._pool.state, self._pool.clock.now(), current_identity().viewer)

    async def ListQueue(self, request: pb.ListRequest, context: Any) -> pb.QueueList:
        return convert.queue_list(self._pool.state, self._pool.clock, current_identity().viewer)

    async def GetUsage(self, request: pb.UsageRequest, context: Any) -> pb.Usage:
        session = self._pool.state.sessions.get(request.session_id)
        if session is None:
            text = f"the pool knows no session {request.session_id[:64]!r}"
            await refuse(context, grpc.StatusCode.NOT_FOUND, "unknown-session", text)
        await self._require_owner(session.user, "session", context)
        return reported.usage(gang_view.usage(self._pool.state.session_parts(session)))

    async def Health(self, request: pb.HealthRequest, context: Any) -> pb.HealthReport:
        return await healthcheck.report(self._pool, self._servers(), self._lenders())

    # ---- helpers

    async def _user_of(self, request: pb.RequestLease, context: Any) -> str:
        """The user that a request is for: the caller, or whom an admin names."""
        identity = current_identity()
        session = self._pool.state.sessions.get(request.session_id)
        if request.on_behalf_of:
            user = request.on_behalf_of
        elif identity.is_admin and session is not None:
            user = session.user
        else:
            user = identity.name
        if not identity.may_act_for(user):
            text = (
                f"{identity.name} may not ask on behalf of {user[:40]!r}; only admins may name another user"
            )
            await refuse(context, grpc.StatusCode.PERMISSION_DENIED, "forbidden", text)
        return user

    async def _require_owner(self, user: str, what: str, context: Any) -> None:
        identity = current_identity()
        if not identity.may_act_for(user):
            text = f"this {what} is another user's; {identity.name} may not change or see it"
            await refuse(context, grpc.StatusCode.PERMISSION_DENIED, "forbidden", text)

    async def _reason(self, value: str, default: str, context: Any, told: Collection[str] = ()) -> str:
        try:
            return validate.reason(value, default, admin=current_identity().is_admin, told=told)
        except validate.BadInputError as error:
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, error.reason, str(error))

    async def _apply(self, event: events.Event, context: Any) -> None:
        try:
            await self._pool.apply_together(event)
        except LedgerError as error:
            # Nothing happened, so the client may send the same again.
            await refuse(context, grpc.StatusCode.UNAVAILABLE, "ledger", str(error))

    async def _until_free(self, lease_id: str) -> None:
        """Waits a little for the worker, so that whoever asks after this answer finds the share free."""
        state = self._pool.state
        nodes = [state.nodes.get(part.node) for part in state.lease_parts(state.leases[lease_id])]
        if all(node is not None and node.connection is not None for node in nodes):
            await self._pool.wait_ended(lease_id, RELEASE_SECONDS)

    def _is_own(self, identity: Identity, lease_id: str) -> bool:
        lease = self._pool.state.leases.get(lease_id)
        return lease is not None and identity.may_act_for(lease.user)

    def _statuses(self, lease_ids: Iterable[str], own: frozenset[str]) -> list[pb.LeaseStatus]:
        statuses = []
        for lease_id in lease_ids:
            lease: LeaseRecord | None = self._pool.state.leases.get(lease_id) if lease_id in own else None
            if lease is None:
                statuses.append(pb.LeaseStatus(lease_id=lease_id, state="unknown"))
                continue
            session = self._pool.state.sessions[lease.session_id]
            statuses.append(
                pb.LeaseStatus(
                    lease_id=lease.id,
                    state="attached" if lease.live else "ended",
                    reason=lease.reason,
                    usage=reported.usage(gang_view.usage(self._pool.state.session_parts(session))),
                    notice=convert.notice(lease, self._pool.clock.now()),
                )
            )
        return statuses
