"""How nodes stand, kept until something about them changes: a look at providers asks for each of their nodes several times."""

from __future__ import annotations

from collections.abc import Iterable

from gpupool.model.lease_records import LeaseRecord
from gpupool.model.node_records import NodeRecord, node_of_device
from gpupool.model.state import State
from gpupool.providers.elasticity import Ask
from gpupool.providers.pool import NodeStands
from gpupool.scheduler.model import PlacedShare
from gpupool.shares import WHOLE_DEVICE_MILLI


class NodesStand:
    """Follows one state."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._nodes = state.nodes.watch()
        self._devices = state.devices.watch()
        self._leases = state.leases.watch()
        self._leases.update(state.leases)
        self._sessions = state.sessions.watch()
        self._sessions.update(state.sessions)
        #: On which node each lease and session was when somebody asked last.
        self._lease_on: dict[str, str] = {}
        self._session_on: dict[str, str] = {}
        self._known: dict[str, NodeStands] = {}
        #: What each lease would ask for elsewhere, with the shares that it held then.
        self._asks: dict[str, tuple[tuple[PlacedShare, ...], Ask]] = {}

    def of(self, name: str) -> NodeStands | None:
        """None: there is no such node."""
        self._follow()
        stands = self._known.get(name)
        if stands is None and (node := self.state.nodes.get(name)) is not None:
            stands = self._known[name] = self._work_out(node)
        return stands

    def _follow(self) -> None:
        if not (self._leases or self._sessions or self._nodes or self._devices):
            return
        changed = self._nodes.union(map(node_of_device, self._devices))
        for table, keys, places in (
            (self.state.leases, self._leases, self._lease_on),
            (self.state.sessions, self._sessions, self._session_on),
        ):
            for key in keys:
                changed.add(places.pop(key, ""))
                record = table.get(key)
                if record is None:
                    self._asks.pop(key, None)
                else:
                    places[key] = record.node
                    changed.add(record.node)
        for touched in (self._nodes, self._devices, self._leases, self._sessions):
            touched.clear()
        for name in changed:
            self._known.pop(name, None)

    def _work_out(self, node: NodeRecord) -> NodeStands:
        index = self.state.index
        leases = self.state.leases_of_node(node.name)
        present = [device for device in index.devices_of_node.of(node.name) if device.present]
        return NodeStands(
            connected=node.connection is not None,
            devices=len(present),
            busy=bool(leases)
            or any(session.state != "closed" for session in index.sessions_of_node.of(node.name)),
            drained=node.drained,
            lost=node.lost,
            leases=tuple([self._ask_of(lease) for lease in leases if lease.live and lease.shares]),
            free=_free(node, [device.id for device in present if device.healthy], leases),
            pool=node.pool,
            sharing=node.sharing,
            types=frozenset(device.name for device in present),
            mib=min((device.total_mib for device in present), default=0),
            software=any(device.software for device in present),
            labels=node.labels,
        )

    def _ask_of(self, lease: LeaseRecord) -> Ask:
        """All its devices at once: they are to be in one node."""
        known = self._asks.get(lease.id)
        if known is None or known[0] is not lease.shares:
            ask = Ask(lease.id, max(share.milli for share in lease.shares), None, len(lease.shares))
            known = self._asks[lease.id] = lease.shares, ask
        return known[1]


def _free(node: NodeRecord, devices: Iterable[str], leases: Iterable[LeaseRecord]) -> tuple[int, ...]:
    if node.closed or node.lost or node.connection is None:
        return ()
    free = dict.fromkeys(devices, WHOLE_DEVICE_MILLI)
    for lease in leases:
        for share in lease.taken():
            if share.device_id in free:
                free[share.device_id] -= share.milli
    return tuple(free.values())
