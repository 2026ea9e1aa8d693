"""A usage report, put together from the ledger's sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from sqlalchemy import Connection

from gpupool.ledger import usage
from gpupool.ledger.usage import Selection, TooLargeError, UsageRow
from gpupool.pool.reporting.entitlement import capacity_times, deserved_milli_ms
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.scheduler.fairshare.tree import ProjectTree

#: Largest integer of a message's field.
_MAXIMUM_INTEGER: Final = (1 << 63) - 1

Key = tuple[str, str, str, str, int]
#: Where the value of a group is in a key.
_PLACES: Final = {"user": 0, "project": 1, "device": 2, "node": 3, "hour": 4, "day": 4}


def usage_report(
    connection: Connection, selection: Selection, tree: ProjectTree, now_ms: int
) -> pb.ReportAnswer:
    """What was used, with what there was beside it where the rows can be compared with that.

    Rows by device, node and time say what there was to lend; rows by user, project and time what was waited for; rows
    by project and time what the project deserved. There they also stand for who used nothing.

    Raises:
        TooLargeError: it has more rows, or larger numbers, than an answer holds.
    """
    by = set(selection.by)
    everything = Selection(selection.from_ms, selection.to_ms)
    used = _by_key(usage.used(connection, selection, now_ms))
    total, _ = usage.total(usage.used(connection, everything, now_ms))
    waiting, _ = usage.total(usage.waited(connection, everything, now_ms))
    steps = usage.capacity_steps(connection, selection.from_ms, selection.to_ms, now_ms)
    there = waits = _by_key([])
    if not by & {"user", "project"}:
        there = _by_key(usage.there(connection, selection, now_ms))
    if not by & {"device", "node"}:
        waits = _by_key(usage.waited(connection, selection, now_ms))
    deserved: Mapping[Key, int] = {}
    if "project" in by and by <= {"project", *usage.PERIODS}:
        # A project that is gone, or has others below it now, deserves nothing beside them.
        leaves = [path for path in tree.leaves if _is_asked(path, selection.project)]
        times = capacity_times(steps, selection.period)
        if selection.user:
            known = set(leaves)
            wanted = {(key[1], key[4]) for key in used.keys() | waits.keys() if key[1] in known}
        else:
            usage.require_few(len(leaves) * len(times))
            wanted = {(path, period_ms) for path in leaves for period_ms in times}
        deserved = _deserved(tree, wanted, times)
    keys = sorted(used.keys() | there.keys() | waits.keys())
    if not selection.user:
        keys = sorted({*keys, *(key for key, amount in deserved.items() if amount)})
    usage.require_few(len(keys))
    largest = max([0, total, *(row.mib_ms for row in used.values()), *deserved.values()])
    if largest > _MAXIMUM_INTEGER:
        raise TooLargeError(f"{largest} is more than an answer holds; ask for a shorter time")
    places = [_PLACES[name] for name in selection.by]
    keys.sort(key=lambda key: [key[place] for place in places])
    answer = pb.ReportAnswer(
        from_unix=selection.from_ms / 1000,
        to_unix=selection.to_ms / 1000,
        capacity_milli_ms=sum(step.milli * (step.until - step.since) for step in steps),
        total_milli_ms=total,
        total_waiting_milli_ms=waiting,
    )
    nothing = UsageRow()
    for key in keys:
        user, project, device, node, period_ms = key
        row = used.get(key, nothing)
        answer.rows.add(
            user=user,
            project=project,
            device=device,
            node=node,
            from_unix=period_ms / 1000,
            milli_ms=row.milli_ms,
            mib_ms=row.mib_ms,
            leases=row.leases,
            capacity_milli_ms=there.get(key, nothing).milli_ms,
            waiting_milli_ms=waits.get(key, nothing).milli_ms,
            deserved_milli_ms=deserved.get(key, 0),
        )
    return answer


def _deserved(
    tree: ProjectTree, wanted: Iterable[tuple[str, int]], times: Mapping[int, Counter[int]]
) -> dict[Key, int]:
    """What projects deserved in periods.

    By capacity first: what all projects deserve of one is computed at once, and remembered until the next is asked for.
    """
    projects: dict[int, list[str]] = {}
    for path, period_ms in wanted:
        projects.setdefault(period_ms, []).append(path)
    periods: dict[int, list[int]] = {}
    for period_ms in projects:
        for capacity in times.get(period_ms, ()):
            periods.setdefault(capacity, []).append(period_ms)
    found: Counter[Key] = Counter()
    for capacity in sorted(periods):
        for period_ms in periods[capacity]:
            lasted = times[period_ms][capacity]
            for path in projects[period_ms]:
                found["", path, "", "", period_ms] += deserved_milli_ms(tree, path, {capacity: lasted})
    return found


def _is_asked(path: str, wanted: str) -> bool:
    return not wanted or path == wanted or path.startswith(f"{wanted}/")


def _by_key(rows: list[UsageRow]) -> dict[Key, UsageRow]:
    return {row.key: row for row in rows}
