"""What is free on each node and device, and which nodes have changed since somebody looked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpupool.scheduler.placement.model import Demand, DeviceSpec, NodeSpec, Placement
from gpupool.shares import WHOLE_DEVICE_MILLI

Integers: TypeAlias = NDArray[np.int64]
#: Indices of nodes.
Nodes: TypeAlias = NDArray[np.int64]

#: Stands for CPU or memory that is not looked at: more than any node has, small enough to calculate with.
UNLIMITED: Final = 1 << 40


class Cluster:
    """Free capacity in integers. Nodes are ordered by id, whatever the order in which they are given.

    Attributes:
        nodes: the specifications; the index in this tuple is the node's number.
        kinds: the distinct devices.
        kind: per node and ordinal, the index in ``kinds``.
        free_milli: per node and ordinal; 0 where a node has no such device.
        free_mib: likewise; 0 too for devices whose memory is not counted.
        free_total: milli per node.
        free_cpu: milli-CPU per node.
        free_memory: MiB per node.
        counts_mib: whether the memory of any device is counted.
    """

    def __init__(self, nodes: Iterable[NodeSpec]) -> None:
        self.nodes: tuple[NodeSpec, ...] = tuple(sorted(nodes, key=lambda node: node.id))
        if not self.nodes:
            raise ValueError("a cluster has at least one node")
        names = {node.id for node in self.nodes}
        if len(names) != len(self.nodes):
            raise ValueError("two nodes have the same id")
        size, width = len(self.nodes), max(1, *(len(node.devices) for node in self.nodes))
        # Nodes that are alike often share one tuple, which is then read once.
        rows: dict[int, list[int]] = {}
        for row, node in enumerate(self.nodes):
            rows.setdefault(id(node.devices), []).append(row)
        alike = {which: self.nodes[here[0]].devices for which, here in rows.items()}
        self.kinds: tuple[DeviceSpec, ...] = tuple(
            sorted({d for devices in alike.values() for d in devices}, key=lambda d: (d.model, d.usable_mib))
        )
        number = {kind: index for index, kind in enumerate(self.kinds)}
        self.kind: Integers = np.zeros((size, width), np.int64)
        self.free_milli: Integers = np.zeros((size, width), np.int64)
        self.free_mib: Integers = np.zeros((size, width), np.int64)
        self.present: NDArray[np.bool_] = np.zeros((size, width), np.bool_)
        for which, devices in alike.items():
            self.kind[rows[which], : len(devices)] = [number[device] for device in devices]
            self.present[rows[which], : len(devices)] = True
        self.free_milli[self.present] = WHOLE_DEVICE_MILLI
        usable = np.array([kind.usable_mib for kind in self.kinds], np.int64)
        self.free_mib[self.present] = usable[self.kind[self.present]]
        self.free_total: Integers = self.free_milli.sum(axis=1)
        self.free_cpu: Integers = _column(node.cpu_milli for node in self.nodes)
        self.free_memory: Integers = _column(node.memory_mib for node in self.nodes)
        self.counts_mib = any(kind.usable_mib for kind in self.kinds)
        self.capacity_milli = int(self.free_total.sum())
        self._full = (
            self.free_milli.copy(),
            self.free_mib.copy(),
            self.free_cpu.copy(),
            self.free_memory.copy(),
        )
        self._changed_at: Integers = np.zeros(size, np.int64)
        self._version = 0

    @property
    def version(self) -> int:
        """Grows with every change."""
        return self._version

    def changed_since(self, version: int) -> Nodes:
        """The nodes that changed since ``version``, ascending."""
        return (self._changed_at > version).nonzero()[0]

    def take(self, placement: Placement) -> None:
        """Occupies what was placed. Raises ValueError, and changes nothing, when it is not free."""
        self._check(placement, -1)
        self._change(placement, -1)

    def give_back(self, placement: Placement) -> None:
        """Frees what was placed. Raises ValueError, and changes nothing, when more would be free than there is."""
        self._check(placement, +1)
        self._change(placement, +1)

    def place_at(self, demand: Demand, node: int, devices: Sequence[int]) -> Placement | None:
        """``demand`` on these devices if they are free, by name of the devices; None if not."""
        shares = []
        for device in sorted(devices):
            share = demand.on(self.nodes[node].devices[device])
            if share is None:
                return None
            shares.append(share)
        placement = Placement(demand, node, tuple(sorted(devices)), tuple(shares))
        return placement if self._fault(placement, -1) is None else None

    def hold(self, node: int, device: int, milli: int, mib: int) -> Placement:
        """Occupies a part of a device that is no demand's: it is unhealthy, kept for somebody, or holds parked memory.

        Returns:
            What :meth:`give_back` takes.

        Raises:
            ValueError: it is not free; nothing has changed.
        """
        placement = Placement(Demand(max(1, milli)), node, (device,), ((milli, mib),))
        self.take(placement)
        return placement

    def put(self, node: int, device: int, milli: int, mib: int) -> None:
        """Says what is free on a device, for who keeps the books elsewhere.

        Raises:
            ValueError: it is less than nothing or more than the device has; nothing has changed.
        """
        full_milli, full_mib = self._full[0].item(node, device), self._full[1].item(node, device)
        if not (0 <= milli <= full_milli and 0 <= mib <= full_mib):
            raise ValueError(
                f"node {self.nodes[node].id}: device {device}: {milli} milli-GPU and {mib} MiB cannot be free of "
                f"{full_milli} and {full_mib}"
            )
        more = milli - self.free_milli.item(node, device)
        if more or mib != self.free_mib.item(node, device):
            self.free_milli[node, device] = milli
            self.free_mib[node, device] = mib
            self.free_total[node] += more
            self._note(node)

    def take_over(self, before: Cluster, nodes: Nodes, there: Nodes) -> None:
        """On ``nodes`` the same is free as on the nodes ``there`` of ``before``, which have the same devices."""
        width = min(self.free_milli.shape[1], before.free_milli.shape[1])
        self.free_milli[nodes, :width] = before.free_milli[there, :width]
        self.free_mib[nodes, :width] = before.free_mib[there, :width]
        self.free_total[nodes] = before.free_total[there]
        self._version += 1
        self._changed_at[nodes] = self._version

    def allocated_milli(self) -> int:
        return self.capacity_milli - int(self.free_total.sum())

    def _check(self, placement: Placement, sign: int) -> None:
        fault = self._fault(placement, sign)
        if fault is not None:
            raise ValueError(f"node {self.nodes[placement.node].id}: {fault}")

    def _fault(self, placement: Placement, sign: int) -> str | None:
        node, demand = placement.node, placement.demand
        milli, mib, cpu, memory = self._full
        if len(set(placement.devices)) != demand.count or len(placement.shares) != demand.count:
            return "not one share on each of distinct devices"
        for device, share in zip(placement.devices, placement.shares, strict=True):
            if not 0 <= self.free_milli[node, device] + sign * share[0] <= milli[node, device]:
                return f"device {device}: {share[0]} milli-GPU beside {self.free_milli[node, device]} free"
            if not 0 <= self.free_mib[node, device] + sign * share[1] <= mib[node, device]:
                return f"device {device}: {share[1]} MiB beside {self.free_mib[node, device]} free"
        if not 0 <= self.free_cpu[node] + sign * demand.cpu_milli <= cpu[node]:
            return f"{demand.cpu_milli} milli-CPU beside {self.free_cpu[node]} free"
        if not 0 <= self.free_memory[node] + sign * demand.memory_mib <= memory[node]:
            return f"{demand.memory_mib} MiB of memory beside {self.free_memory[node]} free"
        return None

    def _change(self, placement: Placement, sign: int) -> None:
        node = placement.node
        for device, (milli, mib) in zip(placement.devices, placement.shares, strict=True):
            self.free_milli[node, device] += sign * milli
            self.free_mib[node, device] += sign * mib
            self.free_total[node] += sign * milli
        self.free_cpu[node] += sign * placement.demand.cpu_milli
        self.free_memory[node] += sign * placement.demand.memory_mib
        self._note(node)

    def _note(self, node: int) -> None:
        self._version += 1
        self._changed_at[node] = self._version


def _column(values: Iterable[int | None]) -> Integers:
    return np.array([UNLIMITED if value is None else value for value in values], np.int64)
