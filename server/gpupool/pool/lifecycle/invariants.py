"""What must hold after every step of the pool, as one function. Tests call it after each.

See also `tests/property/test_pool_machine.py`, which holds the same against simulated workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from gpupool.model.state import (
    LEASE_STATES,
    PLACES,
    SESSION_STATES,
    LeaseRecord,
    SessionRecord,
    State,
    key_of,
    node_of_device,
)
from gpupool.pool.projects import limit_rules
from gpupool.pool.queue.queue_rules import ALL_TOLD
from gpupool.scheduler.model import Quota
from gpupool.scheduler.pool_view import PoolView
from gpupool.sentences.reasons import REASONS
from gpupool.shares import WHOLE_DEVICE_MILLI, usable_mib


class InvariantViolatedError(AssertionError):
    """The state contradicts itself; the message lists every contradiction."""


def check_invariants(state: State, quotas: Mapping[str, Quota] | None = None) -> None:
    """Checks the whole state.

    - Capacity: the shares taken on a device never exceed it, those being given back included.
    - Fencing: a session has at most one lease that holds shares; its epochs are never used twice; the
      live lease has the highest.
    - Idempotency: a key leads to exactly one lease.
    - Endings: what has ended or closed holds nothing, and says why.
    - Memory: what lies in a node's host memory stays within its budget, and what is on its way there; memory
      is moved of parked sessions only. A session between two nodes has one worker that may serve.
    - Gangs: leases of several nodes live as a whole or not at all, and are served as a whole or not yet; their
      sessions close together; no two parts are on one node.
    - Quota: nobody holds more than allowed. Queue: no two requests have one place, as long as all are told of every change.
    - Notices: each is for a request that waits, or of an administrator, or because GPU-seconds are used up; a gang has one.

    Raises:
        InvariantViolatedError: with all violations, one per line.
    """
    found = [
        *_capacity(state),
        *_memory(state),
        *_leases(state),
        *_sessions(state),
        *_gangs(state),
        *_keys(state),
        *_quotas(state, quotas or {}),
        *_queue(state),
        *_notices(state),
    ]
    if found:
        raise InvariantViolatedError("\n".join(found))


def _capacity(state: State) -> Iterator[str]:
    milli: Counter[str] = Counter()
    mib: Counter[str] = Counter()
    for lease in state.leases.values():
        if lease.holds:
            for share in lease.taken():
                milli[share.device_id] += share.milli
                # Without isolation the MiB of a lease are a limit; nothing is reserved.
                mib[share.device_id] += share.mib if state.sessions[lease.session_id].isolated else 0
    for device_id in milli:
        device = state.devices.get(device_id)
        if device is None:
            yield f"shares are held on {device_id}, which is unknown"
            continue
        if milli[device_id] > WHOLE_DEVICE_MILLI:
            yield f"{milli[device_id]} milli-GPU are taken on {device_id}"
        if mib[device_id] > usable_mib(device.total_mib):
            yield f"{mib[device_id]} of {usable_mib(device.total_mib)} MiB are taken on {device_id}"


def _memory(state: State) -> Iterator[str]:
    """Of memory that left its device only the promise is checked here: how much a worker keeps is its own word."""
    for session in state.sessions.values():
        if session.place not in PLACES:
            yield f"the memory of session {session.id} lies in {session.place!r}"
        if session.parking is not None and (session.state not in ("parked", "lost") or session.lease_id):
            yield f"the memory of session {session.id} is being moved, but it is {session.state}"
        if session.left is not None and session.left.node == session.node:
            yield f"session {session.id} has left node {session.node} and is there"
        if any(node_of_device(device_id) != session.node for device_id in session.device_ids):
            yield f"session {session.id} of node {session.node} has devices {session.device_ids}"
        if session.place == "image" and session.address and session.state == "parked":
            yield f"session {session.id} lies on disk and has a worker at {session.address}"


def _leases(state: State) -> Iterator[str]:
    epochs: Counter[tuple[str, int]] = Counter()
    holding: Counter[str] = Counter()
    for lease in state.leases.values():
        session = state.sessions.get(lease.session_id)
        if session is None:
            yield f"lease {lease.id} is of an unknown session"
            continue
        epochs[lease.session_id, lease.epoch] += 1
        holding[lease.session_id] += lease.holds
        if lease.state not in LEASE_STATES:
            yield f"lease {lease.id} is {lease.state!r}"
        if lease.epoch > session.epoch or (lease.live and lease.epoch != session.epoch):
            yield f"lease {lease.id} has epoch {lease.epoch}, its session {session.epoch}"
        if lease.holds and session.lease_id != lease.id:
            yield f"lease {lease.id} holds shares, but its session names lease {session.lease_id!r}"
        if lease.live == bool(lease.reason):
            yield f"lease {lease.id} is {lease.state} with reason {lease.reason!r}"
        if lease.reason and lease.reason not in REASONS:
            yield f"lease {lease.id} ended for {lease.reason!r}"
        if (lease.state == "ended") != (lease.ended_at is not None):
            yield f"lease {lease.id} is {lease.state} with ended_at {lease.ended_at}"
        attached_elsewhere = tuple(share.device_id for share in lease.shares) != session.device_ids
        if lease.state == "attached" and (attached_elsewhere or session.place != "device"):
            yield f"lease {lease.id} is not on the devices of its session"
        if len({node_of_device(share.device_id) for share in lease.shares}) != 1:
            yield f"lease {lease.id} is on several nodes"
        if len(set(session.device_ids)) != len(session.device_ids):
            yield f"session {session.id} has one device twice"
        if any(share.milli < 1 or share.mib < 1 for share in lease.shares):
            yield f"lease {lease.id} has an empty share"
    yield from (f"epoch {key} was granted twice" for key, times in epochs.items() if times > 1)
    yield from (f"session {name} has {n} leases that hold shares" for name, n in holding.items() if n > 1)


def _sessions(state: State) -> Iterator[str]:
    for session in state.sessions.values():
        lease = state.lease_of_session(session)
        if session.state not in SESSION_STATES:
            yield f"session {session.id} is {session.state!r}"
        if session.lease_id and (lease is None or not lease.holds):
            yield f"session {session.id} names lease {session.lease_id}, which holds nothing"
        expected = lease.state if lease is not None and lease.live else None
        if expected is None and session.state in ("starting", "attached"):
            yield f"session {session.id} is {session.state} without a live lease"
        if expected is not None and session.state != expected:
            yield f"session {session.id} is {session.state}, its lease {expected}"
        if (session.state == "closed") != (session.closed_at is not None):
            yield f"session {session.id} is {session.state} with closed_at {session.closed_at}"
        if session.state == "attached" and not session.address:
            yield f"session {session.id} is attached to a worker without an address"
        if session.worker_gone and session.state != "closed":
            yield f"session {session.id} is {session.state}, but its worker is gone"


def _gangs(state: State) -> Iterator[str]:
    leases: dict[str, list[LeaseRecord]] = {}
    sessions: dict[str, list[SessionRecord]] = {}
    for lease in state.leases.values():
        leases.setdefault(lease.gang or lease.id, []).append(lease)
        whole = state.sessions[lease.session_id].gang
        if bool(lease.gang) != bool(whole) or lease.part != state.sessions[lease.session_id].part:
            yield f"lease {lease.id} is part {lease.part} of gang {lease.gang!r}, its session of {whole!r}"
    for session in state.sessions.values():
        sessions.setdefault(session.gang or session.id, []).append(session)
    for name, parts in sessions.items():
        yield from _numbered(f"gang of session {name}", [(x.id, x.gang, x.part) for x in parts])
        if len({part.state == "closed" for part in parts}) > 1:
            yield f"sessions of gang {name} are {[part.state for part in parts]}"
        open_on = [part.node for part in parts if part.state != "closed"]
        if len(set(open_on)) != len(open_on):
            yield f"sessions of gang {name} are on {open_on}"
        if len({part.user for part in parts}) > 1:
            yield f"gang {name} has several users"
    for name, lot in leases.items():
        yield from _numbered(f"gang of lease {name}", [(x.id, x.gang, x.part) for x in lot])
        states = [lease.state for lease in lot]
        if len({state if state in ("starting", "attached") else "over" for state in states}) > 1:
            yield f"leases of gang {name} are {states}"
        lead = state.sessions.get(lot[0].session_id)
        if lead is not None and len(lot) != len(sessions[lead.gang or lead.id]):
            yield f"gang {name} has {len(lot)} leases and {len(sessions[lead.gang or lead.id])} sessions"
        if any(lease.part and lease.renew_by is not None for lease in lot):
            yield f"a part of gang {name} is to be renewed by itself"


def _numbered(what: str, parts: list[tuple[str, str, int]]) -> Iterator[str]:
    numbers = sorted(number for _, _, number in parts)
    first = next((name for name, _, number in parts if number == 0), "")
    if numbers != list(range(len(parts))):
        yield f"{what} has parts {numbers}"
    if any(gang != (first if len(parts) > 1 else "") for _, gang, _ in parts):
        yield f"{what} is named {[gang for _, gang, _ in parts]}"


def _keys(state: State) -> Iterator[str]:
    for lease in state.leases.values():
        if state.keys.get(key_of(lease.user, lease.key)) != lease.id:
            yield f"the key of lease {lease.id} does not lead to it"
    for name, lease_id in state.keys.items():
        if lease_id not in state.leases:
            yield f"key {name!r} leads to lease {lease_id}, which is unknown"
        if name in state.requests:
            yield f"key {name!r} has a lease and waits too"


def _quotas(state: State, quotas: Mapping[str, Quota]) -> Iterator[str]:
    view = PoolView((), quotas)
    milli: Counter[str] = Counter()
    shares: Counter[str] = Counter()
    for lease in state.leases.values():
        if lease.holds:
            milli[lease.user] += sum(share.milli for share in lease.taken())
            shares[lease.user] += len(lease.shares)
    for user in milli:
        if limit_rules.limit_of(state, user) is not limit_rules.NO_LIMIT:
            continue  # set while leases live, which it ends none of
        quota = view.quota_of(user)
        if quota.milli is not None and milli[user] > quota.milli:
            yield f"{user} holds {milli[user]} milli-GPU of {quota.milli}"
        if quota.shares is not None and shares[user] > quota.shares:
            yield f"{user} holds {shares[user]} shares of {quota.shares}"


def _notices(state: State) -> Iterator[str]:
    for lease in state.leases.values():
        if not lease.live or lease.notice is None:
            continue
        if lease.notice.for_request and lease.notice.for_request not in state.requests:
            yield f"lease {lease.id} is asked back for {lease.notice.for_request!r}, which does not wait"
        if lease.kind == "guaranteed" and lease.notice.reason not in ("drain", "budget"):
            yield f"lease {lease.id} is guaranteed and has a notice ({lease.notice.reason})"
        if any(part.notice != lease.notice for part in state.lease_parts(lease)):
            yield f"parts of the gang of lease {lease.id} have different notices"


def _queue(state: State) -> Iterator[str]:
    # After a restart nobody has a place until the queue is looked at first.
    places = sorted(request.place for request in state.requests.values() if request.place)
    if len(state.requests) <= ALL_TOLD and places != list(range(1, len(places) + 1)):
        yield f"places in the queue are {places}"
