"""What a provider is counted on for, once one of its nodes is not what its settings say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpupool.providers.elasticity import Ask, Scale
from gpupool.providers.offer import Offer

from tests.support.provider_world import ASK, World

_TYPE = "NVIDIA H100 80GB HBM3"
SCALE = Scale(
    maximum=4, idle=60.0, device_mib=81920, node_pool="slurm", offer=Offer(_TYPE, {"zone": "a", "rack": "1"})
)
#: What its nodes have, and what it is counted on for then.
OTHERWISE: list[tuple[dict[str, Any], Scale]] = [
    ({"mib": 81559}, replace(SCALE, device_mib=81559)),
    ({"pool": "other"}, replace(SCALE, node_pool="other")),
    ({"types": frozenset({"NVIDIA L4"})}, replace(SCALE, offer=replace(SCALE.offer, type="NVIDIA L4"))),
    ({"sharing": "open"}, replace(SCALE, offer=replace(SCALE.offer, sharing="open"))),
    ({"software": True}, replace(SCALE, offer=replace(SCALE.offer, software=True))),
    (
        {"labels": (("rack", "2"), ("zone", "a"))},
        replace(SCALE, offer=replace(SCALE.offer, labels={"zone": "a"})),
    ),
]


@pytest.mark.parametrize(("like", "promised"), OTHERWISE)
async def test_a_node_that_is_otherwise_than_promised_is_what_the_next_is_counted_on_for(
    like: dict[str, Any], promised: Scale
) -> None:
    world = World(SCALE)
    job = await world.one_job(connect=False)
    assert world.pool.promised == {"lab": SCALE}
    world.pool.connect(world.provider.node_of(job), **like)
    await world.look()
    assert world.pool.promised == {"lab": promised}


@pytest.mark.parametrize(
    "like", [{}, {"mib": 100_000}, {"labels": (("rack", "1"), ("zone", "a"), ("more", "x"))}]
)
async def test_more_is_not_counted_on_than_the_settings_say(like: dict[str, Any]) -> None:
    world = World(SCALE)
    job = await world.one_job(connect=False)
    world.pool.connect(world.provider.node_of(job), **like)
    await world.look()
    assert world.pool.promised == {"lab": SCALE}


async def test_who_waits_for_more_than_its_nodes_have_brings_one_node_and_no_more() -> None:
    world = World(SCALE)
    world.pool.waiting = [Ask("bob", None, 81700)]
    for _ in range(60):
        await world.look()
        for job in world.provider.living():
            if world.provider.node_of(job) not in world.pool.nodes:
                world.pool.connect(world.provider.node_of(job), mib=81559)
    assert world.provider.submits == 1


async def test_the_newest_node_counts_also_after_a_limit_was_set() -> None:
    world = World(SCALE)
    first = await world.one_job(connect=False)
    world.pool.connect(world.provider.node_of(first), mib=40000, busy=True)
    await world.look()
    world.grower.set_scale("lab", maximum=3)
    assert world.pool.promised == {"lab": replace(SCALE, device_mib=40000, maximum=3)}
    world.pool.waiting = [replace(ASK, milli=1000)]
    await world.look()
    second = next(job for job in world.provider.living() if job != first)
    world.pool.connect(world.provider.node_of(second), mib=81920)
    await world.look()
    assert world.pool.promised == {"lab": replace(SCALE, maximum=3)}
