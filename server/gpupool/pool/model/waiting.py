"""Requests that wait, in lanes: those of one lane look the same to the scheduler, so what one is told holds for all behind it.

Inside a project the order is priority, then arrival; among equals a shorter ``--for`` goes first, but only within a
horizon: a request counts as if it had to be done ``for`` seconds after it came, and one without a hint, or with a longer
one, after `HINT_HORIZON`. So nobody is overtaken for more than that time, however many short requests come.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import islice

from gpupool.filters import Filter
from gpupool.model.state import RequestRecord, State

#: Seconds that a request without a duration may be overtaken by later, shorter ones.
HINT_HORIZON = 300.0

#: Of requests of one project and priority: when it counts as due, its number, its id.
Entry = tuple[float, int, str]
#: The order inside a project: the smaller goes first.
Rank = tuple[int, float, int]


@dataclass(frozen=True, slots=True)
class Lane:
    """What the scheduler sees of a request, besides the time."""

    project: str
    priority: int
    kind: str
    milli: int | None
    mib: int | None
    count: int
    nodes: str
    filters: tuple[Filter, ...]
    pools: tuple[str, ...]
    isolated: bool
    duration: float
    session_id: str
    #: Empty for users without limits of their own: they may wait in one lane.
    user: str
    #: Lanes are looked up all the time; so many values together are hashed only once.
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        values = tuple(getattr(self, name) for name in _COMPARED)
        object.__setattr__(self, "_hash", hash(values))

    def __hash__(self) -> int:
        return self._hash

    @property
    def of_anybody(self) -> Lane:
        """The same wish, whoever has it."""
        return replace(self, user="") if self.user else self

    def rank(self, entry: Entry) -> Rank:
        return -self.priority, entry[0], entry[1]


_COMPARED = tuple(one.name for one in fields(Lane) if one.compare)


def lane_of(request: RequestRecord, user: str) -> Lane:
    """The lane that a request waits in; `user`: empty where users are not told apart."""
    return Lane(
        request.project,
        request.priority,
        request.kind,
        request.milli,
        request.mib,
        request.count,
        request.nodes,
        request.filters,
        request.pools,
        request.isolated,
        request.duration,
        request.session_id,
        user,
    )


def entry_of(request: RequestRecord) -> Entry:
    """When it counts as due (`HINT_HORIZON`), its number, its id."""
    hint = min(request.duration, HINT_HORIZON) if request.duration > 0 else HINT_HORIZON
    return request.since + hint, request.number, request.id


class Waiting:
    """The lanes, kept in step with the state's requests."""

    def __init__(self) -> None:
        self.lanes: dict[Lane, list[Entry]] = {}
        self._same: dict[Lane, Lane] = {}
        self._of: dict[str, tuple[Lane, Entry]] = {}
        self._highest = 0

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._of

    def highest(self) -> int:
        """The number of the request that came last, also if it has left; 0 at the beginning."""
        return self._highest

    def skip_to(self, number: int) -> None:
        """The next request has a higher number than this one."""
        self._highest = max(self._highest, number)

    def lane(self, request_id: str) -> Lane:
        return self._of[request_id][0]

    def entry(self, request_id: str) -> Entry:
        return self._of[request_id][1]

    def ranks(self, request_ids: Iterable[str]) -> dict[str, tuple[str, Rank]]:
        """(project, rank) of those of them that wait."""
        known = ((name, *self._of[name]) for name in request_ids if name in self._of)
        return {name: (lane.project, lane.rank(entry)) for name, lane, entry in known}

    def entries(self, request_ids: Iterable[str]) -> dict[Lane, list[Entry]]:
        """Those of them that wait, by their lanes, in order."""
        found: dict[Lane, list[Entry]] = {}
        for lane, entry in (self._of[name] for name in request_ids if name in self._of):
            insort(found.setdefault(lane, []), entry)
        return found

    def follow(self, state: State, limited: Callable[[str], bool]) -> set[Lane]:
        """Takes over what has changed since the last commit, and returns the lanes where; saying it twice changes nothing."""
        changed = set()
        for request_id, (_, now) in state.requests.changes().items():
            if now is None and request_id in self._of:
                changed.add(self.remove(request_id))
            elif now is not None and request_id not in self._of:
                changed.add(self.add(now, limited))
        return changed

    def rebuild(self, requests: Iterable[RequestRecord], limited: Callable[[str], bool]) -> None:
        self.lanes.clear()
        self._same.clear()
        self._of.clear()
        for request in requests:
            self.add(request, limited)

    def add(self, request: RequestRecord, limited: Callable[[str], bool]) -> Lane:
        lane, entry = lane_of(request, request.user if limited(request.user) else ""), entry_of(request)
        # One object for all in it: what is found by it need not be compared value by value.
        lane = self._same.setdefault(lane, lane)
        insort(self.lanes.setdefault(lane, []), entry)
        self._of[request.id] = lane, entry
        self._highest = max(self._highest, request.number)
        return lane

    def remove(self, request_id: str) -> Lane:
        lane, entry = self._of.pop(request_id)
        entries = self.lanes[lane]
        del entries[bisect_left(entries, entry)]
        if not entries:
            del self.lanes[lane], self._same[lane]
        return lane

    def before(self, project: str, rank: Rank) -> int:
        """How many requests of a project go before one of this rank."""
        priority, due, number = rank
        return sum(
            bisect_left(entries, (due, number, "")) if -lane.priority == priority else len(entries)
            for lane, entries in self.lanes.items()
            if lane.project == project and -lane.priority <= priority
        )

    def count(self, project: str) -> int:
        return sum(len(entries) for lane, entries in self.lanes.items() if lane.project == project)

    def firsts(self) -> dict[str, Lane]:
        """The lane of each project's first request."""
        best: dict[str, tuple[Rank, Lane]] = {}
        for lane, entries in self.lanes.items():
            rank = lane.rank(entries[0])
            if lane.project not in best or rank < best[lane.project][0]:
                best[lane.project] = rank, lane
        return {project: lane for project, (_, lane) in best.items()}

    def lines(self) -> dict[str, Line]:
        """One for each project that somebody waits in."""
        lines: dict[str, Line] = {}
        for lane, entries in self.lanes.items():
            lines.setdefault(lane.project, Line(self.lanes)).add(lane, entries[0])
        return lines


