"""When a standby may take over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpupool.ledger.servers import LockHolder, ServerRow
from gpupool.pool.leading.lead_times import LeadTimes

#: So often a leader has been seen that has not begun to serve yet: once, when it took over.
_NEVER_SINCE: Final = 1


@dataclass(frozen=True, slots=True)
class Wait:
    """Somebody leads, or may be about to again. `why`: for people, a clause."""

    why: str


@dataclass(frozen=True, slots=True)
class EndConnection:
    """The leader is silent: the connection that holds its lock is to be ended."""

    pid: int
    silent_seconds: float


@dataclass(frozen=True, slots=True)
class TakeOver:
    """The lead is free."""


class LeaderWatch:
    """What a standby makes of its looks at the database; `now` is its own clock, seconds."""

    def __init__(self, times: LeadTimes) -> None:
        self._times = times
        self._looked_at = float("-inf")
        self._free_since: float | None = None
        self._sign: tuple[int, str, int] | None = None
        self._sign_at = 0.0

    def look(
        self, holder: LockHolder | None, leader: ServerRow | None, now: float
    ) -> Wait | EndConnection | TakeOver:
        """One look. `leader`: the row of the server that took over last."""
        if now - self._looked_at > self._times.gap:
            # The database, or this standby itself, stood still. The leader may have done so too, or led meanwhile.
            self._free_since = self._sign = None
        self._looked_at = now
        if holder is None:
            return self._free(leader, now)
        self._free_since = None
        beats = 0 if leader is None else leader.beats
        sign = (holder.pid, "" if leader is None else leader.id, beats)
        if sign != self._sign:
            self._sign, self._sign_at = sign, now
        silent = now - self._sign_at
        most = self._times.starting if beats <= _NEVER_SINCE else self._times.silent
        if silent >= most:
            return EndConnection(holder.pid, silent)
        return Wait(f"{'another server' if leader is None else leader.name} leads")

    def _free(self, leader: ServerRow | None, now: float) -> Wait | TakeOver:
        self._sign = None
        if self._free_since is None:
            self._free_since = now
        # Where nobody ever led, or the last leader said goodbye, there is nobody to wait for.
        if leader is None or now - self._free_since >= self._times.free:
            return TakeOver()
        return Wait(f"{leader.name} may come back")
