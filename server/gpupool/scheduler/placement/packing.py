"""What the policies from the literature have in common: how they choose a device, and what their formulas normalise by.

The formulas are those that the authors of FGD compared with (hkust-adsl/kubernetes-scheduler-simulator, Apache-2.0):
whole numbers from 0 to 100 for a node, more is better, and inside the node the device with the least left.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

import numpy as np

from gpupool.scheduler.placement.cluster import Cluster, Nodes
from gpupool.scheduler.placement.policy import Costs, ScoredPolicy, only_where
from gpupool.scheduler.placement.shape import Shape

#: What the largest node has, by which scores are made comparable.
MOST_CPU_MILLI: Final = 128_000
MOST_MILLI: Final = 8_000


class NodeScorePolicy(ScoredPolicy):
    """A score per node; inside it the devices with the least left."""

    @abstractmethod
    def scores(self, cluster: Cluster, shape: Shape, nodes: Nodes) -> Costs:
        """Per node, more is better; asked for nodes without room too, whose score is not used."""

    def device_costs(self, cluster: Cluster, shape: Shape, nodes: Nodes) -> Costs:
        left = cluster.free_milli[nodes].astype(np.float64)
        return only_where(shape.devices_with_room(cluster, nodes), left)

    def costs(self, cluster: Cluster, shape: Shape, nodes: Nodes) -> Costs:
        return only_where(has_room(cluster, shape, nodes), -self.scores(cluster, shape, nodes))


def has_room(cluster: Cluster, shape: Shape, nodes: Nodes) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Per node: whether the whole demand fits."""
    fits = shape.nodes_with_room(cluster, nodes)
    if shape.demand.count:
        fits &= shape.devices_with_room(cluster, nodes).sum(axis=1) >= shape.demand.count
    return fits


def left_after(cluster: Cluster, shape: Shape, nodes: Nodes) -> tuple[Costs, Costs]:
    """Per node, as parts of the largest node: CPU and milli left once the demand is placed; 0 where CPU is not counted."""
    cpu = np.where(
        cluster.free_cpu[nodes] > MOST_CPU_MILLI * 1000,
        0.0,
        (cluster.free_cpu[nodes] - shape.demand.cpu_milli) / MOST_CPU_MILLI,
    )
    milli = (cluster.free_total[nodes] - shape.total_on(cluster, nodes)) / MOST_MILLI
    return cpu, milli
