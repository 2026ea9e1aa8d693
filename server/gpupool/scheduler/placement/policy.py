"""What a policy is, and the machinery under those that give each node a cost and take the cheapest.

The cost of a shape on a node depends on that node alone, so it is kept until the node changes. A decision therefore
costs work for the nodes that changed since the last one for the same shape, and one search for the least number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from gpupool.scheduler.placement.cluster import Cluster, Nodes
from gpupool.scheduler.placement.model import Demand, Placement
from gpupool.scheduler.placement.shape import Shape

#: Per node: whether it is meant.
Mask: TypeAlias = NDArray[np.bool_]
#: Lower is better; infinite: does not fit.
Costs: TypeAlias = NDArray[np.float64]

#: Shapes whose costs are kept; of more the one goes that was not asked for the longest.
MOST_SHAPES: Final = 256
#: What is learned by who learns nothing.
_NOTHING: Final[Mapping[Demand, int]] = {}


class Policy(Protocol):
    """Chooses devices. Equal clusters and equal histories give equal answers."""

    @property
    def name(self) -> str: ...

    @property
    def learned(self) -> Mapping[Demand, int]:
        """What its answers rest on besides the cluster: demands with their numbers. Empty: nothing."""

    def observe(self, demand: Demand) -> None:
        """Tells of a demand, once, when it arrives. Policies that learn from history do it here."""

    def recall(self, learned: Mapping[Demand, int]) -> None:
        """Answers from now on as one of whom :attr:`learned` was this; no more is known of what it has seen."""

    def place(self, cluster: Cluster, demand: Demand, among: Mask | None = None) -> Placement | None:
        """Devices that are free for ``demand``; None only if no node has room. Changes nothing in ``cluster``.

        Args:
            cluster: where.
            demand: what is to be placed.
            among: per node, whether it will do; None: all will.
        """


class Board:
    """One number per node, worked out again where the node has changed."""

    def __init__(self, cluster: Cluster) -> None:
        self._costs: Costs = np.zeros(len(cluster.nodes))
        self._version = -1

    def refreshed(self, cluster: Cluster, work_out: Callable[[Nodes], Costs]) -> Costs:
        """All numbers, up to date. The array is the board's own: read only."""
        version = cluster.version
        if self._version != version:
            if self._version < 0:
                self._costs[:] = work_out(np.arange(len(self._costs)))
            else:
                stale = cluster.changed_since(self._version)
                self._costs[stale] = work_out(stale)
            self._version = version
        return self._costs


class ScoredPolicy(ABC):
    """A policy that gives each node a cost for a shape; the cheapest node is taken, at equal cost the first."""

    def __init__(self) -> None:
        #: By cluster: a pool as it is and as it is going to be are asked about in turns.
        self._known: WeakKeyDictionary[Cluster, dict[Demand, tuple[Shape, Board]]] = WeakKeyDictionary()

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def costs(self, cluster: Cluster, shape: Shape, nodes: Nodes) -> Costs:
        """Of placing the shape on each of ``nodes``; infinite where it does not fit."""

    @abstractmethod
    def device_costs(self, cluster: Cluster, shape: Shape, nodes: Nodes) -> Costs:
        """Of one share of the shape, per device of ``nodes``; infinite where it does not fit."""

    @property
    def learned(self) -> Mapping[Demand, int]:
        """Nothing is learned unless a policy says so."""
        return _NOTHING

    def observe(self, demand: Demand) -> None:
        del demand

    def recall(self, learned: Mapping[Demand, int]) -> None:
        del learned

    def place(self, cluster: Cluster, demand: Demand, among: Mask | None = None) -> Placement | None:
        shape, board = self._remembered(cluster, demand)
        costs = board.refreshed(cluster, lambda nodes: self.costs(cluster, shape, nodes))
        if among is not None:
            costs = only_where(among, costs)
        node = int(costs.argmin())
        if costs[node] == np.inf:
            return None
        return shape.placement(cluster, node, self._devices(cluster, shape, node))

    def forget(self) -> None:
        """Drops all that is remembered: costs mean something else from now on."""
        self._known.clear()

    def met(self, cluster: Cluster) -> None:
        """Looks at a cluster before the first question about it."""
        del cluster

    def _remembered(self, cluster: Cluster, demand: Demand) -> tuple[Shape, Board]:
        of_cluster = self._known.get(cluster)
        if of_cluster is None:
            self.met(cluster)
            of_cluster = self._known[cluster] = {}
        known = of_cluster.pop(demand, None)
        if known is None:
            known = (Shape(cluster, demand), Board(cluster))
            if len(of_cluster) >= MOST_SHAPES:
                del of_cluster[next(iter(of_cluster))]
        of_cluster[demand] = known  # the last asked for is the last to go
        return known

    def _devices(self, cluster: Cluster, shape: Shape, node: int) -> tuple[int, ...]:
        count = shape.demand.count
        if count == 0:
            return ()
        row = self.device_costs(cluster, shape, np.array([node]))[0]
        if count == 1:
            return (int(row.argmin()),)
        return tuple(np.argsort(row, kind="stable")[:count].tolist())


def cheapest(device_costs: Costs, count: int) -> Costs:
    """Per node: the sum over its ``count`` cheapest devices; infinite where there are not so many."""
    if count == 1:
        least: Costs = device_costs.min(axis=1)
        return least
    if count > device_costs.shape[1]:
        return np.full(len(device_costs), np.inf)
    total: Costs = np.partition(device_costs, count - 1, axis=1)[:, :count].sum(axis=1)
    return total


def only_where(fits: NDArray[np.bool_], costs: Costs) -> Costs:
    """The costs, infinite where it does not fit."""
    return np.where(fits, costs, np.inf)
