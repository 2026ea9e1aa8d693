"""Protobuf messages of ``gpupool.v1`` to the values of :mod:`gpupool.client.types`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from gpupool.client import types
from gpupool.proto import pool_pb2
from gpupool.proto.sentences import from_message
from gpupool.request.forms import command_line, message_fields, of_message

#: What a request says besides its request.
_ENVELOPE: Final = ("session_id", "on_behalf_of", "label", "holder", "reservation", "idempotency_key")

# Messages are typed Any: the generated classes carry no reliable annotations across
# the protobuf versions that are supported.


def lease_request(request: types.LeaseRequest, wait_seconds: float) -> Any:
    """The message of a request; ``wait_seconds`` below 0: without limit."""
    fields = pool_pb2.RequestLease.DESCRIPTOR.fields_by_name
    return pool_pb2.RequestLease(
        **message_fields(request, fields)
        | {"wait_seconds": wait_seconds}
        | {name: _sendable(getattr(request, name)) for name in _ENVELOPE}
    )


def _sendable(value: Any) -> Any:
    """Arguments that are no UTF-8, such as names of old files, reach Python as surrogates, which no message holds."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def grant(message: Any) -> types.Grant:
    return types.Grant(
        lease_id=message.lease_id,
        session_id=message.session_id,
        epoch=message.epoch,
        shares=tuple(granted_share(item) for item in message.shares),
        worker_address=message.worker_address,
        worker_token=message.worker_token,
        software=message.software,
        profile=message.profile,
        new_session=message.new_session,
        workers=tuple(granted_worker(item) for item in message.workers),
    )


def granted_worker(message: Any) -> types.GrantedWorker:
    return types.GrantedWorker(
        message.session_id, message.epoch, message.address, message.token, message.devices
    )


def granted_share(message: Any) -> types.GrantedShare:
    return types.GrantedShare(message.device_id, message.share.milli, message.share.mib)


def eta(seconds: float) -> float | None:
    return None if seconds < 0 else seconds


def queue_place(message: Any) -> types.QueuePlace:
    return types.QueuePlace(
        message.place,
        str(from_message(message.said)),
        eta(message.eta_seconds),
        explanation_of(message, "explanation"),
    )


def explanation(message: Any) -> types.Explanation:
    return types.Explanation(
        reason=message.reason,
        sentence=str(from_message(message.said)),
        facts=dict(message.facts),
        helps=tuple(help_(item) for item in message.helps),
        project=message.project,
        place=message.place,
        eta_seconds=eta(message.eta_seconds),
        said=from_message(message.said),
    )


def help_(message: Any) -> types.Help:
    said = from_message(message.said)
    if not message.HasField("request"):
        return types.Help(message.action, str(said), said=said)
    # How long it waits is for whoever makes it to say.
    request = replace(of_message(message.request), wait_seconds=None)
    return types.Help(message.action, str(said), command_line(request), request, said)


def explanation_of(message: Any, field: str) -> types.Explanation | None:
    """The explanation in a message's field; None: the pool gave none."""
    return explanation(getattr(message, field)) if message.HasField(field) else None


def notice_of(message: Any) -> types.Notice | None:
    """The notice in a message; None: there is none."""
    if not message.HasField("notice"):
        return None
    told = message.notice
    said = from_message(told.said)
    return types.Notice(told.reason, told.seconds_left, str(said), said)


def usage(message: Any) -> types.Usage:
    return types.Usage(
        device_seconds=message.device_seconds,
        kernels=message.kernels,
        calls=message.calls,
        posts=message.posts,
        asks=message.asks,
        ask_seconds=message.ask_seconds,
        bytes_to_device=message.bytes_to_device,
        bytes_from_device=message.bytes_from_device,
        memory_used=tuple(message.memory_used),
        memory_peak=tuple(message.memory_peak),
        idle_seconds=message.idle_seconds,
        in_flight=message.in_flight,
        client_connected=message.client_connected,
        state=message.state,
        work=message.work,
        kernel=message.kernel,
        work_seconds=message.work_seconds,
        failure=message.failure,
        failed_kernel=message.failed_kernel,
        busy=message.busy,
    )


def lease_status(message: Any) -> types.LeaseStatus:
    return types.LeaseStatus(
        message.lease_id, message.state, message.reason, usage(message.usage), notice_of(message)
    )


