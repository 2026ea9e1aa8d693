"""Between the pool's records and the messages of `gpupool.v1`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from gpupool.model.clock import Clock
from gpupool.model.instructions import (
    AnswerHeartbeat,
    ApplyLease,
    ParkMemory,
    RevokeLease,
    StartWorker,
    StopWorker,
)
from gpupool.model.state import LeaseRecord, RequestRecord, SessionRecord, State, Usage
from gpupool.pool.api import explanations
from gpupool.pool.leases import budget_rules, gang_view
from gpupool.pool.lifecycle.shell import NodeMessage
from gpupool.pool.model.session_keys import client_token
from gpupool.pool.model.timers import Timers
from gpupool.pool.model.view import health, host_rooms, pool_view, used_bytes
from gpupool.pool.nodes import profiles, reported
from gpupool.pool.projects import standing_view
from gpupool.pool.projects.project_rules import project_tree
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.proto.sentences import to_message
from gpupool.scheduler.model import PlacedShare

#: Work submitted this recently counts as use, seconds.
_IN_USE_SECONDS = 5.0
#: Places of the queue that are listed for everybody; a page asks for them every second.
MOST_PLACES: Final = 500
#: Of a list of the queue, far below what clients take in one answer (16 MiB).
MOST_QUEUE_BYTES: Final = 8 * 1024 * 1024


def shares(placed: Iterable[PlacedShare]) -> list[pb.DeviceShare]:
    return [pb.DeviceShare(device_id=s.device_id, share=pb.Share(milli=s.milli, mib=s.mib)) for s in placed]


def to_node(item: NodeMessage, timers: Timers, leader_epoch: int = 0) -> pb.ToNode:
    """`leader_epoch`: under which this server leads; 0: it is the only one."""
    match item:
        case AnswerHeartbeat():
            live = [
                pb.LiveLease(session_id=x.session_id, epoch=x.epoch, shares=shares(x.shares))
                for x in item.leases
            ]
            answer = pb.HeartbeatAnswer(
                number=item.number, fence_seconds=timers.fence, leases=live, leader_epoch=leader_epoch
            )
            return pb.ToNode(heartbeat=answer)
        case StartWorker():
            start = pb.StartWorker(
                session_id=item.session_id,
                epoch=item.epoch,
                shares=shares(item.shares),
                token=item.token,
                move_key=item.move_key,
                user=item.user,
                fence_seconds=timers.fence,
                drain_seconds=timers.drain,
                image_source=item.image_source,
                from_image=item.from_image,
                strict=item.strict,
            )
            return pb.ToNode(request=item.request, start=start)
        case ApplyLease():
            lease = pb.ApplyLease(
                session_id=item.session_id,
                epoch=item.epoch,
                shares=shares(item.shares),
                fence_seconds=timers.fence,
            )
            return pb.ToNode(request=item.request, lease=lease)
        case RevokeLease():
            revoke = pb.RevokeLease(session_id=item.session_id, epoch=item.epoch)
            return pb.ToNode(request=item.request, revoke=revoke)
        case ParkMemory():
            park = pb.ParkMemory(session_id=item.session_id, epoch=item.epoch, place=item.place)
            return pb.ToNode(request=item.request, park=park)
        case StopWorker():
            stop = pb.StopWorker(session_id=item.session_id, reason=item.reason)
            return pb.ToNode(request=item.request, stop=stop)


def grant(state: State, lease: LeaseRecord) -> pb.Grant:
    parts = state.lease_parts(lease)
    placed = gang_view.shares(parts)
    devices = [state.devices[share.device_id] for share in placed]
    workers = [_worker(state.sessions[part.session_id], part) for part in parts]
    return pb.Grant(
        lease_id=parts[0].id,
        session_id=workers[0].session_id,
        epoch=workers[0].epoch,
        shares=shares(placed),
        worker_address=workers[0].address,
        worker_token=workers[0].token,
        software=all(device.software for device in devices),
        profile=profiles.join([device.profile for device in devices]),
        new_session=lease.new_session,
        workers=workers,
    )


def _worker(session: SessionRecord, lease: LeaseRecord) -> pb.GrantedWorker:
    return pb.GrantedWorker(
        session_id=session.id,
        epoch=lease.epoch,
        address=session.address,
        token=client_token(session),
        devices=len(lease.shares),
    )


def device_list(state: State, timers: Timers, now: float, viewer: str | None) -> pb.DeviceList:
    """All devices; `viewer` None sees every label and holder, a user only their own."""
    view = {device.id: device for device in pool_view(state, timers, {}, now).devices}
    used, busy = used_bytes(state), reported.busy(state)
    held: dict[str, list[pb.HeldShare]] = {device_id: [] for device_id in state.devices}
    for lease in sorted(state.index.holding.records(), key=lambda x: (x.granted_at, x.id)):
        session = state.sessions[lease.session_id]
        label, holder = _visible(lease, viewer)
        work = reported.visible_work(lease, session.usage, viewer)
        for share in lease.taken():
            if share.device_id in held:
                held[share.device_id].append(
                    pb.HeldShare(
                        lease_id=lease.gang or lease.id,
                        session_id=session.gang or session.id,
                        user=lease.user,
                        label=label,
                        holder=holder,
                        share=pb.Share(milli=share.milli, mib=share.mib),
                        state="attached" if lease.live else "releasing",
                        in_use=lease.live and _in_use(session),
                        project=lease.project,
                        work=work.work,
                        kernel=work.kernel,
                        work_seconds=work.work_seconds,
                    )
                )
    answer = pb.DeviceList()
    for device in sorted(state.devices.values(), key=lambda d: (d.node, d.ordinal)):
        healthy, why_not = health(state, device, timers, now)
        node = state.nodes[device.node]
        answer.devices.append(
            pb.Device(
                id=device.id,
                node=device.node,
                ordinal=device.ordinal,
                name=device.name,
                uuid=device.uuid,
                software=device.software,
                healthy=healthy,
                health_reason=why_not,
                total_mib=device.total_mib,
                usable_mib=view[device.id].usable,
                free_milli=max(0, view[device.id].free_milli),
                free_mib=max(0, view[device.id].free_mib),
                used_bytes=used[device.id],
                shares=held[device.id],
                profile=device.profile,
                parked_mib=sum(h.mib for h in view[device.id].held if not h.lease_id),
                movable_mib=sum(h.mib for h in view[device.id].held if h.movable or h.leaving),
                node_pool=node.pool,
                sharing=node.sharing,
                driver=device.driver,
                labels=dict(node.labels),
                drained=node.closed,
                busy=busy[device.id],
            )
        )
    return answer


def node_list(state: State, now: float, only: str = "") -> pb.NodeList:
    """Nodes as people see them, all or the one named; room for parked sessions counts only while one is connected."""
    rooms = host_rooms(state)
    devices = Counter(device.node for device in state.devices.values() if device.present)
    leases = Counter(lease.node for lease in state.leases.values() if lease.live)
    answer = pb.NodeList()
    for name in [only] if only else sorted(state.nodes):
        record = state.nodes[name]
        connected = record.connection is not None
        answer.nodes.append(
            pb.Node(
                name=name,
                connected=connected,
                silent_seconds=max(0.0, now - record.last_answered),
                lost=record.lost,
                drained=record.closed,
                drain_reason=record.closed_because,
                node_pool=record.pool,
                sharing=record.sharing,
                labels=dict(record.labels),
                address=record.advertise_host,
                devices=devices[name],
                leases=leases[name],
                park_memory_mib=record.park_memory_mib,
                park_memory_free_mib=max(0, rooms.get(name, 0)) if connected else 0,
            )
        )
    return answer


def lease_list(state: State, clock: Clock, viewer: str | None, ids: Collection[str] = ()) -> pb.LeaseList:
    """Leases that hold something. Those that ended are remembered for an hour, and listed by ``ids`` only."""
    answer = pb.LeaseList()
    names = set(ids) or {lease.gang or lease.id for lease in state.index.holding.records()}
    listed = [lease for name in names if (lease := state.leases.get(name)) is not None]
    held = standing_view.standings(state, project_tree(state), {})
    budgets = budget_rules.ends(state, clock.now())
    for lease in sorted(listed, key=lambda x: (x.granted_at, x.id)):
        if lease.part:
            continue  # shown with the first
        parts = state.lease_parts(lease)
        label, holder = _visible(lease, viewer)
        work = Usage()
        if any(part.holds for part in parts):
            whole = gang_view.usage([state.sessions[part.session_id] for part in parts])
            work = reported.visible_work(lease, whole, viewer)
        answer.leases.append(
            pb.Lease(
                id=lease.id,
                session_id=lease.session_id,
                user=lease.user,
                label=label,
                holder=holder,
                epoch=lease.epoch,
                shares=shares(gang_view.shares(parts)),
                state=gang_view.lease_state(parts),
                reason=lease.reason,
                granted_unix=clock.to_unix(lease.granted_at),
                ends_unix=_ends_unix(lease, budgets, clock),
                reservation=lease.reservation,
                project=lease.project,
                kind=lease.kind,
                priority=lease.priority,
                notice=notice(lease, clock.now()),
                protected=lease.live and held.is_protected(lease.id),
                work=work.work,
                kernel=work.kernel,
                work_seconds=work.work_seconds,
            )
        )
    return answer


def _ends_unix(lease: LeaseRecord, budgets: Mapping[str, float], clock: Clock) -> float:
    """When its time or its user's GPU-seconds are over, whichever comes first; 0: not as far as is known."""
    budget = budgets.get(lease.user) if lease.live else None
    ends = [end for end in (lease.ends_at, budget) if end is not None]
    return clock.to_unix(min(ends)) if ends else 0.0


