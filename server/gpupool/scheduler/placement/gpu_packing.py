"""GpuPacking: devices in use before free ones, free ones of a node in use before a free node."""

from __future__ import annotations

import numpy as np

from gpupool.scheduler.placement.cluster import Cluster, Nodes
from gpupool.scheduler.placement.packing import NodeScorePolicy
from gpupool.scheduler.placement.policy import Costs
from gpupool.scheduler.placement.shape import Shape
from gpupool.shares import WHOLE_DEVICE_MILLI


class GpuPacking(NodeScorePolicy):
    """Three bands of a hundred points.

    | takes | score |
    |---|---|
    | devices in use only | 100 less a tenth of their percentage left, at least 50 |
    | n free devices of a node in use | 50 - n, at least 33 |
    | devices of a free node with n devices | 33 - n, at least n |
    """

    name = "gpu_packing"

    def scores(self, cluster: Cluster, shape: Shape, nodes: Nodes) -> Costs:
        count = shape.demand.count
        if count == 0 or count > cluster.free_milli.shape[1]:
            return np.zeros(len(nodes))
        left = cluster.free_milli[nodes]
        present = cluster.present[nodes]
        free = ((left == WHOLE_DEVICE_MILLI) & present).sum(axis=1)
        fitting = np.where(shape.devices_with_room(cluster, nodes), left, 10 * WHOLE_DEVICE_MILLI)
        chosen = np.partition(fitting, count - 1, axis=1)[:, :count]
        opened = (chosen == WHOLE_DEVICE_MILLI).sum(axis=1)
        in_use = np.maximum(100 - (chosen * 100 // WHOLE_DEVICE_MILLI).sum(axis=1) // 10, 50)
        some_free = np.maximum(50 - opened, 33)
        all_free = np.maximum(33 - free, free)
        score = np.where(opened > 0, some_free, in_use)
        points: Costs = np.where(free == present.sum(axis=1), all_free, score).astype(np.float64)
        return points