def held_share(message: Any) -> types.HeldShare:
    return types.HeldShare(
        lease_id=message.lease_id,
        session_id=message.session_id,
        user=message.user,
        label=message.label,
        holder=message.holder,
        milli=message.share.milli,
        mib=message.share.mib,
        state=message.state,
        in_use=message.in_use,
        project=message.project,
        work=message.work,
        kernel=message.kernel,
        work_seconds=message.work_seconds,
    )


def device(message: Any) -> types.Device:
    return types.Device(
        id=message.id,
        node=message.node,
        ordinal=message.ordinal,
        name=message.name,
        uuid=message.uuid,
        software=message.software,
        healthy=message.healthy,
        health_reason=message.health_reason,
        total_mib=message.total_mib,
        usable_mib=message.usable_mib,
        free_milli=message.free_milli,
        free_mib=message.free_mib,
        used_bytes=message.used_bytes,
        shares=tuple(held_share(item) for item in message.shares),
        profile=message.profile,
        parked_mib=message.parked_mib,
        movable_mib=message.movable_mib,
        node_pool=message.node_pool or "default",
        sharing=message.sharing or "isolated",
        driver=message.driver,
        labels=dict(message.labels),
        drained=message.drained,
        busy=message.busy,
    )


def lease(message: Any) -> types.Lease:
    return types.Lease(
        id=message.id,
        session_id=message.session_id,
        user=message.user,
        label=message.label,
        holder=message.holder,
        epoch=message.epoch,
        shares=tuple(granted_share(item) for item in message.shares),
        state=message.state,
        reason=message.reason,
        granted_unix=message.granted_unix,
        ends_unix=message.ends_unix or None,
        reservation=message.reservation,
        project=message.project,
        kind=message.kind or "interactive",
        priority=message.priority,
        notice=notice_of(message),
        protected=message.protected,
        work=message.work,
        kernel=message.kernel,
        work_seconds=message.work_seconds,
    )


def token(message: Any) -> types.Token:
    revoked = message.revoked_unix if message.HasField("revoked_unix") else None
    return types.Token(message.id, message.subject, message.role, message.created_unix, revoked)


def session(message: Any) -> types.SessionInfo:
    return types.SessionInfo(
        id=message.id,
        user=message.user,
        label=message.label,
        holder=message.holder,
        node=message.node,
        state=message.state,
        reason=message.reason,
        device_ids=tuple(message.device_ids),
        lease_id=message.lease_id,
        usage=usage(message.usage),
        memory_place=message.memory_place or "none",
        park_obstacle=message.park_obstacle,
        move_obstacle=message.move_obstacle,
        enforcement=message.enforcement or "none",
        strict=message.strict,
        memory_activity=message.memory_activity,
        nodes=tuple(message.nodes) or (message.node,),
        project=message.project,
        notice=notice_of(message),
        isolated=message.isolated,
    )


def queue_entry(message: Any) -> types.QueueEntry:
    return types.QueueEntry(
        place=message.place,
        user=message.user,
        label=message.label,
        holder=message.holder,
        milli=message.milli,
        mib=message.mib,
        count=message.count,
        reason=str(from_message(message.said)),
        eta_seconds=eta(message.eta_seconds),
        since_unix=message.since_unix,
        nodes=message.nodes,
        id=message.id,
        project=message.project,
        kind=message.kind or "interactive",
        priority=message.priority,
        filters=tuple(message.filters),
        explanation=explanation_of(message, "explanation"),
        wants=tuple(message.wants),
    )


def health_report(message: Any) -> types.HealthReport:
    return types.HealthReport(
        ok=message.ok,
        checks=tuple(
            types.HealthCheck(item.name, item.status, item.detail, item.hint) for item in message.checks
        ),
        version=message.version,
        now_unix=message.now_unix,
    )


def node(message: Any) -> types.Node:
    return types.Node(
        name=message.name,
        connected=message.connected,
        silent_seconds=message.silent_seconds,
        lost=message.lost,
        drained=message.drained,
        drain_reason=message.drain_reason,
        node_pool=message.node_pool,
        sharing=message.sharing,
        labels=dict(message.labels),
        address=message.address,
        devices=message.devices,
        leases=message.leases,
        park_memory_mib=message.park_memory_mib,
        park_memory_free_mib=message.park_memory_free_mib,
    )


def explain_answer(message: Any) -> types.ExplainAnswer:
    return types.ExplainAnswer(
        message.granted,
        explanation(message.explanation),
        tuple(granted_share(item) for item in message.shares),
    )
