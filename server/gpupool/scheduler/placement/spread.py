"""Spread: the node and device with the most left, so that sessions disturb each other least and a lost node costs least."""

from __future__ import annotations

import numpy as np

from gpupool.scheduler.placement.cluster import Cluster, Nodes
from gpupool.scheduler.placement.packing import has_room
from gpupool.scheduler.placement.policy import Costs, ScoredPolicy, cheapest, only_where
from gpupool.scheduler.placement.shape import Shape


class Spread(ScoredPolicy):
    """The emptiest devices; of equally empty ones those of the node with the most milli left, then CPU."""

    name = "spread"

    def device_costs(self, cluster: Cluster, shape: Shape, nodes: Nodes) -> Costs:
        left = cluster.free_milli[nodes].astype(np.float64)
        return only_where(shape.devices_with_room(cluster, nodes), -left)

    def costs(self, cluster: Cluster, shape: Shape, nodes: Nodes) -> Costs:
        node = -cluster.free_total[nodes] / 1e6 - np.minimum(cluster.free_cpu[nodes], 10**9) / 1e16
        if shape.demand.count:
            node = node + cheapest(self.device_costs(cluster, shape, nodes), shape.demand.count)
        return only_where(has_room(cluster, shape, nodes), node)
