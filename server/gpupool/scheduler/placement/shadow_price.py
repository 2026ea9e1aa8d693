"""The default: what a placement costs at the prices of what else could have been there.

A device is worth what shares could still be packed onto it, at the shadow prices (:mod:`cutting_stock`) of the sizes
seen so far. A placement costs what that worth falls by, so sizes are put together that the best packing puts together (650 with
320, two of 470, 550 with 230 and 220), and small shares go where nothing else fits: beside 810, where room is worth nothing.
Two terms come with it:

* a pull towards little room left, because the prices do not tell equally good patterns apart;
* what a node's CPU leaves stranded: the devices for which, by the CPU that came with a device so far, none would be left.

It learns from the demands that it was told of (:meth:`ShadowPrice.observe`), and from nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from gpupool.scheduler.placement.cluster import Cluster, Nodes
from gpupool.scheduler.placement.cutting_stock import pack, value_by_room
from gpupool.scheduler.placement.history import History
from gpupool.scheduler.placement.model import Demand, DeviceSpec
from gpupool.scheduler.placement.policy import MOST_SHAPES, Board, Costs, ScoredPolicy, cheapest, only_where
from gpupool.scheduler.placement.shape import Shape
from gpupool.shares import WHOLE_DEVICE_MILLI

#: What a wholly free device costs for being left free, in devices, when less room would do.
PULL: Final = 0.1
#: What each free device of a node costs when a fuller node would do: what comes may want a whole node.
NODE_PULL: Final = 0.001
#: What a stranded device costs beside an occupied one: less, since what comes may need less CPU than usual.
STRANDED: Final = 0.5
#: How far the CPU of one device's demands lies from its mean, as a part of the mean.
CPU_SPREAD: Final = 0.5
#: Milli-CPU to spare beyond which nothing is stranded; keeps the arithmetic exact where CPU is not counted.
_PLENTY: Final = 1e9


#: By milli, MiB, count and models of a share: what its room costs, and what it costs on each node.
_Shares: TypeAlias = dict[tuple[int, int, int, frozenset[str]], tuple[Costs, Board]]

_BY_SIZE: Final = np.arange(WHOLE_DEVICE_MILLI + 1) / WHOLE_DEVICE_MILLI


class ShadowPrice(ScoredPolicy):
    """Loss of worth, in devices."""

    name = "shadow_price"

    def __init__(self) -> None:
        super().__init__()
        self._history = History()
        self._largest = DeviceSpec()
        self._shares: WeakKeyDictionary[Cluster, _Shares] = WeakKeyDictionary()
        self._stranded: WeakKeyDictionary[Cluster, Board] = WeakKeyDictionary()
        self._cpu = 0.0
        self._priced: Mapping[Demand, int] = {}
        #: Per free milli of a device: the worth of its room. Until something was seen, room is worth its size.
        self.worth: Costs = _BY_SIZE

    @property
    def learned(self) -> Mapping[Demand, int]:
        """The sizes that were priced last. CPU that came with them is not among it."""
        return self._priced

    def observe(self, demand: Demand) -> None:
        if self._history.add(demand, self._largest):
            self._history.conclude()
            sizes = self._history.sizes
            if sizes:
                self._price(sizes)
            self._cpu = self._history.cpu_per_milli
            self.forget()

    def recall(self, learned: Mapping[Demand, int]) -> None:
        self._price({demand.milli: number for demand, number in learned.items()})
        self.forget()

    def _price(self, sizes: Mapping[int, int]) -> None:
        self._priced = {Demand(size): number for size, number in sizes.items()}
        if not sizes:
            self.worth = _BY_SIZE
            return
        self.worth = value_by_room(pack(sizes).prices)
        self.worth[WHOLE_DEVICE_MILLI] = max(1.0, self.worth[WHOLE_DEVICE_MILLI])

    def forget(self) -> None:
        super().forget()
        self._shares.clear()
        self._stranded.clear()

    def met(self, cluster: Cluster) -> None:
        self._largest = max(cluster.kinds, key=lambda kind: kind.usable_mib, default=DeviceSpec())

    def costs(self, cluster: Cluster, shape: Shape, nodes: Nodes) -> Costs:
        cost: Costs = NODE_PULL * cluster.free_total[nodes] / WHOLE_DEVICE_MILLI
        if self._cpu:
            cost = self._stranding(cluster, shape, nodes) + cost
        count = shape.demand.count
        if not shape.wants_node:
            # Nobody else has such shares: only CPU and memory of the node tell demands for the same apart.
            own = cheapest(_read(self._prices(shape), cluster, shape, nodes), count) if count else 0.0
            return cost + own
        if count:
            table, board = self._share(cluster, shape)
            devices = board.refreshed(
                cluster, lambda stale: cheapest(_read(table, cluster, shape, stale), count)
            )
            cost = cost + devices[nodes]
        return only_where(shape.nodes_with_room(cluster, nodes), cost)

    def device_costs(self, cluster: Cluster, shape: Shape, nodes: Nodes) -> Costs:
        return _read(self._prices(shape), cluster, shape, nodes)

    def _share(self, cluster: Cluster, shape: Shape) -> tuple[Costs, Board]:
        """What all demands for such shares have in common, whatever CPU they ask for."""
        demand = shape.demand
        key = (demand.milli, demand.mib, demand.count, demand.models)
        of_cluster = self._shares.setdefault(cluster, {})
        known = of_cluster.pop(key, None)
        if known is None:
            known = (self._prices(shape), Board(cluster))
            if len(of_cluster) >= MOST_SHAPES:
                del of_cluster[next(iter(of_cluster))]
        of_cluster[key] = known
        return known

    def _prices(self, shape: Shape) -> Costs:
        """The table of a shape; shapes are made anew when prices change (`forget`)."""
        if shape.prices is None:
            shape.prices = self._table(shape)
        return shape.prices

    def _table(self, shape: Shape) -> Costs:
        """Per kind of device and free milli: what one share of the shape costs there."""
        room = np.arange(WHOLE_DEVICE_MILLI + 1)
        left = room[None, :] - shape.milli[:, None]
        rest = np.maximum(left, 0)
        loss = self.worth[room][None, :] - self.worth[rest] + PULL * rest / WHOLE_DEVICE_MILLI
        return only_where(left >= 0, loss)

    def _stranding(self, cluster: Cluster, shape: Shape, nodes: Nodes) -> Costs:
        """Per node: by how much more of its devices, in devices, would be left without CPU."""
        board = self._stranded.get(cluster)
        if board is None:
            board = self._stranded[cluster] = Board(cluster)
        now = board.refreshed(
            cluster, lambda stale: self._without_cpu(cluster.free_total[stale], cluster.free_cpu[stale])
        )
        left = cluster.free_total[nodes] - shape.total_on(cluster, nodes)
        return STRANDED * (
            self._without_cpu(left, cluster.free_cpu[nodes] - shape.demand.cpu_milli) - now[nodes]
        )

    def _without_cpu(self, left: NDArray[np.int64], cpu: NDArray[np.int64]) -> Costs:
        """Devices that are left without CPU: the missing part, rounded off around zero by how much demand varies."""
        missing = np.maximum(self._cpu * left - cpu, -_PLENTY)
        variance = (CPU_SPREAD * self._cpu) ** 2 * WHOLE_DEVICE_MILLI * np.maximum(left, 0)
        amount: Costs = (np.sqrt(missing * missing + variance) + missing) / (
            2.0 * WHOLE_DEVICE_MILLI * self._cpu
        )
        return amount


def _read(table: Costs, cluster: Cluster, shape: Shape, nodes: Nodes) -> Costs:
    """Per device of ``nodes``: its entry in the table; infinite where the share does not fit."""
    if shape.milli_anywhere is not None:
        costs: Costs = table[0][cluster.free_milli[nodes]]
    else:
        costs = table[cluster.kind[nodes], cluster.free_milli[nodes]]
    return only_where(shape.memory_fits(cluster, nodes), costs) if cluster.counts_mib else costs
