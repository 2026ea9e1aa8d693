"""Events that wait for their turn. What keeps alive what is there goes before requests for more.

A thousand requests take seconds. Heartbeats, renewals and answers of nodes that came behind them would be too late, and
leases would end whose holders and nodes are well. Within each kind the first is the first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from typing import Final, TypeAlias

from gpupool.model import events
from gpupool.model.clock import Clock

#: Steps of one transaction; between two of them the loop serves others.
_LARGEST_GROUP: Final = 100
#: A request may take ten times as long as a heartbeat.
_MOST_REQUESTS: Final = 25

#: An event, and what says that it is stored.
Arrival: TypeAlias = tuple[events.Event, asyncio.Future[None]]


class Arrivals:
    """Two queues.

    Invariants:
        1. Only requests, and what takes a request back, wait in the second queue, so one never overtakes the other.
        2. Times never go backwards from one event to the next: a request has the time at which it is taken, because what
           came later is handled before it. Its waiting time and its lease begin then, too.
        3. A request whose caller has left before it was taken is not made.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._first: deque[Arrival] = deque()
        self._requests: deque[Arrival] = deque()

    def __bool__(self) -> bool:
        return bool(self._first or self._requests)

    @property
    def urgent(self) -> bool:
        """Whether anything waits that is no request."""
        return bool(self._first)

    def add(self, event: events.Event) -> asyncio.Future[None]:
        """Puts the event behind others of its kind; the future is done when it is stored."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._requests if isinstance(event, events.Requested | events.Cancelled) else self._first
        queue.append((event, done))
        return done

    def take(self) -> list[Arrival]:
        """What is to be handled together now: requests only if nothing else waits."""
        if self._first:
            return [self._first.popleft() for _ in range(min(_LARGEST_GROUP, len(self._first)))]
        taken: list[Arrival] = []
        while self._requests and len(taken) < _MOST_REQUESTS:
            event, done = self._requests.popleft()
            if not (isinstance(event, events.Requested) and done.cancelled()):
                taken.append((replace(event, now=self._clock.now()), done))
        return taken
