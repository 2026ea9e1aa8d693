"""The scheduler's view worked out from all records anew: what the one that is kept up to date must equal."""

from __future__ import annotations

from gpupool.model.state import State
from gpupool.pool.model.holds import health, holds_of_lease, holds_of_session
from gpupool.pool.model.timers import Timers
from gpupool.pool.model.view import host_rooms, pool_view
from gpupool.scheduler.model import Held


def check_view(state: State, timers: Timers, now: float) -> None:
    """Raises AssertionError where the live view says something else than the records."""
    view = pool_view(state, timers, {}, now)
    taken: dict[str, list[Held]] = {name: [] for name in state.devices}
    for lease in state.leases.values():
        for device_id, held in holds_of_lease(lease):
            taken[device_id].append(held)
    for session in state.sessions.values():
        for device_id, held in holds_of_session(state, session, now):
            taken[device_id].append(held)
    assert {device.id for device in view.devices} == set(state.devices)
    for device in view.devices:
        record, node = state.devices[device.id], state.nodes.get(device.node)
        assert sorted(device.held, key=repr) == sorted(taken[device.id], key=repr), device.id
        healthy, why = health(state, record, timers, now)
        assert device.healthy == healthy, (device.id, device.health_reason, why)
        if "silent" not in why:
            assert device.health_reason == why
        assert (device.total_mib, device.kind) == (record.total_mib, record.name)
        if node is not None:
            assert (device.pool, device.sharing, device.labels) == (
                node.pool,
                node.sharing,
                dict(node.labels),
            )
    assert view.host_room == host_rooms(state)
    for user in {lease.user for lease in state.leases.values()}:
        mine = [held for all_of in taken.values() for held in all_of if held.lease_id and held.user == user]
        assert view.held_by(user) == (sum(held.milli for held in mine), len(mine))
    # The columns, and those for what-ifs beside them.
    for fleet in (view.fleet, view.aside().fleet):
        for device in view.devices:
            row, column = fleet.where(device.id)
            shown = (fleet.free_milli[row, column], fleet.free_mib[row, column], fleet.healthy[row, column])
            assert shown == (device.free_milli, device.free_mib, device.healthy), device.id
            room = max(0, device.free_milli) if device.healthy else 0
            assert fleet.cluster.free_milli[row, column] == room, device.id
            assert fleet.at(row, column) is device, device.id
        for user in {held.user for all_of in taken.values() for held in all_of}:
            there = {view.devices[place].id for place in fleet.places_of(users=[user])}
            assert there == {name for name, all_of in taken.items() if any(x.user == user for x in all_of)}
