"""Whose turn it is among the projects that have requests waiting."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable

_Order = tuple[object, ...]


class ProjectTurns:
    """The project with the smallest order comes first.

    An order is worked out anew only where it may have changed: of the project that had its turn, whose next request may be
    another, and of those below a top-level project in which something was granted. So a look is not quadratic in projects.

    Args:
        waiting: the projects that have requests; they leave it when they have none.
        top: the top-level project of one.
        order: of a project, by its first request.
    """

    def __init__(
        self, waiting: Collection[str], top: Callable[[str], str], order: Callable[[str], _Order]
    ) -> None:
        self._waiting = waiting
        self._order = order
        self._below: dict[str, list[str]] = {}
        for project in waiting:
            self._below.setdefault(top(project), []).append(project)
        #: The orders as they are now; the heap has those of before, too.
        self._orders: dict[str, _Order] = {}
        self._heap: list[tuple[_Order, str]] = []
        self._stale = set(waiting)

    def next(self, moved: Iterable[str]) -> str:
        """Whose turn it is; that project's order is worked out anew the next time. `moved`: top-level projects."""
        stale = self._stale.union(*(self._below.get(top, ()) for top in moved))
        if len(self._waiting) == 1:
            # Nothing is compared any more.
            (project,) = self._waiting
            return project
        for project in stale:
            if project in self._waiting and (order := self._order(project)) != self._orders.get(project):
                self._orders[project] = order
                heapq.heappush(self._heap, (order, project))
        while True:
            order, project = heapq.heappop(self._heap)
            if self._orders.get(project) == order:
                break
        del self._orders[project]
        self._stale = {project}
        return project
