"""Which devices a demand gets: a cluster in integers, and policies that choose in it. Pure, and fast by what it remembers.

A policy answers ``place(cluster, demand)`` and changes nothing in the cluster; :meth:`Cluster.take` does. What it has
worked out it keeps for each shape of demand, and looks again only at nodes that changed since.
"""

from gpupool.scheduler.placement.catalog import DEFAULT_POLICY, POLICIES, policy_named
from gpupool.scheduler.placement.cluster import Cluster
from gpupool.scheduler.placement.consolidate import Consolidation, Move, Relocation, carry_out
from gpupool.scheduler.placement.model import Demand, DeviceSpec, NodeSpec, Placement
from gpupool.scheduler.placement.policy import Policy
from gpupool.scheduler.placement.residents import Residents

__all__ = [
    "DEFAULT_POLICY",
    "POLICIES",
    "Cluster",
    "Consolidation",
    "Demand",
    "DeviceSpec",
    "Move",
    "NodeSpec",
    "Placement",
    "Policy",
    "Relocation",
    "Residents",
    "carry_out",
    "policy_named",
]
