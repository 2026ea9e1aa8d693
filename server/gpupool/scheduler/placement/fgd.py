"""FGD, fragmentation gradient descent (Weng et al., USENIX ATC 2023): the placement that fragments least.

The fragmentation of a node is the milli left on it that a demand drawn from a distribution could not use:

* all of it, if the demand does not fit the node (devices, CPU, model) or needs no device,
* else the milli left on the devices that are too full for one of its shares.

The score of a placement is ``int(100 sigmoid((before - after) / 1000))``. That it is rounded matters: within one step (about
40 milli) a packing rule decides. Here that is best fit, then the node's id, so the order of nodes carries nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from gpupool.scheduler.placement.cluster import Cluster, Integers, Nodes
from gpupool.scheduler.placement.model import Demand
from gpupool.scheduler.placement.packing import has_room, left_after
from gpupool.scheduler.placement.policy import Costs, ScoredPolicy, only_where
from gpupool.scheduler.placement.shape import Shape
from gpupool.shares import WHOLE_DEVICE_MILLI

#: The distribution is cut where its most frequent shapes cover this part.
COVERED: Final = 0.95


class Fgd(ScoredPolicy):
    """As published, with the distribution of demands given beforehand."""

    name = "fgd"

    def __init__(self, counts: Mapping[Demand, int]) -> None:
        super().__init__()
        self._counts = dict(counts)
        self.typical = typical_demands(counts)
        self._fragmentation: WeakKeyDictionary[Cluster, Fragmentation] = WeakKeyDictionary()

    @property
    def learned(self) -> Mapping[Demand, int]:
        """What it was given."""
        return self._counts

    def recall(self, learned: Mapping[Demand, int]) -> None:
        self._counts = dict(learned)
        self.typical = typical_demands(learned)
        self._fragmentation.clear()
        self.forget()

    def device_costs(self, cluster: Cluster, shape: Shape, nodes: Nodes) -> Costs:
        fits = shape.devices_with_room(cluster, nodes)
        if not _chooses_device(shape):
            return only_where(fits, cluster.free_milli[nodes].astype(np.float64))
        measure = self._measure(cluster)
        cpu = cluster.free_cpu[nodes]
        before = measure.of(cluster.free_milli[nodes], cpu, cluster.kind[nodes, 0])
        after = measure.with_one_share(cluster, shape, nodes)
        return only_where(fits, -_score(before[:, None] - after))

    def costs(self, cluster: Cluster, shape: Shape, nodes: Nodes) -> Costs:
        if _chooses_device(shape):
            score = self.device_costs(cluster, shape, nodes).min(axis=1)
            fits = shape.nodes_with_room(cluster, nodes)
        else:
            measure = self._measure(cluster)
            free, cpu, kind = cluster.free_milli[nodes], cluster.free_cpu[nodes], cluster.kind[nodes, 0]
            after = measure.of(_tightest_taken(cluster, shape, nodes), cpu - shape.demand.cpu_milli, kind)
            score = -_score(measure.of(free, cpu, kind) - after)
            fits = has_room(cluster, shape, nodes)
        cpu_left, milli_left = left_after(cluster, shape, nodes)
        # Best fit below one step of the score: both parts together are less than 1.
        return only_where(fits, score + 0.25 * (cpu_left + milli_left))

    def _measure(self, cluster: Cluster) -> Fragmentation:
        known = self._fragmentation.get(cluster)
        if known is None:
            known = self._fragmentation[cluster] = Fragmentation(cluster, self.typical)
        return known


class Fragmentation:
    """The measure for one cluster, as tables: what one device contributes depends on its milli, its kind and the node's CPU."""

    def __init__(self, cluster: Cluster, typical: Mapping[Demand, float]) -> None:
        shapes = [(Shape(cluster, demand), part) for demand, part in typical.items()]
        self._cpu_steps = np.unique(np.array([demand.cpu_milli for demand in typical], np.int64))
        self._several = [(shape, part) for shape, part in shapes if shape.demand.count > 1]
        milli = np.arange(WHOLE_DEVICE_MILLI + 1)
        unusable = np.zeros((len(cluster.kinds), len(self._cpu_steps) + 1, len(milli)))
        for shape, part in shapes:
            if shape.demand.count > 1:
                continue
            # With this many of the steps at or below a node's CPU, the demand's own step is among them.
            enough_cpu = int(np.searchsorted(self._cpu_steps, shape.demand.cpu_milli, side="right"))
            unusable[:, :enough_cpu, :] += part
            if shape.demand.count == 0:
                unusable[:, enough_cpu:, :] += part
            else:
                too_full = milli[None, :] < shape.milli[:, None]
                unusable[:, enough_cpu:, :] += part * too_full[:, None, :]
        #: Milli that count as fragmented, by kind, CPU step and milli left of a device.
        self._table = unusable * milli

    def of(self, free: Integers, cpu: Integers, kind: Integers) -> Costs:
        """Per node: its fragmentation with these free milli, CPU and kind of device."""
        step = np.searchsorted(self._cpu_steps, cpu, side="right")
        amount: Costs = self._table[kind[:, None], step[:, None], free].sum(axis=1)
        for shape, part in self._several:
            fits = free >= shape.milli[kind][:, None]
            good = (fits.sum(axis=1) >= shape.demand.count) & (cpu >= shape.demand.cpu_milli)
            amount += part * (free.sum(axis=1) - np.where(good, (free * fits).sum(axis=1), 0))
        return amount

    def with_one_share(self, cluster: Cluster, shape: Shape, nodes: Nodes) -> Costs:
        """Per device of ``nodes``: the node's fragmentation with one share on it; meaningless where it does not fit."""
        free, kind = cluster.free_milli[nodes], cluster.kind[nodes, 0]
        cpu = cluster.free_cpu[nodes] - shape.demand.cpu_milli
        step = np.searchsorted(self._cpu_steps, cpu, side="right")[:, None]
        left = np.maximum(free - shape.milli_on(cluster, nodes), 0)
        parts = self._table[kind[:, None], step, free]
        amount: Costs = parts.sum(axis=1)[:, None] + self._table[kind[:, None], step, left] - parts
        for typical, part in self._several:
            need = typical.milli[kind][:, None]
            fits, still = free >= need, left >= need
            count = fits.sum(axis=1)[:, None] - fits + still
            usable = (free * fits).sum(axis=1)[:, None] - free * fits + left * still
            good = (count >= typical.demand.count) & (cpu >= typical.demand.cpu_milli)[:, None]
            amount += part * (free.sum(axis=1)[:, None] - free + left - np.where(good, usable, 0))
        return amount


