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
from types import MappingProxyType

from gpupool.model.state import DeviceRecord, LeaseRecord, NodeRecord, RequestRecord, State
from gpupool.model.table import Record, Table
from gpupool.pool.model.holds import (
    closed_as,
    health,
    holds_of_lease,
    holds_of_session,
    host_share,
    turns_at,
    worker_nodes,
)
from gpupool.pool.model.timers import Timers
from gpupool.records import replace
from gpupool.scheduler.fleet import Fleet, same_device
from gpupool.scheduler.model import DEFAULT_NODE_POOL, DeviceView, Held, Quota
from gpupool.scheduler.placement import DEFAULT_POLICY, Demand, Policy, policy_named
from gpupool.scheduler.pool_view import PoolView, Promise
from gpupool.scheduler.snapshot import Present, Snapshot

#: Always the same, so that views of one moment are known as the same.
_NO_QUOTAS: Mapping[str, Quota] = MappingProxyType({})
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
        self._nodes = _from_now_on(state.nodes)
        self._devices = _from_now_on(state.devices)
        self._sessions = _from_now_on(state.sessions)
        self._leases = _from_now_on(state.leases)
        self._requests = state.requests.watch()
        self._seen: dict[str, int] = {}
        self._learns = True
        self._heard: list[Demand] = []
        self._due: list[tuple[float, str, str]] = []
        self._due_of: dict[tuple[str, str], float] = {}
        self.policy = _taught(policy, state)
        self.promised: tuple[Promise, ...] = ()
        self._snapshot: Snapshot | None = None
        self._present = Present(())
        self._fleet = Fleet((), self.policy)
        #: Of the devices in the fleet: those of each node, and where they stand in the table.
        self._of_node: dict[str, set[str]] = {}
        self._place_of: dict[str, int] = {}
        self._described: dict[str, tuple[object, ...]] = {}
        #: By device and what holds it, which is a lease or a session; and the same by what holds it.
        self._held: dict[str, dict[tuple[str, str], tuple[Held, ...]]] = {}
        self._holds: dict[tuple[str, str], Holds] = {}
        self._session_of: dict[str, str] = {}
        self._host_share: dict[str, tuple[tuple[str, int], ...]] = {}
        self._host_taken: Counter[str] = Counter()
        self._host_room: dict[str, int] = {}
        self._worker_nodes: dict[str, frozenset[str]] = {}
        self._workers: Counter[str] = Counter()
        self._without_port: dict[str, int] = {}

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
        others = self._other_devices()
        if others:
            self._build(others)
        stale = self._refreshed(now)
        if stale or self._snapshot is None:
            serial = self._fleet.advance(stale)
            self._snapshot = Snapshot(self._present, self._fleet, serial)
        return PoolView(
            self._snapshot,
            quotas or _NO_QUOTAS,
            host_room=self._host_room,
            without_port=self._without_port,
            promised=self.promised,
        )

    # ---- what changed

    def _other_devices(self) -> set[str]:
        """Devices that have come or gone, or are others than the fleet was made for."""
        names = set(self._devices)
        for node in self._nodes:
            description = _description(self._state.nodes.get(node))
            if self._described.get(node, ()) != description:
                self._described[node] = description
                names.update(self._of_node.get(node, ()))
        others = set()
        for name in names:
            place, device = self._fleet.positions.get(name), self._state.devices.get(name)
            if place is None or device is None:
                same = place is None and device is None
            else:
                now = _device_view(self._state.nodes.get(device.node), device)
                # One that has gone and come again stands elsewhere in the table.
                stays = self._state.devices.place(name) == self._place_of[name]
                same = stays and same_device(self._present.devices[place], now)
            if not same:
                others.add(name)
        return others

    def _build(self, others: set[str]) -> None:
        """Makes the fleet anew, of what is known of all devices but ``others``: how they are is still to be worked out."""
        state = self._state
        views = dict(zip(self._fleet.positions, self._present.devices, strict=True))
        gone = [views.pop(name) for name in others if name in views]
        for view in gone:
            del self._place_of[view.id]
            self._of_node[view.node].discard(view.id)
        come = [device for name in others if (device := state.devices.get(name)) is not None]
        for device in come:
            view = _device_view(state.nodes.get(device.node), device)
            views[device.id] = replace(view, held=self._held_on(device.id))
            self._devices.add(device.id)
            self._place_of[device.id] = state.devices.place(device.id)
            self._of_node.setdefault(device.node, set()).add(device.id)
        devices = list(map(views.__getitem__, state.devices))
        self._present = Present(devices, self._present, gone, [views[device.id] for device in come])
        self._fleet = Fleet(devices, self.policy, self._fleet, others)
        self._snapshot = None

    def _refreshed(self, now: float) -> set[int]:
        """Works out what was touched; the positions of devices that are different now."""
        state = self._state
        touched: set[str] = set()
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
        ports = set(self._nodes)
        for session_id in self._sessions:
            session = state.sessions.get(session_id)
            ports |= self._has_workers_on(
                session_id, frozenset() if session is None else worker_nodes(state, session)
            )
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
        self._note_ports(ports)
        names = {name for name in self._devices if name in state.devices}
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
            closed = closed_as(state, device, self.timers, now)
            view = self._present.devices[place]
            if (view.healthy, view.health_reason, view.closed) != (healthy, why_not, closed):
                self._present.change(
                    place, replace(view, healthy=healthy, health_reason=why_not, closed=closed)
                )
                changed.add(place)
        for name in touched & self._fleet.positions.keys():
            place, held = self._fleet.positions[name], self._held_on(name)
            view = self._present.devices[place]
            if held != view.held:
                self._present.change(place, replace(view, held=held))
                changed.add(place)
        return changed

    def _held_on(self, device: str) -> tuple[Held, ...]:
        return tuple(one for _, part in sorted(self._held.get(device, {}).items()) for one in part)

    def _hold(self, key: tuple[str, str], holds: Holds) -> set[str]:
        """Notes what a lease or a session holds; the devices where that differs from before."""
        before = self._holds.pop(key, ())
        if holds:
            self._holds[key] = holds
        if holds == before:
            return set()
        for sign, part in ((-1, before), (1, holds)):
            for device_id, held in part:
                if held.lease_id and device_id in self._fleet.positions:
                    self._present.holds(held, sign)
        by_device: dict[str, tuple[Held, ...]] = {}
        for device_id, held in holds:
            by_device[device_id] = (*by_device.get(device_id, ()), held)
        gone = {device_id for device_id, _ in before if device_id not in by_device}
        for device_id in gone:
            if (here := self._held.get(device_id)) is not None:
                here.pop(key, None)
                if not here:
                    del self._held[device_id]
        for device_id, all_of in by_device.items():
            self._held.setdefault(device_id, {})[key] = all_of
        return gone.union(by_device)

    def _has_workers_on(self, session_id: str, nodes: frozenset[str]) -> frozenset[str]:
        """Notes where a session has workers; the nodes where that differs from before."""
        before = self._worker_nodes.pop(session_id, frozenset())
        if nodes:
            self._worker_nodes[session_id] = nodes
        for node in before - nodes:
            self._workers[node] -= 1
        for node in nodes - before:
            self._workers[node] += 1
        return before ^ nodes

    def _note_ports(self, nodes: set[str]) -> None:
        """Looks at these nodes again; what is unchanged stays the same object."""
        without = dict(self._without_port)
        for name in nodes:
            node = self._state.nodes.get(name)
            without.pop(name, None)
            if node is not None and 0 < node.worker_ports <= self._workers[name]:
                without[name] = node.worker_ports
        if without != self._without_port:
            self._without_port = without

    def _room_of(self, name: str) -> int | None:
        node = self._state.nodes.get(name)
        return None if node is None else node.park_memory_mib - self._host_taken[name]

    # ---- what time changes

    def _falls_silent(self, node: NodeRecord, now: float) -> float:
        """The first moment at which `health` may say something else about it."""
        if node.connection is None or node.lost:
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


def _from_now_on(table: Table[Record]) -> set[str]:
    """The keys of all rows, and from now on of those that change."""
    touched = table.watch()
    touched.update(table)
    return touched


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