def notice(lease: LeaseRecord | None, now: float) -> pb.Notice | None:
    """That a lease will be taken back; None: it will not."""
    if lease is None or not lease.live or lease.notice is None:
        return None
    said = lease.notice
    left = max(0.0, said.until - now)
    return pb.Notice(reason=said.reason, seconds_left=left, said=to_message(said.said))


def session_list(state: State, now: float, viewer: str | None) -> pb.SessionList:
    answer = pb.SessionList()
    seen = state.sessions.values() if viewer is None else state.index.sessions_of_user.of(viewer)
    for session in seen:
        if session.part:
            continue  # shown with the first
        parts = state.session_parts(session)
        lease = state.lease_of_session(session)
        whole, used = gang_view.session_state(parts), gang_view.usage(parts)
        warning = notice(lease, now)
        if whole == "starting":
            whole = "queued"
        elif whole == "attached" and warning is not None:
            whole = "warned"
        answer.sessions.append(
            pb.Session(
                id=session.id,
                user=session.user,
                label=session.label,
                holder=session.holder,
                node=session.node,
                state=whole,
                reason=session.reason,
                device_ids=[device_id for part in parts for device_id in part.device_ids],
                lease_id=lease.id if lease is not None and lease.live else "",
                usage=reported.usage(
                    used if lease is not None and lease.live else reported.after_a_lease(used)
                ),
                memory_place=gang_view.place(parts),
                park_obstacle=next((part.park_obstacle for part in parts if part.park_obstacle), ""),
                move_obstacle=next((part.move_obstacle for part in parts if part.move_obstacle), ""),
                enforcement=gang_view.enforcement(parts),
                strict=session.strict,
                memory_activity=next(
                    (doing for part in parts if (doing := _activity(part, state.lease_of_session(part)))), ""
                ),
                nodes=[part.node for part in parts],
                project=session.project,
                notice=warning,
                isolated=session.isolated,
            )
        )
    return answer


