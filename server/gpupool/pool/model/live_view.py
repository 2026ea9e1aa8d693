"""The view of the scheduler, kept up to date: what changed since somebody looked is worked out again, and nothing else.

The tables tell which records changed (`Table.watch`). What depends on time alone (a node that falls silent, a session whose
memory may be tried again, a place that is kept no longer) is in a list of moments, looked at when they have come.

Policies that learn are told of each ask once, after the step in which it came (`LiveView.learn`): what a step decides rests on
what was known before it; after a restart, of the leases that the ledger knows.
"""

from __future__ import annotations

import contextlib
import heapq
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from gpupool.model.state import DeviceRecord, LeaseRecord, NodeRecord, RequestRecord, State
from gpupool.pool.model.holds import (
    health,
    holds_of_lease,
    holds_of_session,
    host_share,
    turns_at,
    unreachable,
)
from gpupool.pool.model.timers import Timers
from gpupool.scheduler.fleet import Fleet, same_device
from gpupool.scheduler.model import DEFAULT_NODE_POOL, DeviceView, Held, PoolView, Promise, Quota
from gpupool.scheduler.placement import DEFAULT_POLICY, Demand, Policy, policy_named
from gpupool.scheduler.snapshot import Present, Snapshot

#: What is held, with the device.
Holds = tuple[tuple[str, Held], ...]


def of(state: State) -> LiveView | None:
    """The view that follows `state`, if somebody has looked at it already."""
    view = state.live_view
    assert view is None or isinstance(view, LiveView)
    return view


