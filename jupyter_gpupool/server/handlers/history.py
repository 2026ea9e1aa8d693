"""``GET api/history``: what was held and used over time, for the dashboard."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final, cast

from jupyter_server.auth.decorator import authorized
from tornado import web

from jupyter_gpupool.server.handlers.administration import may_administer
from jupyter_gpupool.server.handlers.asked import BadRequestError
from jupyter_gpupool.server.handlers.base import GpupoolHandler
from jupyter_gpupool.server.rest.dashboard import Columns, History, Member, Series, Sums

if TYPE_CHECKING:
    from gpupool.client import history
    from gpupool.client.history import Amounts

#: How far back a series goes when nothing is said, seconds.
_BACK_SECONDS: Final = 3600.0
_POINTS: Final = 240
_MOST_SECONDS: Final = 1e11
_GPU_HOUR_MILLI_MS: Final = 3_600_000_000
_GIB_HOUR_MIB_MS: Final = 1024 * 3_600_000
#: Columns that are means over a point, and of what.
_MEANS: Final = {
    "capacity_milli": "capacity_milli_ms",
    "held_milli": "held_milli_ms",
    "used_milli": "used_milli_ms",
    "idle_milli": "idle_milli_ms",
    "capacity_mib": "capacity_mib_ms",
    "held_mib": "held_mib_ms",
    "memory_mib": "memory_mib_ms",
    "waiting_milli": "waiting_milli_ms",
    "waiting": "waiting_request_ms",
}


class HistoryHandler(GpupoolHandler):
    """``view``, ``name``, ``from``, ``to`` (Unix seconds), ``points``, ``by``: as in ``gpupool report history``.

    A ``from`` below 0 is counted from now: a browser's clock may be wrong.
    """

    _track_activity = False

    @web.authenticated
    @authorized
    async def get(self) -> None:
        from gpupool.client.history import History as HistoryClient

        since = self._number("from", -_BACK_SECONDS, least=-_MOST_SECONDS)
        admin = await may_administer(self.extension)
        series = await HistoryClient((await self.extension.sessions()).pool).series(
            self.get_query_argument("view", "cluster"),
            self.get_query_argument("name", ""),
            from_unix=time.time() + since if since < 0 else since,
            to_unix=self._number("to", 0.0),
            points=int(self._number("points", _POINTS, most=2000)),
            by=self.get_query_argument("by", ""),
            # The server's own identity may see more than its user.
            viewer="" if admin else await self.extension.pool_user(),
        )
        answer: History = {**series_view(series), "admin": admin}
        self.answer(answer)

    def _number(self, name: str, default: float, *, least: float = 0.0, most: float = _MOST_SECONDS) -> float:
        raw = self.get_query_argument(name, "")
        if not raw:
            return default
        try:
            value = float(raw)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise BadRequestError(
                f"{name} must be a number within {least:.0f}..{most:.0f}, {raw[:40]!r} is not."
            )
        return value


def series_view(series: history.Series) -> Series:
    """Points as columns: means of each, null where nobody looked."""
    columns: dict[str, list[float | None]] = {"t": [point.from_unix for point in series.points]}
    for column, name in _MEANS.items():
        columns[column] = [_rounded(point.amounts.mean(name)) for point in series.points]
    for column, name in (("to_device_bps", "to_device_bytes"), ("from_device_bps", "from_device_bytes")):
        columns[column] = [_rounded(point.amounts.per_second(name)) for point in series.points]
    return {
        "from": series.from_unix,
        "to": series.to_unix,
        "step": series.step_seconds,
        "points": cast(Columns, columns),
        "total": sums_view(series.total),
        "members": [member_view(member) for member in series.members],
    }


def member_view(member: history.Member) -> Member:
    return {
        "name": member.name,
        "user": member.user,
        "label": member.label,
        **sums_view(member.amounts),
    }


def sums_view(amounts: Amounts) -> Sums:
    """Sums over the whole time, in units that people know."""
    return {
        "seconds": amounts.covered_ms / 1000,
        "capacity_hours": amounts.capacity_milli_ms / _GPU_HOUR_MILLI_MS,
        "held_hours": amounts.held_milli_ms / _GPU_HOUR_MILLI_MS,
        "used_hours": amounts.used_milli_ms / _GPU_HOUR_MILLI_MS,
        "idle_hours": amounts.idle_milli_ms / _GPU_HOUR_MILLI_MS,
        "waiting_hours": amounts.waiting_milli_ms / _GPU_HOUR_MILLI_MS,
        "memory_gib_hours": amounts.memory_mib_ms / _GIB_HOUR_MIB_MS,
        "to_device_bytes": amounts.to_device_bytes,
        "from_device_bytes": amounts.from_device_bytes,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
