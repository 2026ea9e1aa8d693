"""What `gpupool provider scale` has set, and what the file of providers says beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpupool.providers.elasticity import Scale
from gpupool.providers.grower import Grower
from gpupool.providers.kinds import SettingsError

from tests.support.provider_world import World


def in_effect(world: World) -> tuple[int, int]:
    scale = world.grower.provider("lab")[1]
    return scale.minimum, scale.maximum


async def test_what_was_set_by_hand_is_stored() -> None:
    world = World()
    world.grower.set_scale("lab", minimum=1)
    world.grower.set_scale("lab", maximum=2)
    assert world.book.limits()["lab"] == {"minimum": 1, "maximum": 2}  # the rest is the file's
    assert world.grower.provider("lab")[1] == replace(world.scale, minimum=1, maximum=2)
    await world.look()
    assert len(world.provider.living()) == 1


@pytest.mark.parametrize("named", [{"minimum": 4}, {"minimum": 3, "maximum": 2}, {"maximum": 1001}])
def test_figures_that_make_no_sense_together_are_refused(named: dict[str, float]) -> None:
    world = World()
    with pytest.raises(SettingsError):
        world.grower.set_scale("lab", **named)
    assert world.book.limits() == {} and in_effect(world) == (0, 3)


def test_a_small_maximum_holds_the_minimum_down_and_does_not_replace_it() -> None:
    world = World()
    world.grower.set_scale("lab", minimum=2)
    world.grower.set_scale("lab", maximum=0)
    assert in_effect(world) == (0, 0)
    world.grower.set_scale("lab", maximum=3)
    assert in_effect(world) == (2, 3)


def test_a_file_that_no_longer_goes_with_what_was_set_stops_no_pool() -> None:
    world = World()
    world.grower.set_scale("lab", maximum=2)
    world.scale = replace(world.scale, minimum=3, maximum=4)
    world.restarted()
    assert in_effect(world) == (2, 2)


def test_what_was_set_can_be_taken_back() -> None:
    world = World()
    world.grower.set_scale("lab", minimum=1, maximum=2, idle=7.0)
    world.grower.set_scale("lab", reset=True, maximum=5)
    assert world.book.limits()["lab"] == {"maximum": 5}
    world.grower.set_scale("lab", reset=True)
    assert world.book.limits().get("lab", {}) == {}
    assert world.grower.provider("lab")[1] == world.scale
    world.restarted()
    assert world.grower.provider("lab")[1] == world.scale


@pytest.mark.parametrize("unusable", [("lab",), ()])
async def test_nodes_of_a_provider_that_is_named_but_cannot_be_used_stay(unusable: tuple[str, ...]) -> None:
    world = World()
    job = await world.one_job(busy=True)
    world.grower = Grower(world.book, world.pool, {}, unusable=unusable)
    await world.look(times=3)
    assert world.pool.nodes[world.provider.node_of(job)].drained == (unusable == ())


async def test_a_node_that_an_administrator_has_drained_is_none_of_the_minimum_and_goes_back() -> None:
    world = World(Scale(minimum=1, maximum=2, idle=60.0))
    await world.look()
    (first,) = world.provider.living()
    node = world.provider.node_of(first)
    world.pool.connect(node, busy=True)
    await world.look()
    world.pool.change(node, drained=True)
    await world.look()
    second = next(job for job in world.provider.living() if job != first)
    world.pool.connect(world.provider.node_of(second))
    await world.look(times=20)
    assert world.provider.living() == [first, second]  # it serves somebody still
    world.pool.change(node, busy=False)
    await world.look(times=20)
    assert world.provider.living() == [second] and world.provider.submits == 2


async def test_a_node_that_takes_leases_again_is_one_of_the_minimum_again() -> None:
    world = World(Scale(minimum=1, maximum=1, idle=60.0))
    await world.look()
    (job,) = world.provider.living()
    node = world.provider.node_of(job)
    world.pool.connect(node)
    world.pool.change(node, drained=True, free=())
    await world.look(times=5)
    world.pool.change(node, drained=False, free=(1000,))
    await world.look(times=40)
    assert world.provider.living() == [job]
