"""A kernel that never ends, through the ways in which a lease ends: a real pool, real nodes, workers and programs."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from gpupool.client.errors import GpupoolError

from tests.support.endless_kernels import (
    ENDS,
    check_stopped,
    end_under_endless_kernel,
    go_on,
    run_endless,
)
from tests.support.lease_ends import TAKEN, make_projects, take
from tests.support.pool_node import native_worker_is_built
from tests.support.pool_portal import PoolPortal
from tests.support.session_program import build
from tests.support.session_world import SessionWorld
from tests.support.two_nodes import PoolAndTwoNodes

SCALE = 0.4

pytestmark = pytest.mark.skipif(not native_worker_is_built(), reason="native parts not built")


#: Where the pool wants tokens.
Address = str


@pytest.fixture(scope="module")
def address() -> Address:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture(scope="module")
def world(address: Address) -> Iterator[SessionWorld]:
    options = (
        "--drain",
        "1s",
        "--notice",
        "1s",
        "--min-run",
        "0s",
        "--consolidate",
        "off",
        "--listen",
        address,
    )
    with (
        tempfile.TemporaryDirectory(prefix="gpe-") as folder,
        PoolAndTwoNodes(*options, scale=SCALE) as stack,
        PoolPortal(stack.endpoint, 5 * SCALE) as portal,
    ):
        world = SessionWorld(stack, portal, build(Path(folder)), Path(folder))
        make_projects(world)
        yield world
        for session in world.sessions:
            session.end(killed=True)


@pytest.fixture(autouse=True)
def nothing_is_left(world: SessionWorld) -> Iterator[None]:
    """A test that fails leaves its sessions, and their workers may be gone: the next one begins without them."""
    yield
    left, world.sessions = world.sessions, []
    for session in left:
        world.portal.drop(session.grant.lease_id)
        session.end(killed=True)
        with suppress(GpupoolError):
            world.portal(world.portal.pool.close_session(session.id, "exit"))


def check_the_others(world: SessionWorld) -> None:
    """They go on as if nothing had happened."""
    world.check_shares()
    for one in list(world.sessions):
        if one.attached:
            one.check_all()
        world.close(one, killed=False)
    assert not world.live_leases()


@pytest.mark.parametrize("how", ENDS)
def test_nothing_computes_when_the_lease_has_ended(world: SessionWorld, how: str) -> None:
    session = world.attach(400, movable=True)
    beside = world.attach(300)
    assert session is not None and beside is not None
    session.allocate(5000, 7)
    end_under_endless_kernel(world, session, how)
    check_the_others(world)


@pytest.mark.parametrize("how", TAKEN)
def test_nothing_computes_when_the_pool_has_taken_the_lease(
    world: SessionWorld, address: Address, how: str
) -> None:
    terms, _ = TAKEN[how]
    # On the same device, but for a drain, which takes all leases of a node.
    beside = world.attach(300, filters=(f"node={'a' if how == 'drain' else 'b'}",))
    session = world.attach(400, filters=("node=b",), **terms)
    assert session is not None and beside is not None
    session.allocate(5000, 7)
    run_endless(world, session)
    with ExitStack() as later:
        take(world, session, how, later, address)
        check_stopped(world, session, "fenced" if how == "no pool" else "parked")
    world.taken(session)
    if not beside.attached:  # without a pool everybody's lease ends
        go_on(world, beside)
    go_on(world, session, **{name: value for name, value in terms.items() if name != "duration_seconds"})
    check_the_others(world)
