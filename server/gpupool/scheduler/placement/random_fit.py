"""Random: any node with room, any device with room. What a policy has to beat."""

from __future__ import annotations

import numpy as np

from gpupool.scheduler.placement.cluster import Cluster, Nodes
from gpupool.scheduler.placement.model import Demand, Placement
from gpupool.scheduler.placement.packing import has_room
from gpupool.scheduler.placement.policy import Costs, Mask, ScoredPolicy, only_where
from gpupool.scheduler.placement.shape import Shape


class RandomFit(ScoredPolicy):
    """The same seed and the same questions give the same answers."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._choice = np.random.default_rng(seed)

    def device_costs(self, cluster: Cluster, shape: Shape, nodes: Nodes) -> Costs:
        fits = shape.devices_with_room(cluster, nodes)
        return only_where(fits, self._choice.random(fits.shape))

    def costs(self, cluster: Cluster, shape: Shape, nodes: Nodes) -> Costs:
        return only_where(has_room(cluster, shape, nodes), np.zeros(len(nodes)))

    def place(self, cluster: Cluster, demand: Demand, among: Mask | None = None) -> Placement | None:
        shape, board = self._remembered(cluster, demand)
        costs = board.refreshed(cluster, lambda nodes: self.costs(cluster, shape, nodes))
        if among is not None:
            costs = only_where(among, costs)
        possible = np.flatnonzero(costs == 0.0)
        if not len(possible):
            return None
        node = int(possible[self._choice.integers(len(possible))])
        return shape.placement(cluster, node, self._devices(cluster, shape, node))
