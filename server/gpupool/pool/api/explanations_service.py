"""The `Explanations` service: why a request waits, what a lease may expect, what would be said to a request that is not made."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any

import grpc

from gpupool.model import events
from gpupool.model.state import LeaseRecord
from gpupool.pool.access import validate
from gpupool.pool.access.auth import current_identity, refuse
from gpupool.pool.api import convert, explanations
from gpupool.pool.api.looks import Turns
from gpupool.pool.leases import gang_view
from gpupool.pool.lifecycle.shell import PoolShell
from gpupool.pool.lifecycle.what_if import Considered, WhatIfs
from gpupool.pool.projects import standing_view
from gpupool.pool.projects.project_rules import project_tree
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.proto.gpupool.v1 import pool_pb2_grpc
from gpupool.scheduler.model import Outcome
from gpupool.sentences import say


class ExplanationsService(pool_pb2_grpc.ExplanationsServicer):
    """Reads; nothing that is called here changes anything. Users see what is theirs."""

    def __init__(self, pool: PoolShell) -> None:
        self._pool = pool
        self._what_ifs = WhatIfs(pool.machine)
        self._turns = Turns()

    async def Explain(self, request: pb.ExplainRequest, context: Any) -> pb.ExplainAnswer:
        match request.WhichOneof("about"):
            case "request_id":
                return await self._request(request.request_id, context)
            case "lease_id":
                return await self._lease(request.lease_id, context)
            case "wish":
                return await self._wish(request.wish, context)
            case _:
                text = "nothing is asked about; name a request, a lease or a wish"
                await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "bad-request", text)

    async def _request(self, name: str, context: Any) -> pb.ExplainAnswer:
        request = self._pool.state.requests.get(name)
        if request is None:
            text = f"no request {name.rpartition(chr(10))[2][:64]!r} waits; it was granted, refused or given up, or never made"
            await refuse(context, grpc.StatusCode.NOT_FOUND, "unknown-request", text)
        await self._require_own(request.user, "request", context)
        said = explanations.of_request(request, self._pool.state)
        return pb.ExplainAnswer(explanation=said or explanations.of_sentence("full", say("arrived")))

    async def _lease(self, name: str, context: Any) -> pb.ExplainAnswer:
        lease = self._pool.state.leases.get(name)
        if lease is None:
            text = f"the pool knows no lease {name[:64]!r}"
            await refuse(context, grpc.StatusCode.NOT_FOUND, "unknown-lease", text)
        await self._require_own(lease.user, "lease", context)
        return await self._turns.make(lease.user, context, self._of_lease, lease)

    def _of_lease(self, lease: LeaseRecord) -> pb.ExplainAnswer:
        pool, now = self._pool, self._pool.clock.now()
        lease = pool.state.leases.get(lease.gang or lease.id, lease)
        tree = project_tree(pool.state)
        protected = lease.live and standing_view.standings(pool.state, tree, {}).is_protected(lease.id)
        said = explanations.of_lease(
            lease,
            pool.state,
            pool.timers,
            now,
            protected=protected,
            min_run=tree.min_run(tree.leaf(lease.project), pool.timers.min_run),
            consolidate=pool.machine.consolidate,
        )
        shares = convert.shares(gang_view.shares(pool.state.lease_parts(lease))) if lease.holds else ()
        return pb.ExplainAnswer(granted=lease.live, explanation=said, shares=shares)

    async def _wish(self, wish: pb.RequestLease, context: Any) -> pb.ExplainAnswer:
        pool = self._pool
        message = pb.RequestLease()
        message.CopyFrom(wish)
        message.idempotency_key = f"explain-{secrets.token_hex(8)}"  # of no request that has been made
        user = wish.on_behalf_of or current_identity().name
        session = pool.state.sessions.get(wish.session_id)
        if session is not None and not wish.on_behalf_of and current_identity().is_admin:
            user = session.user
        await self._require_own(user, "wish", context)
        try:
            event = validate.request(message, user, pool.clock.now(), current_identity().groups_of(user))
        except validate.BadInputError as error:
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, error.reason, str(error))
        found = await self._turns.make(user, context, self._weighed, event)
        return self._answer(found, wish)

    def _weighed(self, event: events.Requested) -> Considered:
        # Its turn may come later than it was asked.
        return self._what_ifs.consider(replace(event, now=self._pool.clock.now()))

    def _answer(self, found: Considered, wish: pb.RequestLease) -> pb.ExplainAnswer:
        if found.outcome is Outcome.GRANT:
            said = explanations.of_sentence("", say("would-grant"), wish.project)
            return pb.ExplainAnswer(granted=True, explanation=said, shares=convert.shares(found.shares))
        request = found.request
        if request is None or found.decision is None:
            return pb.ExplainAnswer(
                explanation=explanations.of_sentence(found.reason, found.said, wish.project)
            )
        said = explanations.of_decision(
            found.decision, request, self._pool.state, place=request.place, eta=request.eta
        )
        return pb.ExplainAnswer(explanation=said)

    async def _require_own(self, user: str, what: str, context: Any) -> None:
        identity = current_identity()
        if not identity.may_act_for(user):
            text = f"this {what} is another user's; {identity.name} may not see it"
            await refuse(context, grpc.StatusCode.PERMISSION_DENIED, "forbidden", text)
