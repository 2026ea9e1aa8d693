"""Each placement policy on cases small enough to work out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from gpupool.scheduler.placement import (
    DEFAULT_POLICY,
    POLICIES,
    Cluster,
    Demand,
    DeviceSpec,
    NodeSpec,
    Placement,
    policy_named,
)
from gpupool.scheduler.placement.best_fit import BestFit
from gpupool.scheduler.placement.dot_product import DotProduct
from gpupool.scheduler.placement.fgd import Fgd, Fragmentation, typical_demands
from gpupool.scheduler.placement.gpu_packing import GpuPacking
from gpupool.scheduler.placement.shadow_price import ShadowPrice
from gpupool.scheduler.placement.shape import Shape

HALF = Demand(500)
WHOLE = Demand(1000)


def node(
    name: str, devices: int = 1, cpu: int | None = None, memory: int | None = None, model: str = ""
) -> NodeSpec:
    return NodeSpec(name, (DeviceSpec(model),) * devices, cpu, memory)


def cluster_with(*nodes: tuple[NodeSpec, list[int]]) -> Cluster:
    """Nodes, and the milli that is left on each of their devices."""
    cluster = Cluster([spec for spec, _ in nodes])
    index = {spec.id: number for number, spec in enumerate(cluster.nodes)}
    for spec, left in nodes:
        for device, milli in enumerate(left):
            if milli < 1000:
                taken = cluster.place_at(Demand(1000 - milli), index[spec.id], [device])
                assert taken is not None
                cluster.take(taken)
    return cluster


def where(cluster: Cluster, placement: Placement | None) -> tuple[str, tuple[int, ...]] | None:
    return placement and (cluster.nodes[placement.node].id, placement.devices)


def score(policy: BestFit | DotProduct | GpuPacking, cluster: Cluster, demand: Demand) -> float:
    return float(policy.scores(cluster, Shape(cluster, demand), np.array([0]))[0])


def test_the_default_policy_is_the_first_of_those_with_a_name() -> None:
    assert POLICIES[0] == DEFAULT_POLICY == "shadow_price"
    assert [policy_named(name).name for name in POLICIES] == list(POLICIES)
    with pytest.raises(ValueError, match=r"'tetris' is not a placement policy: shadow_price, fgd"):
        policy_named("tetris")


def test_best_fit_counts_what_is_left_of_cpu_and_milli() -> None:
    cluster = Cluster([node("a", 2, cpu=64_000)])
    # CPU left 56/128, milli left 1500/8000: 100 (1 - 0.21875 - 0.09375) = 68.75
    assert score(BestFit(), cluster, Demand(500, cpu_milli=8_000)) == 68


def test_dot_product_prefers_the_node_that_has_least_of_what_is_asked() -> None:
    cluster = Cluster([node("a", 2, cpu=64_000)])
    # 64/128 * 8/128 + 2000/8000 * 500/8000 = 0.03125 + 0.015625: 100 (1 - 0.0234) = 97.7
    assert score(DotProduct(), cluster, Demand(500, cpu_milli=8_000)) == 97


@pytest.mark.parametrize(
    ("left", "demand_", "points"),
    [
        ([300, 1000], Demand(200), 97),  # 30 % left on the device in use: 100 - 3
        ([300, 1000], Demand(400), 49),  # opens one device of a node in use: 50 - 1
        ([1000, 1000], Demand(400), 31),  # a free node of two: 33 - 2
        ([300, 1000, 1000], Demand(1000, count=2), 48),
        ([400, 300, 1000], Demand(200, count=2), 93),  # 70 % left together: 100 - 7
    ],
)
def test_gpu_packing_takes_devices_in_use_then_nodes_in_use_then_free_nodes(
    left: list[int], demand_: Demand, points: int
) -> None:
    assert score(GpuPacking(), cluster_with((node("a", len(left)), left)), demand_) == points


def test_spread_takes_the_emptiest_device_of_the_emptiest_node() -> None:
    cluster = cluster_with(
        (node("a", 2), [1000, 300]), (node("b", 2), [1000, 900]), (node("c", 2), [999, 999])
    )
    assert where(cluster, policy_named("spread").place(cluster, Demand(200))) == ("b", (0,))


def test_random_repeats_itself_with_the_same_seed_and_uses_every_place() -> None:
    cluster = Cluster([node("a", 2), node("b", 2)])
    first, again = policy_named("random", seed=7), policy_named("random", seed=7)
    places = [where(cluster, first.place(cluster, HALF)) for _ in range(60)]
    assert places == [where(cluster, again.place(cluster, HALF)) for _ in range(60)]
    assert set(places) == {("a", (0,)), ("a", (1,)), ("b", (0,)), ("b", (1,))}


def fragmentation(cluster: Cluster, typical: dict[Demand, float]) -> float:
    measure = Fragmentation(cluster, typical)
    return float(measure.of(cluster.free_milli, cluster.free_cpu, cluster.kind[:, 0])[0])


def test_fragments_are_what_a_typical_demand_cannot_use() -> None:
    halves_and_wholes = {HALF: 0.5, WHOLE: 0.5}
    assert fragmentation(Cluster([node("a")]), halves_and_wholes) == 0
    # Half of the demands cannot use what is left beside a half.
    assert fragmentation(cluster_with((node("a"), [500])), halves_and_wholes) == 250
    # The whole one finds its device, what the other device has left is lost to it.
    assert fragmentation(cluster_with((node("a", 2), [1000, 500])), halves_and_wholes) == 250
    assert fragmentation(cluster_with((node("a", 2), [400, 400])), halves_and_wholes) == 800


def test_all_of_a_node_is_a_fragment_to_what_does_not_fit_it() -> None:
    cpu_first = {Demand(500, cpu_milli=8_000): 0.25, Demand(count=0, cpu_milli=1_000): 0.25, HALF: 0.5}
    # Too little CPU for the first, no device asked for by the second.
    assert fragmentation(Cluster([node("a", 2, cpu=4_000)]), cpu_first) == 0.5 * 2000
    assert fragmentation(Cluster([node("a", 2, cpu=8_000)]), cpu_first) == 0.25 * 2000
    assert (
        fragmentation(Cluster([node("a", model="T4")]), {Demand(500, models=frozenset({"A10"})): 1.0}) == 1000
    )
    two = {Demand(1000, count=2): 1.0}
    assert fragmentation(cluster_with((node("a", 3), [1000, 1000, 600])), two) == 600
    assert fragmentation(cluster_with((node("a", 3), [1000, 900, 900])), two) == 2800


def test_fgd_closes_a_gap_that_others_could_not_use() -> None:
    cluster = cluster_with((node("a", 2), [1000, 1000]), (node("b", 2), [1000, 500]))
    policy = Fgd({HALF: 50, WHOLE: 50})
    costs = policy.device_costs(cluster, Shape(cluster, HALF), np.array([0, 1]))
    opens, closes = math.trunc(100 / (1 + math.exp(0.25))), math.trunc(100 / (1 + math.exp(-0.25)))
    assert costs.tolist() == [[-opens, -opens], [-opens, -closes]]
    assert where(cluster, policy.place(cluster, HALF)) == ("b", (1,))


def test_fgd_lets_best_fit_decide_within_one_step_of_its_score() -> None:
    # Both placements fragment nothing, and the score is a whole number: the fuller node wins, in whatever order they are.
    for names in (("a", "b"), ("b", "a")):
        cluster = Cluster([node(names[0], 4), node(names[1], 2)])
        assert where(cluster, Fgd({Demand(100): 1}).place(cluster, Demand(100))) == (names[1], (0,))


def test_typical_demands_are_the_most_frequent_that_cover_95_percent() -> None:
    counts = {Demand(500): 60, Demand(300): 36, Demand(200): 4, Demand(500, memory_mib=5): 20}
    assert typical_demands(counts) == {Demand(500): 80 / 116, Demand(300): 36 / 116}


def learned(counts: dict[int, int]) -> ShadowPrice:
    """The policy after it has seen so many of each size, mixed."""
    policy = ShadowPrice()
    for _ in range(8):
        for size, count in counts.items():
            for _ in range(count):
                policy.observe(Demand(size))
    return policy


def test_shadow_prices_keep_a_gap_for_the_size_that_fills_it() -> None:
    # 680 belongs to 320, three of which fill a device too: a 320 is worth a third, a 230 a quarter.
    policy = learned({320: 13, 680: 10, 230: 4})
    assert policy.worth[320] == pytest.approx(1 / 3)
    assert policy.worth[230] == pytest.approx(1 / 4)
    assert policy.worth[1000] == pytest.approx(1.0)
    cluster = cluster_with((node("a"), [320]), (node("b"), [560]))
    assert where(cluster, policy_named("best_fit").place(cluster, Demand(230))) == ("a", (0,))
    # On b, 330 remain for a 320; a keeps its 320.
    assert where(cluster, policy.place(cluster, Demand(230))) == ("b", (0,))


def test_shadow_prices_fill_with_small_shares_what_nothing_else_can_use() -> None:
    policy = learned({810: 20, 160: 3, 340: 9})
    assert policy.worth[190] == 0
    # Best fit would spoil the room of two 340; the room beside an 810 is worth nothing.
    cluster = cluster_with((node("a"), [680]), (node("b"), [190]))
    assert where(cluster, policy.place(cluster, Demand(160))) == ("b", (0,))


def test_before_anything_was_seen_the_least_room_wins() -> None:
    cluster = cluster_with((node("a"), [700]), (node("b"), [600]), (node("c"), [1000]))
    assert where(cluster, ShadowPrice().place(cluster, Demand(500))) == ("b", (0,))


def test_shadow_prices_leave_cpu_to_devices_that_are_free() -> None:
    policy = ShadowPrice()
    for _ in range(64):
        policy.observe(Demand(1000, cpu_milli=10_000))
    # Ten for each free device: a has none to spare, b has, and c has no device left that would need some.
    cluster = cluster_with((node("a", 2, cpu=20_000), [1000, 1000]), (node("b", 1, cpu=20_000), [1000]))
    only_cpu = Demand(count=0, cpu_milli=5_000)
    assert where(cluster, policy.place(cluster, only_cpu)) == ("b", ())
    hungry = Demand(1000, cpu_milli=18_000)
    assert where(cluster, policy.place(cluster, hungry)) == ("b", (0,))


@pytest.mark.parametrize("name", POLICIES)
def test_several_shares_go_to_distinct_devices_of_one_node(name: str) -> None:
    policy = policy_named(name, counts={HALF: 1})
    cluster = cluster_with((node("a", 4), [400, 1000, 600, 1000]), (node("b", 2), [1000, 400]))
    two = policy.place(cluster, Demand(1000, count=2))
    assert where(cluster, two) == ("a", (1, 3))
    three = policy.place(cluster, Demand(600, count=3))
    assert where(cluster, three) == ("a", (1, 2, 3))
    assert policy.place(cluster, Demand(600, count=4)) is None
    assert policy.place(cluster, Demand(100, count=5)) is None


@pytest.mark.parametrize("name", POLICIES)
def test_what_a_node_lacks_excludes_it(name: str) -> None:
    policy = policy_named(name, counts={HALF: 1})
    cluster = Cluster(
        [
            node("a", cpu=1_000, memory=512, model="T4"),
            node("b", cpu=4_000, memory=256, model="T4"),
            node("c", cpu=4_000, memory=512, model="A10"),
            node("d", cpu=4_000, memory=512, model="T4"),
        ]
    )
    requests = Demand(500, cpu_milli=2_000, memory_mib=300, models=frozenset({"T4"}))
    assert where(cluster, policy.place(cluster, requests)) == ("d", (0,))
    assert policy.place(cluster, Demand(500, models=frozenset({"H100"}))) is None


@pytest.mark.parametrize("name", POLICIES)
def test_memory_of_devices_is_counted_where_it_is_known(name: str) -> None:
    policy = policy_named(name, counts={HALF: 1})
    cluster = Cluster(
        [NodeSpec("a", (DeviceSpec("small", 8_000),)), NodeSpec("b", (DeviceSpec("large", 24_000),))]
    )
    large = policy.place(cluster, Demand(mib=12_000))
    assert where(cluster, large) == ("b", (0,))
    assert large is not None
    assert large.shares == ((500, 12_000),)
    cluster.take(large)
    assert policy.place(cluster, Demand(mib=12_001)) is None
    part = policy.place(cluster, Demand(600))
    assert part is not None
    assert (where(cluster, part), part.shares) == (("a", (0,)), ((600, 4_800),))


def test_what_is_held_by_no_demand_is_not_placed_on() -> None:
    cluster = Cluster([NodeSpec("a", (DeviceSpec("small", 8_000),) * 2)])
    parked = cluster.hold(0, 0, 0, 5_000)
    unhealthy = cluster.hold(0, 1, 1000, 8_000)
    policy = ShadowPrice()
    assert policy.place(cluster, Demand(500)) is None
    assert where(cluster, policy.place(cluster, Demand(375))) == ("a", (0,))
    with pytest.raises(ValueError, match="node a: device 1: 1 milli-GPU beside 0 free"):
        cluster.hold(0, 1, 1, 0)
    cluster.give_back(parked)
    cluster.give_back(unhealthy)
    assert where(cluster, policy.place(cluster, Demand(1000, count=2))) == ("a", (0, 1))
    with pytest.raises(ValueError, match="node a: device 0"):
        cluster.give_back(parked)


def test_a_cluster_has_nodes_with_distinct_names() -> None:
    with pytest.raises(ValueError, match="same id"):
        Cluster([node("a"), node("a")])
    with pytest.raises(ValueError, match="at least one node"):
        Cluster([])


@pytest.mark.parametrize(
    "wrong",
    [
        {"milli": 0},
        {"milli": 1001},
        {"milli": 5, "mib": 5},
        {"milli": 5, "count": 0},
        {"milli": 5, "cpu_milli": -1},
    ],
)
def test_a_demand_names_a_share_and_nothing_negative(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        Demand(**wrong)
