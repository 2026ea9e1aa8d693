"""Who comes near a quota: said once, and taken back when it is well below again.

A project is near when it holds so many percent of its limit, or of what it deserves where an administrator has said how
much that is; a user when of a limit on milli-GPU, on shares, or of the GPU-seconds of the present window. Pure: the
caller looks every few seconds and stores what has changed as an event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from gpupool.model.alert import Alert
from gpupool.model.state import LeaseRecord, State
from gpupool.pool.model.timers import Timers
from gpupool.pool.projects import accounts, limit_rules
from gpupool.pool.projects.standing_view import with_requests
from gpupool.scheduler.model import Quota
from gpupool.sentences import Sentence

#: A quota is nearly used up at so many percent of it.
NEAR_PERCENT: Final = 95
#: Until it has fallen by so many percent of the quota, nothing is said again.
SLACK_PERCENT: Final = 5


def levels(state: State, timers: Timers, quotas: Mapping[str, Quota], now: float) -> list[Alert]:
    """How much of every quota is used that somebody has set; nothing of those that are zero."""
    found: list[Alert] = []
    if any(record.limit is not None or record.deserved is not None for record in state.projects.values()):
        found += _projects(state, timers, now)
    if state.limits or quotas:
        found += _users(state, quotas, now)
    return [level for level in found if level.cap > 0]


class AlertBook:
    """What has been said and still holds.

    Args:
        percent: of a quota, from which on it is nearly used up.
    """

    def __init__(self, percent: int = NEAR_PERCENT) -> None:
        self.percent = percent
        self._raised: dict[str, Alert] = {}

    @property
    def raised(self) -> list[Alert]:
        return [self._raised[name] for name in sorted(self._raised)]

    def of(self, subject: str, name: str) -> list[Sentence]:
        """What is to be said of one project or user."""
        return [alert.said() for alert in self.raised if (alert.subject, alert.name) == (subject, name)]

    def review(self, now_used: Iterable[Alert]) -> tuple[tuple[Alert, ...], tuple[Alert, ...]]:
        """(what has come near since the last :meth:`take`, what is over). Changes nothing."""
        known = {level.id: level for level in now_used}
        new = [
            level
            for level in known.values()
            if level.id not in self._raised and 100 * level.used >= self.percent * level.cap
        ]
        over = [
            known.get(name, alert)
            for name, alert in self._raised.items()
            if name not in known or 100 * known[name].used < (self.percent - SLACK_PERCENT) * known[name].cap
        ]
        return tuple(new), tuple(over)

    def take(self, new: Iterable[Alert], over: Iterable[Alert]) -> None:
        """Remembers what has been said."""
        for alert in over:
            self._raised.pop(alert.id, None)
        for alert in new:
            self._raised[alert.id] = alert

    def refresh(self, now_used: Iterable[Alert]) -> None:
        """Brings the figures of what holds up to date."""
        for level in now_used:
            if level.id in self._raised:
                self._raised[level.id] = level


def _projects(state: State, timers: Timers, now: float) -> Iterator[Alert]:
    there = with_requests(state, timers, now)
    for path in there.tree.paths:
        standing = there.standing(path)
        if standing.limit is not None:
            yield Alert("project", path, "limit", standing.allocated, standing.limit)
        record = state.projects.get(path)
        if record is not None and record.deserved is not None:
            yield Alert("project", path, "deserved", standing.allocated, standing.deserved)


def _users(state: State, quotas: Mapping[str, Quota], now: float) -> Iterator[Alert]:
    merged = limit_rules.quotas(state, quotas)
    of_user: dict[str, list[LeaseRecord]] = {}
    for lease in state.index.holding.records():
        of_user.setdefault(lease.user, []).append(lease)
    accounted = {name.partition("/")[2] for name in state.accounts if name.startswith("user/")}
    for user in sorted(of_user.keys() | accounted):
        held = of_user.get(user, [])
        quota = merged.get(user) or merged.get(accounts.EVERYBODY) or Quota()
        if quota.milli is not None:
            yield Alert("user", user, "limit", sum(lease.milli for lease in held), quota.milli)
        if quota.shares is not None:
            yield Alert("user", user, "shares", sum(len(lease.shares) for lease in held), quota.shares)
        budget = limit_rules.limit_of(state, user).gpu_seconds
        if budget is not None:
            used = accounts.used_in_window(state, user, now, held).milli_ms // 1000
            yield Alert("user", user, "window", used, budget * 1000)
