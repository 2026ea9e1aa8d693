"""DotProd: the node whose free capacity lies least in the demand's direction (Tetris, doi 10.1145/2619239.2626334)."""

from __future__ import annotations

import numpy as np

from gpupool.scheduler.placement.cluster import Cluster, Nodes
from gpupool.scheduler.placement.packing import MOST_CPU_MILLI, MOST_MILLI, NodeScorePolicy
from gpupool.scheduler.placement.policy import Costs
from gpupool.scheduler.placement.shape import Shape


class DotProduct(NodeScorePolicy):
    """``100 (1 - (CPU left * CPU asked + milli left * milli asked) / 2)``, rounded towards zero."""

    name = "dot_product"

    def scores(self, cluster: Cluster, shape: Shape, nodes: Nodes) -> Costs:
        cpu = np.minimum(cluster.free_cpu[nodes] / MOST_CPU_MILLI, 1.0) * (
            shape.demand.cpu_milli / MOST_CPU_MILLI
        )
        asked = shape.total_on(cluster, nodes)
        milli = (cluster.free_total[nodes] / MOST_MILLI) * (asked / MOST_MILLI)
        return np.trunc(100.0 * (1.0 - (cpu + milli) / 2.0))
