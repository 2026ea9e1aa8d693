"""What was used and what was decided, from the pool's `Reports` service."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpupool.client.pool import PoolClient
from gpupool.proto import pool_pb2
from gpupool.proto.sentences import from_message
from gpupool.sentences import NOTHING, Sentence

#: Adding up a year of a busy pool takes its time, seconds.
REPORT_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class UsageRow:
    """Sums of one group; what is not grouped by is empty. All in milliseconds times milli-GPU or MiB.

    Attributes:
        from_unix: beginning of the hour or day; 0: not grouped by one.
        milli_ms: what leases held; mib_ms: the same of memory.
        leases: how many there were in it; one on several nodes counts on each.
        deserved_milli_ms: what the project deserved meanwhile, in rows by project and time; else 0.
        capacity_milli_ms: what devices had, in rows by device, node and time; else 0.
        waiting_milli_ms: what requests waited for, in rows by user, project and time; else 0.
    """

    user: str
    project: str
    device: str
    node: str
    from_unix: float
    milli_ms: int
    mib_ms: int
    leases: int
    deserved_milli_ms: int = 0
    capacity_milli_ms: int = 0
    waiting_milli_ms: int = 0


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Rows, and what everybody had together in that time."""

    from_unix: float
    to_unix: float
    by: tuple[str, ...]
    rows: tuple[UsageRow, ...]
    capacity_milli_ms: int
    total_milli_ms: int
    total_waiting_milli_ms: int


@dataclass(frozen=True, slots=True)
class PoolStats:
    """The pool now, and in the time from `from_unix` to `to_unix`; None: not known, because nothing happened.

    Attributes:
        capacity_milli: of the devices that nodes offer; free_milli: of those that take new shares.
        milli_ms: what leases held in that time; capacity_milli_ms: what devices had; waiting_milli_ms: what requests
            waited for.
        queued: requests that were not served at once.
        wait_p50_seconds: what half of the granted requests had waited at most, by nearest rank.
    """

    from_unix: float
    to_unix: float
    capacity_milli: int
    held_milli: int
    free_milli: int
    leases: int
    parked_sessions: int
    waiting_requests: int
    waiting_milli: int
    oldest_wait_seconds: float
    milli_ms: int
    capacity_milli_ms: int
    waiting_milli_ms: int
    granted: int
    queued: int
    cancelled: int
    refused: Mapping[str, int]
    ended: Mapping[str, int]
    wait_p50_seconds: float | None
    wait_p99_seconds: float | None
    wait_longest_seconds: float | None
    held_mean_seconds: float | None


@dataclass(frozen=True, slots=True)
class JournalLine:
    """One line of the pool's journal."""

    number: int
    at_unix: float
    kind: str
    user: str
    lease_id: str
    session_id: str
    node: str
    explanation: str
    data: Mapping[str, Any] = field(default_factory=dict)
    said: Sentence = NOTHING


class Reports:
    """Calls of the `Reports` service over a pool's open connection."""

    def __init__(self, pool: PoolClient) -> None:
        self._pool = pool

    async def usage(
        self, from_unix: float, to_unix: float, by: Sequence[str] = (), *, user: str = "", project: str = ""
    ) -> UsageReport:
        """What was used between two moments, by some of ``user project device node hour day``.

        Args:
            from_unix: the beginning, seconds since 1970.
            to_unix: the end.
            by: groups, each one of those words; empty: one row for all.
            user: only of this one; empty: of all.
            project: only of this one and those below it; empty: of all.

        Raises:
            PoolRefusedError: the time or a group makes no sense, or another's use is asked for.
        """
        message = pool_pb2.ReportRequest(
            from_unix=from_unix, to_unix=to_unix, by=list(by), user=user, project=project
        )
        answer = await self._pool.call("Reports", "Report", message, REPORT_SECONDS)
        return UsageReport(
            answer.from_unix,
            answer.to_unix,
            tuple(by),
            tuple(_row(row) for row in answer.rows),
            answer.capacity_milli_ms,
            answer.total_milli_ms,
            answer.total_waiting_milli_ms,
        )

    async def stats(self, seconds: float = 0.0) -> PoolStats:
        """The pool in figures, now and the last so many seconds (0: a day)."""
        message = pool_pb2.StatsRequest(seconds=seconds)
        answer = await self._pool.call("Reports", "Stats", message, REPORT_SECONDS)
        names = (name for name in PoolStats.__dataclass_fields__)
        values = {name: getattr(answer, name) for name in names}
        values["refused"], values["ended"] = dict(answer.refused), dict(answer.ended)
        for name in ("wait_p50_seconds", "wait_p99_seconds", "wait_longest_seconds", "held_mean_seconds"):
            values[name] = None if values[name] < 0 else values[name]
        return PoolStats(**values)

    async def audit(
        self,
        *,
        from_unix: float = 0.0,
        to_unix: float = 0.0,
        user: str = "",
        lease_id: str = "",
        session_id: str = "",
        kind: str = "",
        node: str = "",
        limit: int = 0,
        follow: bool = False,
    ) -> AsyncIterator[JournalLine]:
        """Lines of the journal, oldest first: the latest ``limit`` (0: 200; below 0: all) that fit what is not empty.

        With ``follow`` it goes on with lines as they are written, until the caller stops.
        """
        message = pool_pb2.AuditRequest(
            from_unix=from_unix,
            to_unix=to_unix,
            user=user,
            lease_id=lease_id,
            session_id=session_id,
            kind=kind,
            node=node,
            limit=limit,
            follow=follow,
        )
        async for line in self._pool.stream("Reports", "Audit", message):
            said = from_message(line.said)
            yield JournalLine(
                line.number,
                line.at_unix,
                line.kind,
                line.user,
                line.lease_id,
                line.session_id,
                line.node,
                str(said),
                json.loads(line.data_json or "{}"),
                said,
            )

    async def ever_leased(self, lease_id: str) -> bool:
        """Whether the journal knows a lease, of those that the caller may see."""
        return bool([line async for line in self.audit(lease_id=lease_id, limit=1)])


def _row(row: Any) -> UsageRow:
    return UsageRow(**{name: getattr(row, name) for name in UsageRow.__dataclass_fields__})
