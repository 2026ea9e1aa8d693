"""What the indexes of a state must say, worked out by walks over its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gpupool.model.index import Index, Moments, Subset
from gpupool.model.state import State


def grouped(records: Iterable[Any], name_of: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    """The records by name, in their order; those without one left out."""
    found: dict[Any, list[Any]] = {}
    for record in records:
        name = name_of(record)
        if name is not None:
            found.setdefault(name, []).append(record)
    return found


def said(index: Index[Any, Any]) -> dict[Any, list[Any]]:
    """All that an index says."""
    found = {name: index.of(name) for name in index.names()}
    assert {name: index.count(name) for name in found} == {name: len(rows) for name, rows in found.items()}
    return found


def check_moments(moments: Moments[Any], records: Iterable[Any], moment_of: Callable[[Any], Any]) -> None:
    timed = [record for record in records if moment_of(record) is not None]
    for moment in {-1e9, 1e9, *map(moment_of, timed)}:
        assert moments.before(moment) == [x for x in timed if moment_of(x) < moment], moment
        assert moments.until(moment) == [x for x in timed if moment_of(x) <= moment], moment


def check_index(state: State) -> None:
    """Raises AssertionError where an index says something else than the records, the order included."""
    leases, sessions, requests = (
        list(table.values())
        for table in (state.leases, state.sessions, state.requests)  # type: ignore[attr-defined]
    )
    index = state.index

    def check(one: Index[Any, Any], records: list[Any], name_of: Callable[[Any], Any]) -> None:
        assert said(one) == grouped(records, name_of)

    def check_some(one: Subset[Any], expected: list[Any]) -> None:
        assert (one.records(), len(one)) == (expected, len(expected))

    held = [x for x in leases if x.state in ("starting", "attached", "releasing")]
    check_some(index.holding, held)
    check(index.holding_of_node, held, lambda x: x.shares[0].device_id.rpartition("/")[0])
    check(index.holding_of_user, held, lambda x: x.user)
    check_some(index.noticed, [x for x in leases if x.notice])
    check(index.leases_of_gang, [x for x in leases if x.gang], lambda x: x.gang)
    check(index.leases_of_session, leases, lambda x: x.session_id)
    check_moments(index.ended, leases, lambda x: x.ended_at)
    check(index.sessions_of_gang, [x for x in sessions if x.gang], lambda x: x.gang)
    check(index.devices_of_node, list(state.devices.values()), lambda x: x.node)
    check(index.sessions_of_user, sessions, lambda x: x.user)
    check(index.sessions_of_node, sessions, lambda x: x.node)
    check_some(index.unattached, [x for x in sessions if x.state == "parked" or x.state == "lost"])
    check_some(index.moving_memory, [x for x in sessions if x.parking or x.park_failure])
    to_disk = [x for x in sessions if x.place == "image" or (x.parking and x.parking.place == "image")]
    check(index.on_disk, to_disk, lambda x: x.node)
    check_some(index.with_place, [x for x in sessions if x.kept_place])
    check_moments(index.closed, sessions, lambda x: x.closed_at)
    owed = [x for x in requests if x.decision and (x.decision.reason == "notice" or x.decision.evict)]
    check_some(index.owed, owed)
    check_some(index.wanting, [x for x in requests if x.wants])
    check(index.requests_of_session, [x for x in requests if x.session_id], lambda x: x.session_id)
    check_moments(index.give_up, requests, lambda x: x.give_up_at)
    check(index.accounts, list(state.accounts.values()), lambda x: x.id.split("/", 1)[0])
    check_moments(
        index.user_accounts, [x for x in state.accounts.values() if x.id[:5] == "user/"], lambda x: x.as_of
    )
