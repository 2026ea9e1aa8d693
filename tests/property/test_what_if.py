"""What is said to a request that is not made is what is said when it is made; and saying it changes nothing."""

from __future__ import annotations

from typing import Any

from gpupool.model import events
from gpupool.model.instructions import TellGranted, TellRefused
from gpupool.model.state import key_of
from gpupool.pool.lifecycle.what_if import consider
from gpupool.scheduler.model import Outcome, Quota
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.pool_world import PoolWorld

requests = st.fixed_dictionaries(
    {
        "user": st.sampled_from(["ann", "bob"]),
        "milli": st.sampled_from([100, 300, 500, 1000]),
        "count": st.sampled_from([1, 1, 2, 3]),
        "kind": st.sampled_from(["interactive", "guaranteed", "preemptible"]),
        "nodes": st.sampled_from(["auto", "one", "any"]),
    }
)
steps = st.lists(
    st.one_of(
        requests.map(lambda request: ("ask", request)),
        st.integers(0, 5).map(lambda number: ("release", number)),
        st.sampled_from([1.0, 70.0]).map(lambda seconds: ("wait", seconds)),
    ),
    max_size=8,
)


def records(world: PoolWorld) -> list[dict[str, Any]]:
    state = world.machine.state
    tables = (
        state.requests,
        state.leases,
        state.sessions,
        state.devices,
        state.nodes,
        state.keys,
        state.accounts,
    )
    return [dict(table) for table in tables]


def check(world: PoolWorld, request: dict[str, Any]) -> None:
    event = events.Requested(world.now, key="the request", wait=None, mib=None, **request)
    before = records(world)
    expected = consider(world.machine, event)
    assert records(world) == before
    assert all(not table.changes() for table in (world.machine.state.requests, world.machine.state.leases))
    again = consider(world.machine, event)
    assert (again.outcome, again.said) == (expected.outcome, expected.said)
    done = world.handle(event)
    state = world.machine.state
    lease = state.leases.get(state.keys.get(key_of(event.user, event.key), ""))
    if expected.outcome is Outcome.GRANT:
        assert lease is not None
        placed = tuple(share for part in state.lease_parts(lease) for share in part.shares)
        assert placed == expected.shares
    elif expected.outcome is Outcome.QUEUE:
        waiting = state.requests[key_of(event.user, event.key)]
        assert expected.request is not None
        assert (waiting.place, waiting.said) == (expected.request.place, expected.said)
    else:
        said = [item for item in done if isinstance(item, TellRefused)]
        assert (said[0].reason, said[0].said) == (expected.reason, expected.said)


@settings(max_examples=40, deadline=None)
@given(steps, requests)
def test_what_would_be_said_is_what_is_said(story: list[tuple[str, Any]], wish: dict[str, Any]) -> None:
    world = PoolWorld(nodes={"node1": 2, "node2": 1}, quotas={"bob": Quota(milli=1500)})
    world.connect("node1")
    world.connect("node2")
    world.project("lab/a", 1000)
    world.project("lab/b", 2000)
    for number, (what, value) in enumerate(story):
        match what:
            case "ask":
                project = "lab/a" if value["user"] == "ann" else "lab/b"
                world.request(f"k{number}", wait=None, project=project, **value)
                world.settle()
            case "release":
                held = [told.lease_id for told in world.told if isinstance(told, TellGranted)]
                if held:
                    world.release(held[value % len(held)])
                    world.settle()
            case _:
                world.advance(value)
    check(world, {**wish, "project": "lab/a" if wish["user"] == "ann" else "lab/b"})