class LiveView:
    """Follows one state. Not to be used from several threads.

    Args:
        policy: name of the placement policy; what the leases of the state tell it learns at once.

    Attributes:
        promised: what providers can bring.

    Raises:
        ValueError: there is no such policy.
    """

    def __init__(
        self,
        state: State,
        timers: Timers,
        policy: str = DEFAULT_POLICY,
    ) -> None:
        self.timers = timers
        self._state = state
        self._nodes = state.nodes.watch()
        self._devices = state.devices.watch()
        self._sessions = state.sessions.watch()
        self._leases = state.leases.watch()
        self._requests = state.requests.watch()
        self._seen: dict[str, int] = {}
        self._learns = True
        self._heard: list[Demand] = []
        self._due: list[tuple[float, str, str]] = []
        self._due_of: dict[tuple[str, str], float] = {}
        self.policy = _taught(policy, state)
        self.promised: tuple[Promise, ...] = ()
        self._snapshot: Snapshot | None = None
        self._begin()

    @contextlib.contextmanager
    def not_learning(self) -> Iterator[None]:
        """Requests that come while this is open are not learned from: they are what-ifs."""
        self._learns = False
        try:
            yield
        finally:
            self._hear()  # sees them, and forgets them again if they are rolled back
            self._learns = True

    def learn(self) -> None:
        """Tells the policy of the requests that came in earlier steps. To be called between steps."""
        self._hear()
        for demand in self._heard:
            self.policy.observe(demand)
        self._heard.clear()

    def at(self, now: float, quotas: Mapping[str, Quota] | None = None) -> PoolView:
        """The pool as it is at `now`."""
        self._hear()
        self._come_due(now)
        if not self._same_devices():
            self._begin()
        stale = self._refreshed(now)
        if stale or self._snapshot is None:
            serial = self._fleet.advance(stale)
            self._snapshot = Snapshot(self._present, self._fleet, serial)
        return PoolView(self._snapshot, quotas or {}, host_room=self._host_room, promised=self.promised)

    # ---- what changed

    def _begin(self) -> None:
        """Starts from nothing: at first, and when devices come or go or are others than before."""
        for changes in (self._nodes, self._devices, self._sessions, self._leases):
            changes.clear()
        state = self._state
        self._present = Present(
            _device_view(state.nodes.get(device.node), device) for device in state.devices.values()
        )
        self._fleet = Fleet(self._present.devices, self.policy)
        self._of_node: dict[str, list[str]] = {}
        for device in state.devices.values():
            self._of_node.setdefault(device.node, []).append(device.id)
        self._described = {node.name: _description(node) for node in state.nodes.values()}
        self._held: list[dict[tuple[str, str], tuple[Held, ...]]] = [{} for _ in self._present.devices]
        self._holds: dict[tuple[str, str], Holds] = {}
        self._session_of: dict[str, str] = {}
        self._host_share: dict[str, tuple[tuple[str, int], ...]] = {}
        self._host_taken: Counter[str] = Counter()
        self._host_room: dict[str, int] = {}
        self._due.clear()
        self._due_of.clear()
        self._snapshot = None
        self._nodes.update(state.nodes)
        self._devices.update(state.devices)
        self._sessions.update(state.sessions)
        self._leases.update(state.leases)

    def _same_devices(self) -> bool:
        """Whether what was touched is in the fleet as it is now, but for what changes from moment to moment."""
        names = set(self._devices)
        for node in self._nodes:
            record = self._state.nodes.get(node)
            if self._described.get(node) != _description(record):
                self._described[node] = _description(record)
                names.update(self._of_node.get(node, ()))
        for name in names:
            place, device = self._fleet.positions.get(name), self._state.devices.get(name)
            if place is None or device is None:
                return False
            if not same_device(
                self._present.devices[place], _device_view(self._state.nodes.get(device.node), device)
            ):
                return False
        return True

    def _refreshed(self, now: float) -> set[int]:
        """Works out what was touched; the positions of devices that are different now."""
        state = self._state
        touched: set[int] = set()
        for lease_id in self._leases:
            lease = state.leases.get(lease_id)
            session_id = lease.session_id if lease else self._session_of.pop(lease_id, "")
            if lease is not None:
                self._session_of[lease_id] = session_id
            if session_id:
                self._sessions.add(session_id)  # whether its memory is covered by a lease
            touched |= self._hold(("lease", lease_id), () if lease is None else holds_of_lease(lease))
        self._leases.clear()
        rooms = {name for name in self._nodes if self._room_of(name) != self._host_room.get(name)}
        for session_id in self._sessions:
            session = state.sessions.get(session_id)
            holds = () if session is None else tuple(holds_of_session(state, session, now))
            touched |= self._hold(("session", session_id), holds)
            shares = () if session is None else tuple(host_share(session))
            before = self._host_share.pop(session_id, ())
            if shares:
                self._host_share[session_id] = shares
            if shares != before:
                for sign, part in ((-1, before), (1, shares)):
                    for node, mib in part:
                        self._host_taken[node] += sign * mib
                        rooms.add(node)
            self._expect("session", session_id, math.inf if session is None else turns_at(session, now))
        self._sessions.clear()
        if rooms:
            room = dict(self._host_room)
            for name in rooms:
                left = self._room_of(name)
                if left is None:
                    room.pop(name, None)
                else:
                    room[name] = left
            self._host_room = room
        names = set(self._devices)
        for node in self._nodes:
            names.update(self._of_node.get(node, ()))
            record = state.nodes.get(node)
            self._expect("node", node, math.inf if record is None else self._falls_silent(record, now))
        self._nodes.clear()
        self._devices.clear()
        changed: set[int] = set()
        for name in names:
            place, device = self._fleet.positions[name], state.devices[name]
            healthy, why_not = health(state, device, self.timers, now)
            view = self._present.devices[place]
            drained = not healthy and not unreachable(state, device, self.timers, now)
            if (view.healthy, view.health_reason, view.drained) != (healthy, why_not, drained):
                self._present.change(
                    place, replace(view, healthy=healthy, health_reason=why_not, drained=drained)
                )
                changed.add(place)
        for place in touched:
            held = tuple(one for _, part in sorted(self._held[place].items()) for one in part)
            view = self._present.devices[place]
            if held != view.held:
                self._present.change(place, replace(view, held=held))
                changed.add(place)
        return changed

    def _hold(self, key: tuple[str, str], holds: Holds) -> set[int]:
        """Notes what a lease or a session holds; the positions where that differs from before."""
        before = self._holds.pop(key, ())
        if holds:
            self._holds[key] = holds
        if holds == before:
            return set()
        for sign, part in ((-1, before), (1, holds)):
            for device_id, held in part:
                if held.lease_id and device_id in self._fleet.positions:
                    self._present.holds(held, sign)
        places = set()
        by_place: dict[int, tuple[Held, ...]] = {}
        for device_id, held in holds:
            place = self._fleet.positions.get(device_id)
            if place is not None:
                by_place[place] = (*by_place.get(place, ()), held)
        for device_id, _ in before:
            place = self._fleet.positions.get(device_id)
            if place is not None and place not in by_place:
                self._held[place].pop(key, None)
                places.add(place)
        for place, all_of in by_place.items():
            self._held[place][key] = all_of
            places.add(place)
        return places

    def _room_of(self, name: str) -> int | None:
        node = self._state.nodes.get(name)
        return None if node is None else node.park_memory_mib - self._host_taken[name]

    # ---- what time changes

    def _falls_silent(self, node: NodeRecord, now: float) -> float:
        """The first moment at which `health` may say something else about it."""
        if node.connection is None or node.lost or node.drained:
            return math.inf
        silent = now - node.last_answered
        if silent <= self.timers.suspect:
            return math.nextafter(node.last_answered + self.timers.suspect, math.inf)
        return now + 0.5  # the seconds that it says

    def _expect(self, kind: str, name: str, moment: float) -> None:
        """Has it looked at again then; one that is looked at earlier is expected anew."""
        if moment == math.inf:
            self._due_of.pop((kind, name), None)
        elif moment < self._due_of.get((kind, name), math.inf):
            self._due_of[kind, name] = moment
            heapq.heappush(self._due, (moment, kind, name))

    def _come_due(self, now: float) -> None:
        while self._due and self._due[0][0] <= now:
            moment, kind, name = heapq.heappop(self._due)
            if self._due_of.get((kind, name)) == moment:
                del self._due_of[kind, name]
                (self._nodes if kind == "node" else self._sessions).add(name)

    # ---- what policies learn

    def _hear(self) -> None:
        for name in sorted(self._requests):
            request = self._state.requests.get(name)
            if request is None:
                self._seen.pop(name, None)
            elif self._seen.get(name) != request.number:
                self._seen[name] = request.number
                if self._learns and not request.session_id:
                    self._heard.append(_demand(request))
        self._requests.clear()