def queue_list(state: State, clock: Clock, viewer: str | None) -> pb.QueueList:
    """The first places, and all of the viewer; what does not fit into an answer is counted."""
    answer = pb.QueueList()
    room = MOST_QUEUE_BYTES
    for number, request in enumerate(sorted(state.requests.values(), key=lambda a: (a.place, a.number))):
        entry = None
        if number < MOST_PLACES or request.user == viewer:
            entry = _queue_entry(request, state, clock, viewer)
            room -= entry.ByteSize()
        if entry is None or room < 0:
            answer.left_out += 1
        else:
            answer.entries.append(entry)
    return answer


def _queue_entry(request: RequestRecord, state: State, clock: Clock, viewer: str | None) -> pb.QueueEntry:
    label, holder = _visible(request, viewer)
    in_full = viewer in (None, request.user)
    return pb.QueueEntry(
        place=request.place,
        user=request.user,
        label=label,
        holder=holder,
        milli=request.milli or 0,
        mib=request.mib or 0,
        count=request.count,
        said=to_message(request.said),
        eta_seconds=-1.0 if request.eta is None else request.eta,
        since_unix=clock.to_unix(request.since),
        nodes=request.nodes,
        id=request.id,
        project=request.project,
        kind=request.kind,
        priority=request.priority,
        filters=[str(condition) for condition in request.filters] if in_full else [],
        explanation=explanations.of_request(request, state) if in_full else None,
        wants=request.wants,
    )


def _activity(session: SessionRecord, lease: LeaseRecord | None) -> str:
    """What is being done with a session's memory now."""
    if session.parking is not None:
        return "parking"
    if lease is None or lease.state != "starting" or lease.new_session:
        return ""
    if lease.node != session.node:
        return "moving"
    return "" if session.place == "device" else "resuming"


def _visible(record: LeaseRecord | RequestRecord, viewer: str | None) -> tuple[str, str]:
    """A notebook's name is its owner's business."""
    return (record.label, record.holder) if viewer in (None, record.user) else ("", "")


def _in_use(session: SessionRecord) -> bool:
    busy = (
        session.usage.in_flight
        or session.usage.idle_seconds < _IN_USE_SECONDS
        or session.usage.work == "running"
    )
    return busy and session.usage.kernels + session.usage.calls > 0
