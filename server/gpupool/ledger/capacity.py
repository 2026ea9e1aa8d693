"""How long each device was there to be lent, and how much of it: what use is measured against.

A device is there while its node offers it and is not lost. A node that is silent for some seconds, or restarts, is
there; whether a device is well is not asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlalchemy import Connection, select

from gpupool.ledger.periods import Write, begin, end
from gpupool.ledger.recorder import Changes
from gpupool.ledger.schema import capacity, charges, devices, nodes
from gpupool.model.state import DeviceRecord, NodeRecord, State
from gpupool.shares import WHOLE_DEVICE_MILLI, usable_mib


def writes(state: State, changes: Changes, now_ms: int) -> Iterator[Write]:
    """The statements that bring the rows up to date with what a step changed."""
    of_nodes, of_devices = changes.get("nodes", {}), changes.get("devices", {})
    names = set(of_devices)
    for node, (before, after) in of_nodes.items():
        if _here(before) != _here(after):
            names.update(device.id for device in state.devices.values() if device.node == node)
    for name in sorted(names):
        was, device = of_devices.get(name, (state.devices.get(name),) * 2)
        old = _lendable(was, _node_before(state, of_nodes, was))
        new = _lendable(device, None if device is None else state.nodes.get(device.node))
        if old == new:
            continue
        if old is not None:
            yield end(capacity, {"device_id": name}, now_ms)
        if new is not None:
            yield _begin(name, new, now_ms)


def open_missing(connection: Connection, now_ms: int) -> None:
    """Opens rows for devices of a ledger that comes from a version without them: from their oldest lease on, or from now."""
    counted = select(capacity.c.device_id).where(capacity.c.to_ms.is_(None))
    uncounted = (
        select(devices.c.id, devices.c.total_mib)
        .join(nodes, nodes.c.name == devices.c.node)
        .where(devices.c.present, ~nodes.c.lost, devices.c.id.not_in(counted))
    )
    for device_id, total_mib in connection.execute(uncounted).all():
        since = select(charges.c.from_ms).where(charges.c.device_id == device_id, charges.c.to_ms.is_(None))
        connection.execute(
            *_begin(device_id, usable_mib(total_mib), min([now_ms, *connection.execute(since).scalars()]))
        )


def _node_before(
    state: State,
    changes: Mapping[str, tuple[NodeRecord | None, NodeRecord | None]],
    device: DeviceRecord | None,
) -> NodeRecord | None:
    """The node of `device` as it was before the step."""
    if device is None:
        return None
    return changes[device.node][0] if device.node in changes else state.nodes.get(device.node)


def _here(node: NodeRecord | None) -> bool:
    return node is not None and not node.lost


def _lendable(device: DeviceRecord | None, node: NodeRecord | None) -> int | None:
    """MiB that leases may take of a device that is there; None: it is not."""
    return usable_mib(device.total_mib) if device is not None and device.present and _here(node) else None


def _begin(device_id: str, mib: int, from_ms: int) -> Write:
    return begin(capacity, {"device_id": device_id, "milli": WHOLE_DEVICE_MILLI, "mib": mib}, from_ms)
