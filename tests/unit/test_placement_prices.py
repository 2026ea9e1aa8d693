"""The linear program behind the prices, and the history that it is solved for."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from gpupool.scheduler.placement import Demand, DeviceSpec
from gpupool.scheduler.placement.cutting_stock import pack, value_by_room
from gpupool.scheduler.placement.history import FIRST, LONGEST, MOST_SIZES, History
from hypothesis import given, settings
from hypothesis import strategies as st

DEVICE = DeviceSpec()


def test_shares_that_fit_exactly_need_no_more_than_their_sum() -> None:
    packing = pack({600: 10, 400: 10})
    assert packing.devices == pytest.approx(10)
    assert packing.prices[600] + packing.prices[400] == pytest.approx(1)


def test_a_share_that_nothing_fits_beside_costs_a_device_and_the_small_ones_nothing() -> None:
    packing = pack({810: 100, 160: 20})
    assert packing.devices == pytest.approx(100)
    assert packing.prices == {810: pytest.approx(1), 160: pytest.approx(0)}


def test_the_prices_follow_the_mixture() -> None:
    # With more 320 than 680, the rest lies three to a device.
    packing = pack({680: 10, 320: 13})
    assert packing.devices == pytest.approx(11)
    assert packing.prices == {680: pytest.approx(2 / 3), 320: pytest.approx(1 / 3)}


def test_room_is_worth_the_best_that_fits_into_it() -> None:
    worth = value_by_room({680: 2 / 3, 320: 1 / 3})
    assert [round(float(worth[room]), 3) for room in (319, 320, 640, 679, 680, 999, 1000)] == [
        0,
        0.333,
        0.667,
        0.667,
        0.667,
        1,
        1,
    ]
    assert (np.diff(worth) >= 0).all()


def test_other_counts_are_answered_with_the_same_patterns_where_they_still_are_the_best() -> None:
    packing = pack({680: 10, 320: 13})
    assert packing.devices_for({680: 10, 320: 16}) == pytest.approx(12)
    assert packing.devices_for({680: 10, 320: 2}) is None
    assert packing.devices_for({680: 10, 320: 13, 50: 1}) is None
    assert packing.at_least({680: 10, 320: 2}) == pytest.approx(20 / 3 + 2 / 3)
    assert pack({680: 10, 320: 2}).devices == pytest.approx(10)


def test_nothing_needs_nothing_and_sizes_are_checked() -> None:
    assert pack({}).devices == 0
    assert pack({500: 0}).prices == {}
    with pytest.raises(ValueError, match=r"not within 1\.\.1000"):
        pack({1001: 1})


def every_pattern(sizes: list[int]) -> list[tuple[int, ...]]:
    ranges = [range(1000 // size + 1) for size in sizes]
    return [
        counts
        for counts in itertools.product(*ranges)
        if sum(s * c for s, c in zip(sizes, counts, strict=True)) <= 1000
    ]


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.integers(140, 1000), st.integers(1, 40), min_size=1, max_size=4))
def test_no_pattern_is_worth_more_than_a_device_and_the_prices_pay_for_all(counts: dict[int, int]) -> None:
    """Both together prove the solution: prices are feasible, and their sum is the number of devices (duality)."""
    packing = pack(counts)
    sizes = list(packing.prices)
    for pattern in every_pattern(sizes):
        assert sum(packing.prices[s] * n for s, n in zip(sizes, pattern, strict=True)) <= 1 + 1e-6
    assert sum(packing.prices[s] * counts[s] for s in sizes) == pytest.approx(packing.devices)
    assert packing.devices >= sum(s * n for s, n in counts.items()) / 1000 - 1e-6


def concluded(history: History, demand: Demand, times: int) -> int:
    """How often it was time to conclude."""
    count = 0
    for _ in range(times):
        if history.add(demand, DEVICE):
            history.conclude()
            count += 1
    return count


def test_conclusions_become_rarer_as_more_is_known() -> None:
    history = History()
    assert [concluded(history, Demand(500), FIRST) for _ in range(4)] == [1, 1, 0, 1]
    assert concluded(history, Demand(500), 10 * LONGEST) <= 20


def test_whole_devices_and_cpu_alone_have_no_size_and_only_devices_have_cpu() -> None:
    history = History()
    concluded(history, Demand(1000, count=2, cpu_milli=16_000), 2)
    concluded(history, Demand(count=0, cpu_milli=64_000), 5)
    concluded(history, Demand(300, count=2, cpu_milli=1_200), 3)
    assert history.sizes == {300: 6}
    assert history.cpu_per_milli == pytest.approx((2 * 16_000 + 3 * 1_200) / (2 * 2000 + 3 * 600))


def test_memory_counts_as_the_part_of_a_device_that_it_is() -> None:
    history = History()
    history.add(Demand(mib=2_000), DeviceSpec("", 8_000))
    history.add(Demand(mib=9_000), DeviceSpec("", 8_000))
    assert history.sizes == {250: 1}


def test_the_past_fades() -> None:
    history = History()
    concluded(history, Demand(700), 2 * LONGEST)
    concluded(history, Demand(200), 6 * LONGEST)
    assert history.sizes[200] > 5 * history.sizes[700]


def test_the_work_of_a_conclusion_is_bounded() -> None:
    history = History()
    for milli in range(1, 1000):
        history.add(Demand(milli), DEVICE)
    assert len(history.sizes) == MOST_SIZES
    assert min(history.sizes) == 50
