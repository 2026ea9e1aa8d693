"""One shape of demand in one cluster: what it needs of each kind of device, and where it fits now."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpupool.scheduler.placement.cluster import Cluster, Integers, Nodes
from gpupool.scheduler.placement.model import Demand, Placement
from gpupool.shares import WHOLE_DEVICE_MILLI

#: More than any device has: a kind that will not do.
_NEVER = WHOLE_DEVICE_MILLI + 1


class Shape:
    """A demand, and per kind of device the milli and MiB of one of its shares."""

    def __init__(self, cluster: Cluster, demand: Demand) -> None:
        self.demand = demand
        sizes = [demand.on(kind) if demand.count else None for kind in cluster.kinds]
        self.milli: Integers = np.array([_NEVER if s is None else s[0] for s in sizes], np.int64)
        self.mib: Integers = np.array([0 if s is None else s[1] for s in sizes], np.int64)
        #: The same milli on every kind of device; None: it depends.
        self.milli_anywhere = int(self.milli[0]) if len(set(self.milli.tolist())) == 1 else None
        #: The same MiB, if it fits on every kind of device at all.
        alike = self.milli_anywhere != _NEVER and len(set(sizes)) == 1
        self._mib_anywhere = int(self.mib[0]) if alike else None
        #: What a policy has worked out of it once and for all.
        self.prices: NDArray[np.float64] | None = None
        #: Whether it asks for CPU or memory of the node; there is never less than none.
        self.wants_node = bool(demand.cpu_milli or demand.memory_mib)

    def milli_on(self, cluster: Cluster, nodes: Nodes) -> Integers | int:
        """Milli of a share, per device of ``nodes``."""
        return self.milli[cluster.kind[nodes]] if self.milli_anywhere is None else self.milli_anywhere

    def total_on(self, cluster: Cluster, nodes: Nodes) -> Integers | int:
        """Milli of all shares, per node (where kinds are mixed, of its first device)."""
        if self.demand.count == 0:
            return 0
        if self.milli_anywhere is not None:
            return self.milli_anywhere * self.demand.count
        total: Integers = self.milli[cluster.kind[nodes, 0]] * self.demand.count
        return total

    def devices_with_room(self, cluster: Cluster, nodes: Nodes) -> NDArray[np.bool_]:
        """Per device of ``nodes``: whether one share fits."""
        fits: NDArray[np.bool_] = cluster.free_milli[nodes] >= self.milli_on(cluster, nodes)
        return fits & self.memory_fits(cluster, nodes) if cluster.counts_mib else fits

    def memory_fits(self, cluster: Cluster, nodes: Nodes) -> NDArray[np.bool_]:
        """Per device of ``nodes``: whether its free MiB hold one share."""
        free = cluster.free_mib[nodes]
        if self._mib_anywhere is not None:
            everywhere: NDArray[np.bool_] = free >= self._mib_anywhere
            return everywhere
        kinds = cluster.kind[nodes]
        fits: NDArray[np.bool_] = free >= self.mib[kinds]
        return fits & (self.milli[kinds] < _NEVER)

    def nodes_with_room(self, cluster: Cluster, nodes: Nodes) -> NDArray[np.bool_]:
        """Per node: whether its CPU and memory suffice; its devices are not looked at."""
        fits: NDArray[np.bool_] = cluster.free_cpu[nodes] >= self.demand.cpu_milli
        return fits & (cluster.free_memory[nodes] >= self.demand.memory_mib)

    def placement(self, cluster: Cluster, node: int, devices: tuple[int, ...]) -> Placement:
        chosen = tuple(sorted(devices))
        kinds = [int(cluster.kind[node, device]) for device in chosen]
        shares = tuple((int(self.milli[kind]), int(self.mib[kind])) for kind in kinds)
        return Placement(self.demand, node, chosen, shares)