def _description(node: NodeRecord | None) -> tuple[object, ...]:
    """What its devices have of it."""
    return () if node is None else (node.pool, node.labels, node.sharing)


def _device_view(node: NodeRecord | None, device: DeviceRecord) -> DeviceView:
    """What does not change from one moment to the next."""
    pool, labels, sharing = (
        (DEFAULT_NODE_POOL, (), "isolated") if node is None else (node.pool, node.labels, node.sharing)
    )
    return DeviceView(
        device.id,
        device.node,
        device.total_mib,
        kind=device.name,
        driver=device.driver,
        software=device.software,
        pool=pool,
        labels=dict(labels),
        sharing=sharing,
    )


def _demand(request: RequestRecord) -> Demand:
    return Demand(request.milli or 0, request.mib or 0, request.count)


def _taught(name: str, state: State) -> Policy:
    """The policy, which has seen what was granted so far, as far as the state still knows."""
    granted = sorted(state.leases.values(), key=lambda lease: (lease.granted_at, lease.id))
    demands = [_granted(lease) for lease in granted if lease.new_session and not lease.gang]
    policy = policy_named(name, counts=Counter(demands))
    for demand in demands:
        policy.observe(demand)
    return policy


def _granted(lease: LeaseRecord) -> Demand:
    return Demand(lease.shares[0].milli, count=len(lease.shares))
