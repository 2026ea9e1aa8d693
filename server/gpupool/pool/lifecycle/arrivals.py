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
#: While somebody waits in a large pool a single request can take most of a second. The loop must not stand still for more.
_LONGEST_GROUP: Final = 0.1
#: A crowd comes one by one, with a few turns of the loop between two of them.
_QUIET_TURNS: Final = 4
#: What has come waits no longer for what may come, seconds.
_LONGEST_GATHERING: Final = 0.02

#: An event, and what says that it is stored.
Arrival: TypeAlias = tuple[events.Event, asyncio.Future[None]]


class Gathering:
    """Whether what comes at the same time is there: asked once in each turn of the loop, it says when a group may be handled.

    A transaction costs as much as the steps in it. One event alone waits for some turns of an idle loop, which is nothing.
    """

    def __init__(self) -> None:
        self._there = 0
        self._quiet_turns = 0
        self._until = 0.0

    def begin(self, now: float) -> None:
        self._there, self._quiet_turns, self._until = 0, 0, now + _LONGEST_GATHERING

    def is_over(self, there: int, now: float) -> bool:
        """`there`: how many have come."""
        self._quiet_turns = 0 if there > self._there else self._quiet_turns + 1
        self._there = there
        return self._quiet_turns >= _QUIET_TURNS or there >= _MOST_REQUESTS or now >= self._until


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
        self._most_requests = _MOST_REQUESTS

    def __len__(self) -> int:
        return len(self._first) + len(self._requests)

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

    def take(self, *, only_urgent: bool = False) -> list[Arrival]:
        """What is to be handled together now: requests behind all else, and beside it only while they are quick.

        One transaction for both saves a crowd half of them: while some ask, the workers of those before report.
        """
        taken = [self._first.popleft() for _ in range(min(_LARGEST_GROUP, len(self._first)))]
        if only_urgent or self._first or (taken and self._most_requests < _MOST_REQUESTS):
            return taken
        end = len(taken) + min(self._most_requests, _MOST_REQUESTS)
        while self._requests and len(taken) < end:
            event, done = self._requests.popleft()
            if not (isinstance(event, events.Requested) and done.cancelled()):
                taken.append((replace(event, now=self._clock.now()), done))
        return taken

    def took(self, group: list[Arrival], seconds: float) -> None:
        """How long a group kept the loop from all else: the next requests are so many that it will be short."""
        requests = sum(isinstance(event, events.Requested | events.Cancelled) for event, _ in group)
        if requests:
            slow = seconds > _LONGEST_GROUP
            self._most_requests = (
                max(1, requests // 2) if slow else min(_MOST_REQUESTS, 2 * self._most_requests)
            )
