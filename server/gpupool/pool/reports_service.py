"""The `Reports` service: what was used, and what was decided. Long looks run beside the event loop."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc

from gpupool.ledger import audit, usage
from gpupool.ledger.periods import milliseconds
from gpupool.ledger.reading import snapshot
from gpupool.pool.auth import current_identity, refuse, refuse_revoked, still_admitted
from gpupool.pool.deserved import deserved_milli, project_tree
from gpupool.pool.shell import PoolShell
from gpupool.pool.stats import present
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.proto.gpupool.v1 import pool_pb2_grpc
from gpupool.scheduler.fairshare.tree import ProjectTree

#: How far back `Stats` looks when nothing is said, seconds.
STATS_SECONDS: Final = 86_400.0
#: How many lines `Audit` answers with when nothing is said.
AUDIT_LINES: Final = 200
#: How often a follower is told of new lines, seconds.
FOLLOW_SECONDS: Final = 0.5
#: More rows than this are no report for people, and more than one message carries.
MAXIMUM_ROWS: Final = 100_000
_MAXIMUM_SECONDS = 100 * 366 * 86_400.0
#: Largest integer of a message's field.
_MAXIMUM_INTEGER = (1 << 63) - 1


class _BadReport(ValueError):
    """A field of a request is out of its bounds; `str()` is one sentence with the value."""


class ReportsService(pool_pb2_grpc.ReportsServicer):
    """Who is no administrator gets rows and lines of their own, and everybody's totals."""

    def __init__(self, pool: PoolShell) -> None:
        self._pool = pool

    async def Report(self, request: pb.ReportRequest, context: Any) -> pb.ReportAnswer:
        user = await self._only_user(request.user, context)
        try:
            selection = _selection(request, user)
        except _BadReport as error:
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "bad-request", str(error))
        tree = project_tree(self._pool.state)
        answer, too_much = await asyncio.to_thread(self._report, selection, tree, self._now_ms())
        if too_much:
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "bad-request", too_much)
        return answer

    async def Stats(self, request: pb.StatsRequest, context: Any) -> pb.StatsAnswer:
        seconds = request.seconds or STATS_SECONDS
        if not 0 < seconds <= _MAXIMUM_SECONDS:
            text = f"seconds {seconds:g} is not within 0..{_MAXIMUM_SECONDS:.0f}"
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "bad-request", text)
        answer = present(self._pool.state, self._pool.timers, self._pool.clock.now())
        now_ms = self._now_ms()
        await asyncio.to_thread(self._stats, answer, now_ms - math.ceil(seconds * 1000), now_ms)
        return answer

    async def Audit(self, request: pb.AuditRequest, context: Any) -> AsyncIterator[pb.JournalLine]:
        wanted = audit.Filter(
            request.from_unix,
            request.to_unix or None,
            await self._only_user(request.user, context),
            request.lease_id,
            request.session_id,
            request.kind,
            request.node,
        )
        if not (math.isfinite(request.from_unix) and math.isfinite(request.to_unix)):
            text = f"from {request.from_unix:g} to {request.to_unix:g} is no time"
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "bad-request", text)
        after, last = await asyncio.to_thread(self._bounds, wanted, request.limit or AUDIT_LINES)
        while True:
            lines = await asyncio.to_thread(self._page, wanted, after, None if request.follow else last)
            for line in lines:
                yield _line(line)
                after = line.number
            if len(lines) == audit.PAGE:
                continue
            if not request.follow or self._pool.closing:
                return
            await asyncio.sleep(FOLLOW_SECONDS)
            if not still_admitted(self._pool.ledger):
                await refuse_revoked(context)

    # ---- helpers

    async def _only_user(self, wanted: str, context: Any) -> str:
        """The user that an answer is cut down to; empty: it is not."""
        identity = current_identity()
        if wanted and not identity.may_act_for(wanted):
            text = f"{identity.name} may not see what {wanted[:40]!r} did; leave the user out for your own"
            await refuse(context, grpc.StatusCode.PERMISSION_DENIED, "forbidden", text)
        return wanted or identity.viewer or ""

    def _now_ms(self) -> int:
        return milliseconds(self._pool.clock.to_unix(self._pool.clock.now()))

    def _report(
        self, selection: usage.Selection, tree: ProjectTree, now_ms: int
    ) -> tuple[pb.ReportAnswer, str]:
        """(the answer, why there is none)."""
        with snapshot(self._pool.ledger.engine) as connection:
            rows = usage.used(connection, selection, now_ms)
            everything = usage.Selection(selection.from_ms, selection.to_ms)
            total, _ = usage.total(usage.used(connection, everything, now_ms))
            waiting, _ = usage.total(usage.waited(connection, everything, now_ms))
            periods = usage.Selection(
                selection.from_ms,
                selection.to_ms,
                tuple(name for name in selection.by if name in usage.PERIODS),
            )
            there = {row.period_ms: row.milli_ms for row in usage.there(connection, periods, now_ms)}
            capacity = (
                _by_key(usage.there(connection, selection, now_ms)) if _of_devices(selection.by) else {}
            )
            waits = _by_key(usage.waited(connection, selection, now_ms)) if _of_people(selection.by) else {}
        found = _by_key(rows)
        keys = sorted(found.keys() | capacity.keys() | waits.keys())
        if len(keys) > MAXIMUM_ROWS:
            text = f"these are {len(keys)} rows, more than {MAXIMUM_ROWS}; ask for a shorter time or fewer groups"
            return pb.ReportAnswer(), text
        largest = max([0, total, *(row.mib_ms for row in rows)])
        if largest > _MAXIMUM_INTEGER:
            return pb.ReportAnswer(), f"{largest} is more than an answer holds; ask for a shorter time"
        answer = pb.ReportAnswer(
            from_unix=selection.from_ms / 1000,
            to_unix=selection.to_ms / 1000,
            capacity_milli_ms=sum(there.values()),
            total_milli_ms=total,
            total_waiting_milli_ms=waiting,
        )
        for key in keys:
            user, project, device, node, period_ms = key
            row = found.get(key, usage.UsageRow())
            answer.rows.add(
                user=user,
                project=project,
                device=device,
                node=node,
                from_unix=period_ms / 1000,
                milli_ms=row.milli_ms,
                mib_ms=row.mib_ms,
                leases=row.leases,
                capacity_milli_ms=capacity[key].milli_ms if key in capacity else 0,
                waiting_milli_ms=waits[key].milli_ms if key in waits else 0,
                deserved_milli_ms=_deserved(selection, tree, key, there, now_ms),
            )
        return answer, ""

    def _stats(self, answer: pb.StatsAnswer, from_ms: int, to_ms: int) -> None:
        """Adds what was in that time."""
        selection = usage.Selection(from_ms, to_ms)
        with snapshot(self._pool.ledger.engine) as connection:
            answer.milli_ms = usage.total(usage.used(connection, selection, to_ms))[0]
            answer.capacity_milli_ms = usage.total(usage.there(connection, selection, to_ms))[0]
            answer.waiting_milli_ms = usage.total(usage.waited(connection, selection, to_ms))[0]
            made = audit.decisions(connection, from_ms / 1000, to_ms / 1000)
        answer.from_unix, answer.to_unix = from_ms / 1000, to_ms / 1000
        answer.granted, answer.queued, answer.cancelled = made.granted, made.queued, made.cancelled
        answer.refused.update(made.refused)
        answer.ended.update(made.ended)
        answer.wait_p50_seconds = _or_unknown(made.wait(0.5))
        answer.wait_p99_seconds = _or_unknown(made.wait(0.99))
        answer.wait_longest_seconds = _or_unknown(made.wait(1.0))
        ended = sum(made.ended.values())
        answer.held_mean_seconds = made.held_seconds / ended if ended else -1.0

    def _bounds(self, wanted: audit.Filter, limit: int) -> tuple[int, int]:
        """(the number that the answer comes after, the last number of the journal)."""
        with snapshot(self._pool.ledger.engine) as connection:
            last = audit.last_number(connection)
            return (0 if limit < 0 else audit.number_before(connection, wanted, limit)), last

    def _page(self, wanted: audit.Filter, after: int, upto: int | None) -> list[Any]:
        with snapshot(self._pool.ledger.engine) as connection:
            return list(audit.page(connection, wanted, after, upto))


