"""A pool without devices: so many milli-GPU, and projects whose requests the rules of fair share serve.

The plainest allocator there can be around :class:`Standings`, made anew for every look: in order, what fits is
granted; who may take from others gives notice to the newest and least of those leases, and gets the room when it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gpupool.scheduler.fairshare import HeldLease, ProjectTree, Standings, Waiting


@dataclass(frozen=True)
class FairRequest:
    id: str
    number: int
    project: str
    milli: int
    kind: str
    priority: int
    since: int


@dataclass
class FairPool:
    """`notice`: ticks between the word and the taking back."""

    tree: ProjectTree
    capacity: int
    notice: int = 3
    now: int = 0
    count: int = 0
    leases: dict[str, HeldLease] = field(default_factory=dict)
    requests: dict[str, FairRequest] = field(default_factory=dict)
    #: By request: when its victims go, and which they are.
    notices: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    #: Leases that were taken back, with whether they were protected then.
    taken: list[tuple[HeldLease, bool]] = field(default_factory=list)

    def ask(self, project: str, milli: int, kind: str = "interactive", priority: int = 100) -> str:
        self.count += 1
        request = FairRequest(
            f"request{self.count}", self.count, self.tree.leaf(project), milli, kind, priority, self.now
        )
        self.requests[request.id] = request
        self.look()
        return request.id

    def leave(self, request_id: str) -> None:
        self.requests.pop(request_id, None)
        self.look()

    def end(self, lease_id: str) -> None:
        self.leases.pop(lease_id, None)
        self.look()

    def tick(self) -> None:
        self.now += 1
        self.look()

    def standings(self) -> Standings:
        waiting = [
            Waiting(request.id, request.project, request.milli, request.priority)
            for request in self.requests.values()
        ]
        return Standings(self.tree, self.capacity, self.leases.values(), waiting)

    def in_order(self, standings: Standings) -> Iterator[FairRequest]:
        """Requests as their turn comes; grants in between change it."""
        lines: dict[str, list[FairRequest]] = {}
        for request in sorted(
            self.requests.values(), key=lambda request: (-request.priority, request.number)
        ):
            lines.setdefault(request.project, []).append(request)
        while lines:
            project = min(lines, key=lambda name: standings.order_key(name, lines[name][0].milli))
            yield lines[project].pop(0)
            if not lines[project]:
                del lines[project]

    def look(self) -> None:
        """One pass over the queue."""
        self.notices = {name: plan for name, plan in self.notices.items() if name in self.requests}
        standings = self.standings()
        promised: set[str] = set()
        free = self.capacity - sum(lease.milli for lease in self.leases.values())
        # Before anybody's turn, since the room comes to the first in line that can use it, whoever took it back.
        for request in self.in_order(standings):
            if standings.admit(request.project, request.milli, request.kind).admitted:
                free += self._take_back(request, standings)
        for request in self.in_order(standings):
            verdict = standings.admit(request.project, request.milli, request.kind)
            if not verdict.admitted:
                if verdict.never or verdict.reason == "over-quota" or request.milli > self.capacity:
                    self.refused.append(request.id)
                    del self.requests[request.id]
                continue
            if request.milli <= free:
                lease = HeldLease(
                    f"l{request.number}",
                    request.project,
                    request.milli,
                    request.kind,
                    request.priority,
                    float(self.now),
                )
                self.leases[lease.id] = lease
                standings.granted(lease, request.id)
                del self.requests[request.id]
                self.notices.pop(request.id, None)
                free -= request.milli
                continue
            victims = self._plan(request, standings, free, promised)
            promised.update(victims)
            coming = sum(self.leases[name].milli for name in victims)
            # Whose turn it is keeps what is free, so that nobody behind it goes on taking it away.
            free = free - max(0, request.milli - coming) if victims else 0

    def _plan(
        self, request: FairRequest, standings: Standings, free: int, promised: set[str]
    ) -> tuple[str, ...]:
        """Who has notice for this request, anew when it is not enough any more, or goes for a request before it."""
        until, victims = self.notices.pop(request.id, (self.now + self.notice, ()))
        there = all(name in self.leases and name not in promised for name in victims)
        enough = (
            sum(self.leases[name].milli for name in victims if name in self.leases) + free >= request.milli
        )
        if not victims or not there or not enough:
            until, victims = self.now + self.notice, ()
            room = free
            for lease in standings.takeable(request.project, request.milli, priority=request.priority):
                more = (*victims, lease.id)
                if lease.id in promised or room >= request.milli:
                    continue
                if standings.may_take_from(request.project, request.milli, more, priority=request.priority):
                    victims, room = more, room + lease.milli
            if room < request.milli:
                return ()
        self.notices[request.id] = (until, victims)
        return victims

    def _take_back(self, request: FairRequest, standings: Standings) -> int:
        """The milli that become free because the time of this request's victims is over."""
        until, victims = self.notices.get(request.id, (self.now + 1, ()))
        if until > self.now:
            return 0
        del self.notices[request.id]
        victims = tuple(name for name in victims if name in self.leases)
        if not standings.may_take_from(request.project, request.milli, victims, priority=request.priority):
            return 0
        for name in victims:
            self.taken.append((self.leases[name], standings.is_protected(name)))
        gone = sum(self.leases.pop(name).milli for name in victims)
        standings.without(victims)
        return gone