def typical_demands(counts: Mapping[Demand, int]) -> dict[Demand, float]:
    """The most frequent shapes that together cover :data:`COVERED`, with their parts of these; host memory is not looked at."""
    merged: dict[Demand, int] = {}
    for demand, count in counts.items():
        shape = Demand(demand.milli, demand.mib, demand.count, demand.cpu_milli, 0, demand.models)
        merged[shape] = merged.get(shape, 0) + count
    total = sum(merged.values())
    chosen: dict[Demand, int] = {}
    covered = 0
    for demand in sorted(
        merged, key=lambda r: (-merged[r], r.cpu_milli, r.milli, r.mib, r.count, sorted(r.models))
    ):
        if covered >= COVERED * total:
            break
        chosen[demand] = merged[demand]
        covered += merged[demand]
    return {demand: count / covered for demand, count in chosen.items()}


def _score(gradient: Costs) -> Costs:
    score: Costs = np.trunc(100.0 / (1.0 + np.exp(-gradient / 1000.0)))
    return score


def _chooses_device(shape: Shape) -> bool:
    """Whether the score tells devices apart: for one share of a device; whole devices are alike."""
    return shape.demand.count == 1 and shape.milli_anywhere != WHOLE_DEVICE_MILLI


def _tightest_taken(cluster: Cluster, shape: Shape, nodes: Nodes) -> Integers:
    """Free milli per device once the shares lie on the fullest devices with room."""
    free = cluster.free_milli[nodes]
    count = min(shape.demand.count, free.shape[1])
    if count == 0:
        return free
    order = np.where(shape.devices_with_room(cluster, nodes), free, 10 * WHOLE_DEVICE_MILLI)
    chosen = np.argsort(order, axis=1, kind="stable")[:, :count]
    taken = free.copy()
    rows = np.arange(len(free))[:, None]
    need = shape.milli_on(cluster, nodes)
    taken[rows, chosen] -= need if isinstance(need, int) else need[rows, chosen]
    return np.maximum(taken, 0)