def _selection(request: pb.ReportRequest, user: str) -> usage.Selection:
    for name, value in (("from", request.from_unix), ("to", request.to_unix)):
        if not 0 <= value <= 1e11:
            raise _BadReport(f"{name}_unix {value:g} is no time in seconds since 1970")
    if not request.from_unix < request.to_unix:
        raise _BadReport(
            f"the time asked for ends ({request.to_unix:g}) before or when it begins ({request.from_unix:g})"
        )
    by = tuple(dict.fromkeys(request.by))
    unknown = [name for name in by if name not in usage.GROUPS]
    if unknown:
        raise _BadReport(
            f"{unknown[0][:40]!r} is nothing to group by; write some of {', '.join(usage.GROUPS)}"
        )
    if "hour" in by and "day" in by:
        raise _BadReport("rows are by hour or by day, not by both")
    return usage.Selection(
        milliseconds(request.from_unix), milliseconds(request.to_unix), by, user, request.project.strip("/")
    )


def _deserved(
    selection: usage.Selection,
    tree: ProjectTree,
    key: tuple[str, str, str, str, int],
    there: dict[int, int],
    now_ms: int,
) -> int:
    """What the project of a row deserved of the capacity that was there in its time, on the average."""
    if not _of_projects(selection.by):
        return 0
    period_ms = key[4]
    since = max(selection.from_ms, period_ms)
    until = min(selection.to_ms, now_ms)
    if selection.period:
        until = min(until, period_ms + usage.PERIODS[selection.period])
    if until <= since:
        return 0
    average = there.get(period_ms, 0) // (until - since)
    return deserved_milli(tree, key[1], average) * (until - since)


def _of_devices(by: tuple[str, ...]) -> bool:
    return not {"user", "project"} & set(by)


def _of_people(by: tuple[str, ...]) -> bool:
    return not {"device", "node"} & set(by)


def _of_projects(by: tuple[str, ...]) -> bool:
    return "project" in by and set(by) <= {"project", *usage.PERIODS}


def _by_key(rows: list[usage.UsageRow]) -> dict[tuple[str, str, str, str, int], usage.UsageRow]:
    return {row.key: row for row in rows}


def _or_unknown(value: float | None) -> float:
    return -1.0 if value is None else value


def _line(row: Any) -> pb.JournalLine:
    return pb.JournalLine(
        number=row.number,
        at_unix=row.at_unix,
        kind=row.kind,
        user=row.user,
        lease_id=row.lease_id,
        session_id=row.session_id,
        node=row.node,
        explanation=row.explanation,
        data_json=json.dumps(row.data, sort_keys=True),
    )