class Line:
    """The requests of one project in their order; a lane in it may be dropped on the way, and requests may leave.

    Of each lane only the next request is held, so it costs nothing to make one, however many wait.
    """

    def __init__(self, lanes: Mapping[Lane, list[Entry]]) -> None:
        self._lanes = lanes
        self._heads: list[tuple[Rank, str, Lane, Entry]] = []

    def add(self, lane: Lane, entry: Entry) -> None:
        # Numbers of requests are unique, so lanes are never compared.
        heapq.heappush(self._heads, (lane.rank(entry), entry[2], lane, entry))

    def add_next(self, lane: Lane, entry: Entry) -> None:
        """Puts the request in line that comes after this one, which may have left."""
        entries = self._lanes.get(lane, ())
        at = bisect_right(entries, entry)
        if at < len(entries):
            self.add(lane, entries[at])

    def __bool__(self) -> bool:
        return bool(self._heads)

    @property
    def lane(self) -> Lane:
        """The lane of the first request."""
        return self._heads[0][2]

    def take(self) -> tuple[Lane, Entry]:
        """The first request; the next one of its lane is to be put in line with `add_next`."""
        _, _, lane, entry = heapq.heappop(self._heads)
        return lane, entry

    def __iter__(self) -> Iterator[str]:
        """All requests' ids in their order, from the first ones on."""
        merged = sorted(
            (lane.rank(entry), entry[2])
            for _, _, lane, first in self._heads
            for entry in islice(self._lanes[lane], bisect_left(self._lanes[lane], first), None)
        )
        return (request_id for _, request_id in merged)
