"""What requests that wait claim of the pool for their projects: what they could be granted, were it free.

What a user's own quota, or the lack of a device, holds up no lease of others would help, so it raises nobody's fair share. What
a project's limit holds up is left out by the division itself (`scheduler.fairshare.division`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpupool.model.state import RequestRecord
from gpupool.pool.model.view import wish_for_new_session
from gpupool.pool.model.waiting import Lane, Waiting
from gpupool.pool.projects import standing_view
from gpupool.scheduler.decide import is_served
from gpupool.scheduler.fairshare.standings import Standings
from gpupool.scheduler.pool_view import PoolView

#: (user, project): a quota is for all lanes of a user, whose requests of one project claim together.
_Owner = tuple[str, str]


class Claims:
    """Keeps the standings in step with the lanes."""

    def __init__(self, standings: Standings, size: Callable[[Lane], int]) -> None:
        """Args: size: milli-GPU that a request of a lane takes, at least."""
        self._standings = standings
        self._size = size
        self._names: dict[Lane | _Owner, str] = {}
        self._served: dict[Lane, bool] = {}
        #: Of users with limits, by project.
        self._lanes_of: dict[str, dict[str, dict[Lane, None]]] = {}

    def count_all(
        self, view: PoolView, waiting: Waiting, requests: Callable[[str], RequestRecord | None]
    ) -> None:
        """Counts what all lanes claim. `requests`: by their ids."""
        for lane, entries in waiting.lanes.items():
            self._learn(lane, requests(entries[0][2]))
            if lane.user:
                self._beside(lane)[lane] = None
            else:
                self._count(view, waiting, lane, (lane,))
        for user in self._lanes_of:
            self.granted(view, waiting, user)

    def recount(self, view: PoolView, waiting: Waiting, lane: Lane) -> None:
        """Counts anew what the requests of a lane claim, and those that share its user's quota."""
        if not lane.user:
            self._count(view, waiting, lane, (lane,))
            return
        lanes = self._beside(lane)
        lanes[lane] = None
        self._count(view, waiting, (lane.user, lane.project), lanes)

    def granted(self, view: PoolView, waiting: Waiting, user: str) -> None:
        """Counts anew what a user claims who holds more now."""
        for project, lanes in self._lanes_of.get(user, {}).items():
            self._count(view, waiting, (user, project), lanes)

    def _beside(self, lane: Lane) -> dict[Lane, None]:
        """The lanes that share a quota with it, and a project."""
        return self._lanes_of.setdefault(lane.user, {}).setdefault(lane.project, {})

    def _learn(self, lane: Lane, first: RequestRecord | None) -> None:
        """Who was told that devices are full need not be told apart from those who have none."""
        told = "" if first is None or first.decision is None else first.decision.reason
        if lane.session_id:
            self._served[lane] = told != "no-node"
        elif told in ("full", "notice"):
            self._served[lane] = True

    def _is_served(self, view: PoolView, lane: Lane) -> bool:
        known = self._served.get(lane)
        if known is None:
            wish = wish_for_new_session(lane)
            known = self._served[lane] = bool(lane.session_id) or is_served(view, wish)
        return known

    def _count(self, view: PoolView, waiting: Waiting, owner: Lane | _Owner, lanes: Iterable[Lane]) -> None:
        name = self._names.setdefault(owner, f"claim {len(self._names)}")
        numbers = {lane: len(waiting.lanes[lane]) for lane in lanes if lane in waiting.lanes}
        if not numbers:
            self._standings.answered(name)
            return
        asked = sum(number * self._size(lane) for lane, number in numbers.items())
        served = {lane: number for lane, number in numbers.items() if self._is_served(view, lane)}
        claimed = self._within_quota(view, served)
        first = next(iter(numbers))
        self._standings.asked(standing_view.wanted(name, first, asked, held_up=asked - claimed))

    def _within_quota(self, view: PoolView, numbers: dict[Lane, int]) -> int:
        """Milli-GPU of these requests, of one user, that may be granted beside what the user holds."""
        user = next((lane.user for lane in numbers), "")
        if not user:
            return sum(number * self._size(lane) for lane, number in numbers.items())
        quota, (held, held_shares) = view.quota_of(user), view.held_by(user)
        milli = None if quota.milli is None else max(0, quota.milli - held)
        shares = None if quota.shares is None else max(0, quota.shares - held_shares)
        claimed = 0
        # The largest shares first: so the sum does not depend on who came first.
        for lane in sorted(numbers, key=lambda lane: (-self._size(lane) / lane.count, lane.count)):
            size, number = self._size(lane), numbers[lane]
            if milli is not None:
                number = min(number, (milli - claimed) // size)
            if shares is not None:
                number = min(number, shares // lane.count)
                shares -= number * lane.count
            claimed += number * size
        return claimed
