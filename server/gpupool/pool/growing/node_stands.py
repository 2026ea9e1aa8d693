"""How nodes stand, kept until something about them changes: a look at providers asks for each of their nodes several times."""

from __future__ import annotations

from gpupool.model.node_records import NodeRecord, node_of_device
from gpupool.model.state import State
from gpupool.providers.elasticity import Ask
from gpupool.providers.pool import NodeStands
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

    def of(self, name: str) -> NodeStands | None:
        """None: there is no such node."""
        self._follow()
        stands = self._known.get(name)
        if stands is None and (node := self.state.nodes.get(name)) is not None:
            stands = self._known[name] = self._work_out(node)
        return stands

    def _follow(self) -> None:
        changed = self._nodes.union(map(node_of_device, self._devices))
        for table, keys, places in (
            (self.state.leases, self._leases, self._lease_on),
            (self.state.sessions, self._sessions, self._session_on),
        ):
            for key in keys:
                changed.add(places.pop(key, ""))
                record = table.get(key)
                if record is not None:
                    places[key] = record.node
                    changed.add(record.node)
        for touched in (self._nodes, self._devices, self._leases, self._sessions):
            touched.clear()
        for name in changed:
            self._known.pop(name, None)

    def _work_out(self, node: NodeRecord) -> NodeStands:
        index = self.state.index
        leases = self.state.leases_of_node(node.name)
        sessions = index.sessions_of_node.of(node.name)
        return NodeStands(
            connected=node.connection is not None,
            devices=sum(device.present for device in index.devices_of_node.of(node.name)),
            busy=bool(leases) or any(session.state != "closed" for session in sessions),
            drained=node.drained,
            lost=node.lost,
            leases=tuple(
                Ask(lease.id, share.milli, None) for lease in leases if lease.live for share in lease.shares
            ),
            free=self._free(node),
        )

    def _free(self, node: NodeRecord) -> tuple[int, ...]:
        if node.drained or node.lost or node.connection is None:
            return ()
        here = self.state.index.devices_of_node.of(node.name)
        free = {device.id: WHOLE_DEVICE_MILLI for device in here if device.present}
        for lease in self.state.leases_of_node(node.name):
            for share in lease.taken():
                if share.device_id in free:
                    free[share.device_id] -= share.milli
        return tuple(free.values())
