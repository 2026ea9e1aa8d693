"""Placement under any sequence of demands: never over capacity, nothing overlooked, and what is remembered is what is true."""

from __future__ import annotations

import numpy as np
import pytest
from gpupool.scheduler.placement import (
    POLICIES,
    Cluster,
    Consolidation,
    Demand,
    DeviceSpec,
    NodeSpec,
    Placement,
    Residents,
    carry_out,
    policy_named,
)
from gpupool.scheduler.placement.policy import ScoredPolicy
from gpupool.scheduler.placement.shape import Shape
from hypothesis import given, settings
from hypothesis import strategies as st

SMALL, LARGE, UNCOUNTED = DeviceSpec("small", 8_000), DeviceSpec("large", 24_000), DeviceSpec("uncounted")

devices = st.lists(st.sampled_from([SMALL, LARGE, UNCOUNTED]), min_size=1, max_size=4).map(tuple)
capacities = st.tuples(
    devices,
    st.one_of(st.none(), st.sampled_from([4_000, 16_000])),
    st.one_of(st.none(), st.just(8_192)),
)
clusters = st.lists(capacities, min_size=1, max_size=5).map(
    lambda rows: [NodeSpec(f"n{number}", *row) for number, row in enumerate(rows)]
)
shares = st.builds(
    Demand,
    milli=st.sampled_from([50, 190, 320, 470, 500, 810, 1000]),
    count=st.integers(1, 3),
    cpu_milli=st.sampled_from([0, 1_000, 3_000]),
    memory_mib=st.sampled_from([0, 2_048]),
    models=st.sampled_from([frozenset(), frozenset({"small"}), frozenset({"large", "uncounted"})]),
)
by_memory = st.builds(Demand, mib=st.sampled_from([1_000, 4_000, 12_000]), count=st.integers(1, 2))
no_device = st.builds(Demand, count=st.just(0), cpu_milli=st.sampled_from([1_000, 3_000]))
demands = st.one_of(shares, by_memory, no_device)
#: A demand, and which of those placed before leaves first, if any.
steps = st.lists(st.tuples(demands, st.one_of(st.none(), st.integers(0, 50))), max_size=25)


def has_room(cluster: Cluster, demand: Demand) -> bool:
    """Whether any node has room, looked at device by device."""
    for number, node in enumerate(cluster.nodes):
        possible = [
            ordinal
            for ordinal, device in enumerate(node.devices)
            if (share := demand.on(device)) is not None
            and share[0] <= cluster.free_milli[number, ordinal]
            and share[1] <= cluster.free_mib[number, ordinal]
        ]
        enough = (
            cluster.free_cpu[number] >= demand.cpu_milli and cluster.free_memory[number] >= demand.memory_mib
        )
        if enough and len(possible) >= demand.count:
            return True
    return False


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=15, deadline=None)
@given(clusters, steps)
def test_what_is_placed_fits_and_what_is_not_placed_fits_nowhere(
    name: str, nodes: list[NodeSpec], steps: list[tuple[Demand, int | None]]
) -> None:
    cluster = Cluster(nodes)
    counts = {demand: 1 for demand, _ in steps}
    policy = policy_named(name, counts=counts, seed=1)
    placed: list[Placement] = []
    for demand, leaves in steps:
        if leaves is not None and placed:
            cluster.give_back(placed.pop(leaves % len(placed)))
        policy.observe(demand)
        before = cluster.version
        placement = policy.place(cluster, demand)
        assert cluster.version == before
        assert (placement is not None) == has_room(cluster, demand)
        if placement is not None:
            assert placement.demand == demand
            cluster.take(placement)  # Raises when anything is over capacity.
            placed.append(placement)
    for placement in placed:
        cluster.give_back(placement)
    assert cluster.allocated_milli() == 0
    assert (cluster.free_mib == Cluster(nodes).free_mib).all()


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "random"])
@settings(max_examples=15, deadline=None)
@given(clusters, steps)
def test_remembered_costs_are_those_of_a_full_recomputation(
    name: str, nodes: list[NodeSpec], steps: list[tuple[Demand, int | None]]
) -> None:
    cluster = Cluster(nodes)
    counts = {demand: 1 for demand, _ in steps}
    policy = policy_named(name, counts=counts)
    assert isinstance(policy, ScoredPolicy)
    placed: list[Placement] = []
    everywhere = np.arange(len(cluster.nodes))
    for demand, leaves in steps:
        if leaves is not None and placed:
            cluster.give_back(placed.pop(leaves % len(placed)))
        policy.observe(demand)
        shape, board = policy._remembered(cluster, demand)
        kept = board.refreshed(cluster, lambda stale, shape=shape: policy.costs(cluster, shape, stale))
        fresh = Cluster(nodes)
        for placement in placed:
            fresh.take(placement)
        whole = policy_named(name, counts=counts)
        if name == "shadow_price":
            vars(whole).update(worth=vars(policy)["worth"], _cpu=vars(policy)["_cpu"])
        assert isinstance(whole, ScoredPolicy)
        again = whole.costs(fresh, Shape(fresh, demand), everywhere)
        np.testing.assert_array_equal(kept, again)
        placement = policy.place(cluster, demand)
        if placement is not None:
            cluster.take(placement)
            placed.append(placement)


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=4, deadline=None)
@given(clusters, steps)
def test_the_order_in_which_nodes_are_given_changes_nothing(
    name: str, nodes: list[NodeSpec], steps: list[tuple[Demand, int | None]]
) -> None:
    answers = []
    for given_nodes in (nodes, nodes[::-1]):
        cluster = Cluster(given_nodes)
        policy = policy_named(name, counts={demand: 1 for demand, _ in steps})
        answer = []
        for demand, _ in steps:
            policy.observe(demand)
            placement = policy.place(cluster, demand)
            answer.append(placement)
            if placement is not None:
                cluster.take(placement)
        answers.append(answer)
    assert answers[0] == answers[1]


@settings(max_examples=25, deadline=None)
@given(clusters, steps, st.integers(1, 2))
def test_moves_make_room_keep_everybody_and_leave_the_cluster_alone_until_carried_out(
    nodes: list[NodeSpec], steps: list[tuple[Demand, int | None]], most: int
) -> None:
    cluster = Cluster(nodes)
    policy = policy_named("best_fit")
    residents = Residents()
    consolidation = Consolidation(cluster, policy, residents)
    others: list[Placement] = []
    numbers: list[int] = []
    for demand, _ in steps * 2:
        placement = policy.place(cluster, demand)
        if placement is None:
            free = cluster.free_milli.copy(), cluster.free_cpu.copy()
            relocation = consolidation.room_for(demand, most)
            assert (free[0] == cluster.free_milli).all()
            assert (free[1] == cluster.free_cpu).all()
            if relocation is None:
                continue
            assert 1 <= len(relocation.moves) <= most
            for move in relocation.moves:
                assert move.source == residents[move.resident]
                assert move.source.demand == move.target.demand
                assert (move.source.node, move.source.devices) != (move.target.node, move.target.devices)
            number = carry_out(cluster, residents, relocation)
            placement = relocation.placement
        else:
            cluster.take(placement)
            number = residents.add(placement)
        if number is None:
            others.append(placement)
        else:
            numbers.append(number)
    assert len(residents) == len(numbers)
    for placement in [*others, *(residents[number] for number in numbers)]:
        cluster.give_back(placement)
    assert (cluster.free_milli == Cluster(nodes).free_milli).all()
    assert (cluster.free_cpu == Cluster(nodes).free_cpu).all()
