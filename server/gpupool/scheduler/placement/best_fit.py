"""BestFit: the node on which the least CPU and milli would be left."""

from __future__ import annotations

import numpy as np

from gpupool.scheduler.placement.cluster import Cluster, Nodes
from gpupool.scheduler.placement.packing import NodeScorePolicy, left_after
from gpupool.scheduler.placement.policy import Costs
from gpupool.scheduler.placement.shape import Shape


class BestFit(NodeScorePolicy):
    """``100 (1 - (CPU left + milli left) / 2)``, rounded towards zero."""

    name = "best_fit"

    def scores(self, cluster: Cluster, shape: Shape, nodes: Nodes) -> Costs:
        cpu, milli = left_after(cluster, shape, nodes)
        return np.trunc(100.0 * (1.0 - 0.5 * cpu - 0.5 * milli))
