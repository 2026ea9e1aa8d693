"""How the time of a decision grows with the cluster: the same cluster several times over, each copy equally full."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpupool.scheduler.placement import Cluster, Demand, NodeSpec, Placement, policy_named

from benchmarks import openb_trace

#: Copies of the cluster.
FACTORS: Final = (1, 2, 4, 8, 16)
#: How full it is before anything is measured: demand that has arrived, in capacities.
ARRIVED: Final = 0.9
#: Decisions that fill what a policy remembers of a new cluster, and those that are measured then.
WARM_UP: Final = 2_000
MEASURED: Final = 3_000


@dataclass(frozen=True, slots=True)
class Growth:
    """Processor time of a decision in a cluster of so many nodes."""

    nodes: int
    devices: int
    median_ms: float
    p99_ms: float
    decisions_per_s: float


def growth(
    specs: Sequence[NodeSpec],
    tasks: Sequence[Demand],
    policy: str,
    seed: int,
    factors: Sequence[int] = FACTORS,
) -> list[Growth]:
    """One measurement for each factor."""
    return [_measured(specs, tasks, policy, seed, factor) for factor in factors]


def _measured(
    specs: Sequence[NodeSpec], tasks: Sequence[Demand], policy: str, seed: int, factor: int
) -> Growth:
    chosen = policy_named(policy, counts=Counter(tasks), seed=seed)
    cluster = Cluster(specs)
    demands = openb_trace.arrivals(tasks, cluster.capacity_milli, seed)
    placed: list[Placement] = []
    asked = 0
    for demand in demands:
        asked += demand.total_milli
        if asked > ARRIVED * cluster.capacity_milli:
            break
        chosen.observe(demand)
        placement = chosen.place(cluster, demand)
        if placement is not None:
            cluster.take(placement)
            placed.append(placement)
    large = _copies(cluster, placed, factor)
    taken = []
    for number in range(WARM_UP + MEASURED):
        demand = demands[-1 - number % len(demands)]
        begun = time.thread_time_ns()
        chosen.observe(demand)
        placement = chosen.place(large, demand)
        if placement is not None:
            large.take(placement)
        taken.append(time.thread_time_ns() - begun)
    ordered = sorted(taken[WARM_UP:])
    return Growth(
        len(large.nodes),
        sum(len(node.devices) for node in large.nodes),
        ordered[len(ordered) // 2] / 1e6,
        ordered[len(ordered) * 99 // 100] / 1e6,
        len(ordered) / (sum(ordered) / 1e9),
    )


def _copies(cluster: Cluster, placed: Sequence[Placement], factor: int) -> Cluster:
    size = len(cluster.nodes)
    nodes = [replace(node, id=f"{copy:04d}-{node.id}") for copy in range(factor) for node in cluster.nodes]
    large = Cluster(nodes)
    for copy in range(factor):
        for placement in placed:
            large.take(replace(placement, node=copy * size + placement.node))
    return large
