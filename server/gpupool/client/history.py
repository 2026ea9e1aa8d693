"""How much was held and used over time, from the pool's `History` service."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from gpupool.client.services import Services
from gpupool.proto import pool_pb2

#: A look at 90 days of a busy pool takes its time, seconds.
SERIES_SECONDS: Final = 60.0
#: What a series may be of, and what its members may be.
VIEWS: Final = ("cluster", "node", "device", "user", "project", "client")
MEMBERS: Final = VIEWS[1:]


@dataclass(frozen=True, slots=True)
class Amounts:
    """Sums over a time, in milli-GPU or MiB times milliseconds, and bytes; `covered_ms` 0: nobody looked.

    Attributes:
        capacity_milli_ms: what devices had; held_milli_ms: what leases held; used_milli_ms: device time as measured.
        idle_milli_ms: held and not used, minute by minute and session by session.
        memory_mib_ms: memory of sessions on devices, parked ones included.
        waiting_request_ms: how many requests waited, times milliseconds; waiting_milli_ms: what they waited for.
    """

    covered_ms: int
    capacity_milli_ms: int
    capacity_mib_ms: int
    held_milli_ms: int
    held_mib_ms: int
    used_milli_ms: int
    idle_milli_ms: int
    memory_mib_ms: int
    to_device_bytes: int
    from_device_bytes: int
    waiting_milli_ms: int
    waiting_request_ms: int

    def mean(self, name: str) -> float | None:
        """The sum `name` over the time that was looked at: milli-GPU, MiB or asks; None: nobody looked."""
        return getattr(self, name) / self.covered_ms if self.covered_ms else None

    def per_second(self, name: str) -> float | None:
        """Bytes per second; None: nobody looked."""
        mean = self.mean(name)
        return None if mean is None else mean * 1000


@dataclass(frozen=True, slots=True)
class Point:
    """`from_unix`: its beginning."""

    from_unix: float
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class Member:
    """A part of what the series is of.

    `name` is ``(others)`` for those whose names are not shown; `user` and `label` are of a client.
    """

    name: str
    user: str
    label: str
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class Series:
    """Points one after the other, each `step_seconds` long."""

    from_unix: float
    to_unix: float
    step_seconds: float
    points: tuple[Point, ...]
    members: tuple[Member, ...]
    total: Amounts


class History:
    """Calls of the `History` service over a pool's open connection."""

    def __init__(self, pool: Services) -> None:
        self._pool = pool

    async def series(
        self,
        view: str,
        name: str = "",
        *,
        from_unix: float,
        to_unix: float = 0.0,
        points: int = 0,
        by: str = "",
        viewer: str = "",
    ) -> Series:
        """What was held and used between two moments.

        Args:
            view: one of `VIEWS`.
            name: of what; empty: of all together.
            from_unix: the beginning, seconds since 1970.
            to_unix: 0: now.
            points: at most so many; 0: 200.
            by: one of `MEMBERS`; empty: no members.
            viewer: as this user would see it; only administrators may name another than themselves.

        Raises:
            PoolRefusedError: a field is wrong, or the viewer may not see it.
            PoolUnavailableError: the pool cannot be reached.
        """
        message = pool_pb2.SeriesRequest(
            view=view, name=name, from_unix=from_unix, to_unix=to_unix, points=points, by=by, viewer=viewer
        )
        answer = await self._pool.call("History", "Series", message, SERIES_SECONDS)
        return Series(
            answer.from_unix,
            answer.to_unix,
            answer.step_seconds,
            tuple(Point(point.from_unix, _amounts(point.amounts)) for point in answer.points),
            tuple(Member(x.name, x.user, x.label, _amounts(x.amounts)) for x in answer.members),
            _amounts(answer.total),
        )


def _amounts(message: Any) -> Amounts:
    return Amounts(*(getattr(message, field.name) for field in fields(Amounts)))
