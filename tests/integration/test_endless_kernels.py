"""A kernel that never ends, through the ways in which a lease ends: a real pool, real nodes, workers and programs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.endless_kernels import ENDS, end_under_endless_kernel
from tests.support.pool_node import native_worker_is_built
from tests.support.pool_portal import PoolPortal
from tests.support.session_program import build
from tests.support.session_world import SessionWorld
from tests.support.two_nodes import PoolAndTwoNodes

SCALE = 0.4

pytestmark = pytest.mark.skipif(not native_worker_is_built(), reason="native parts not built")


@pytest.fixture(scope="module")
def world() -> Iterator[SessionWorld]:
    with (
        tempfile.TemporaryDirectory(prefix="gpe-") as folder,
        PoolAndTwoNodes("--drain", "1s", scale=SCALE) as stack,
        PoolPortal(stack.endpoint, 5 * SCALE) as portal,
    ):
        world = SessionWorld(stack, portal, build(Path(folder)), Path(folder))
        yield world
        for session in world.sessions:
            session.end(killed=True)


@pytest.mark.parametrize("how", ENDS)
def test_nothing_computes_when_the_lease_has_ended(world: SessionWorld, how: str) -> None:
    session = world.attach(400, movable=True)
    beside = world.attach(300)
    assert session is not None and beside is not None
    session.allocate(5000, 7)
    end_under_endless_kernel(world, session, how)
    world.check_shares()
    beside.check_all()
    for one in list(world.sessions):
        if one.attached:
            one.check_all()
        world.close(one, killed=False)
    assert not world.live_leases()
