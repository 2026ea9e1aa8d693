"""The `Reports` service: what was used, and what was decided. Long looks run beside the event loop."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc

from gpupool.ledger import audit, usage
from gpupool.ledger.periods import milliseconds
from gpupool.ledger.snapshot import snapshot
from gpupool.pool.access.auth import current_identity, refuse, refuse_revoked, still_admitted
from gpupool.pool.api.looks import Looks, Turns
from gpupool.pool.lifecycle.shell import PoolShell
from gpupool.pool.projects.project_rules import project_tree
from gpupool.pool.reporting.stats import present
from gpupool.pool.reporting.usage_report import usage_report
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.proto.gpupool.v1 import pool_pb2_grpc
from gpupool.proto.sentences import to_message
from gpupool.scheduler.fairshare.tree import ProjectTree
from gpupool.sentences import Sentence

#: How far back `Stats` looks when nothing is said, seconds.
STATS_SECONDS: Final = 86_400.0
#: How many lines `Audit` answers with when nothing is said.
AUDIT_LINES: Final = 200
#: How often a follower is told of new lines, seconds.
FOLLOW_SECONDS: Final = 0.5
#: `Stats` reads every decision of its time.
_MAXIMUM_SECONDS: Final = 366 * 86_400.0
#: Looks at the ledger at a time; others wait. Fewer than PostgreSQL's readers have connections: admitting a caller needs
#: one too, and would hold up the event loop until one is free.
_LOOKS_AT_ONCE: Final = 4

LOOKS_OF_ONE_USER: Final = 3
#: Followers of the journal that one user may have; each looks at it twice a second.
_MOST_FOLLOWERS: Final = 16


class _BadReportError(ValueError):
    """A field of a request is out of its bounds; `str()` is one sentence with the value."""


class ReportsService(pool_pb2_grpc.ReportsServicer):
    """Users who are not administrators get their own rows and lines, and everybody's totals."""

    def __init__(self, pool: PoolShell) -> None:
        self._pool = pool
        self._looks = Looks(_LOOKS_AT_ONCE, LOOKS_OF_ONE_USER, "ledger look")
        self._turns = Turns()
        self._followers: Counter[str] = Counter()

    async def Report(self, request: pb.ReportRequest, context: Any) -> pb.ReportAnswer:
        user = await self._only_user(request.user, context)
        try:
            selection = _selection(request, user)
            tree = project_tree(self._pool.state)
            return await self._looks.make(context, self._report, selection, tree, self._now_ms())
        except (_BadReportError, usage.TooLargeError) as error:
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "bad-request", str(error))

    async def Stats(self, request: pb.StatsRequest, context: Any) -> pb.StatsAnswer:
        seconds = request.seconds or STATS_SECONDS
        if not 0 < seconds <= _MAXIMUM_SECONDS:
            text = f"seconds {seconds:g} is not within 0..{_MAXIMUM_SECONDS:.0f} (366 days)"
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "bad-request", text)
        pool, user = self._pool, current_identity().name
        answer = await self._turns.make(
            user, context, lambda: present(pool.state, pool.timers, pool.clock.now())
        )
        now_ms = self._now_ms()
        await self._looks.make(context, self._stats, answer, now_ms - math.ceil(seconds * 1000), now_ms)
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
        limit = request.limit or AUDIT_LINES
        if not request.follow:
            async for line in self._lines(wanted, limit, context, follow=False):
                yield line
            return
        caller = current_identity().name
        if self._followers[caller] >= _MOST_FOLLOWERS:
            text = f"{caller} follows the journal {_MOST_FOLLOWERS} times already"
            await refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "busy", text)
        self._followers[caller] += 1
        try:
            async for line in self._lines(wanted, limit, context, follow=True):
                yield line
        finally:
            self._followers[caller] -= 1
            if not self._followers[caller]:
                del self._followers[caller]

    async def _lines(
        self, wanted: audit.Filter, limit: int, context: Any, *, follow: bool
    ) -> AsyncIterator[pb.JournalLine]:
        after, last = await self._looks.make(context, self._bounds, wanted, limit)
        while True:
            lines, upto = await self._looks.make(context, self._page, wanted, after, None if follow else last)
            for line in lines:
                yield journal_line(line)
            after = max(after, upto)
            if len(lines) == audit.PAGE:
                continue
            if not follow or self._pool.closing:
                return
            await asyncio.sleep(FOLLOW_SECONDS)
            if not await still_admitted():
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

    def _report(self, selection: usage.Selection, tree: ProjectTree, now_ms: int) -> pb.ReportAnswer:
        with snapshot(self._pool.ledger.engine) as connection:
            return usage_report(connection, selection, tree, now_ms)

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

    def _page(self, wanted: audit.Filter, after: int, upto: int | None) -> tuple[list[Any], int]:
        """(the next lines, the number up to which no other one is wanted: a follower reads none of them again)."""
        with snapshot(self._pool.ledger.engine) as connection:
            lines = list(audit.page(connection, wanted, after, upto))
            return lines, lines[-1].number if len(lines) == audit.PAGE else audit.last_number(connection)


def _selection(request: pb.ReportRequest, user: str) -> usage.Selection:
    for name, value in (("from", request.from_unix), ("to", request.to_unix)):
        if not 0 <= value <= 1e11:
            raise _BadReportError(f"{name}_unix {value:g} is no time in seconds since 1970")
    if not request.from_unix < request.to_unix:
        raise _BadReportError(
            f"the time asked for ends ({request.to_unix:g}) before or when it begins ({request.from_unix:g})"
        )
    by = tuple(dict.fromkeys(request.by))
    unknown = [name for name in by if name not in usage.GROUPS]
    if unknown:
        raise _BadReportError(
            f"{unknown[0][:40]!r} is nothing to group by; write some of {', '.join(usage.GROUPS)}"
        )
    if "hour" in by and "day" in by:
        raise _BadReportError("rows are by hour or by day, not by both")
    return usage.Selection(
        milliseconds(request.from_unix), milliseconds(request.to_unix), by, user, request.project.strip("/")
    )


def _or_unknown(value: float | None) -> float:
    return -1.0 if value is None else value


def journal_line(row: Any) -> pb.JournalLine:
    """A row of the journal as a message."""
    return pb.JournalLine(
        number=row.number,
        at_unix=row.at_unix,
        kind=row.kind,
        user=row.user,
        lease_id=row.lease_id,
        session_id=row.session_id,
        node=row.node,
        said=to_message(Sentence.from_json(row.sentence)),
        data_json=json.dumps(row.data, sort_keys=True),
    )
