"""A pool without devices: so many milli-GPU, and projects whose asks the rules of fair share serve.

The plainest allocator there can be around :class:`Standings`, made anew for every look: in order, what fits is
granted; who may take from others gives notice to the newest and least of those leases, and gets the room when it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gpupool.scheduler.fairshare import HeldLease, ProjectTree, Standings, Waiting


@dataclass(frozen=True)
class FairAsk:
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
    asks: dict[str, FairAsk] = field(default_factory=dict)
    #: By ask: when its victims go, and which they are.
    notices: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    #: Leases that were taken back, with whether they were protected then.
    taken: list[tuple[HeldLease, bool]] = field(default_factory=list)

    def ask(self, project: str, milli: int, kind: str = "interactive", priority: int = 100) -> str:
        self.count += 1
        ask = FairAsk(
            f"ask{self.count}", self.count, self.tree.leaf(project), milli, kind, priority, self.now
        )
        self.asks[ask.id] = ask
        self.look()
        return ask.id

    def leave(self, ask_id: str) -> None:
        self.asks.pop(ask_id, None)
        self.look()

    def end(self, lease_id: str) -> None:
        self.leases.pop(lease_id, None)
        self.look()

    def tick(self) -> None:
        self.now += 1
        self.look()

    def standings(self) -> Standings:
        waiting = [Waiting(ask.id, ask.project, ask.milli, ask.priority) for ask in self.asks.values()]
        return Standings(self.tree, self.capacity, self.leases.values(), waiting)

    def in_order(self, standings: Standings) -> Iterator[FairAsk]:
        """Asks as their turn comes; grants in between change it."""
        lines: dict[str, list[FairAsk]] = {}
        for ask in sorted(self.asks.values(), key=lambda ask: (-ask.priority, ask.number)):
            lines.setdefault(ask.project, []).append(ask)
        while lines:
            project = min(lines, key=lambda name: standings.order_key(name, lines[name][0].milli))
            yield lines[project].pop(0)
            if not lines[project]:
                del lines[project]

    def look(self) -> None:
        """One pass over the queue."""
        self.notices = {name: plan for name, plan in self.notices.items() if name in self.asks}
        standings = self.standings()
        promised: set[str] = set()
        free = self.capacity - sum(lease.milli for lease in self.leases.values())
        for ask in self.in_order(standings):
            verdict = standings.admit(ask.project, ask.milli, ask.kind)
            if not verdict.admitted:
                if verdict.never or verdict.reason == "over-quota" or ask.milli > self.capacity:
                    self.refused.append(ask.id)
                    del self.asks[ask.id]
                continue
            free += self._take_back(ask, standings, promised)
            if ask.milli <= free:
                lease = HeldLease(
                    f"l{ask.number}", ask.project, ask.milli, ask.kind, ask.priority, float(self.now)
                )
                self.leases[lease.id] = lease
                standings.granted(lease, ask.id)
                del self.asks[ask.id]
                self.notices.pop(ask.id, None)
                free -= ask.milli
                continue
            victims = self._plan(ask, standings, free, promised)
            promised.update(victims)
            coming = sum(self.leases[name].milli for name in victims)
            # Whose turn it is keeps what is free, so that nobody behind it goes on taking it away.
            free = free - max(0, ask.milli - coming) if victims else 0

    def _plan(self, ask: FairAsk, standings: Standings, free: int, promised: set[str]) -> tuple[str, ...]:
        """Who has notice for this ask, anew when it is not enough any more, or goes for an ask before it."""
        until, victims = self.notices.pop(ask.id, (self.now + self.notice, ()))
        there = all(name in self.leases and name not in promised for name in victims)
        enough = sum(self.leases[name].milli for name in victims if name in self.leases) + free >= ask.milli
        if not victims or not there or not enough:
            until, victims = self.now + self.notice, ()
            room = free
            for lease in standings.takeable(ask.project, ask.milli, priority=ask.priority):
                more = (*victims, lease.id)
                if lease.id in promised or room >= ask.milli:
                    continue
                if standings.may_take_from(ask.project, ask.milli, more, priority=ask.priority):
                    victims, room = more, room + lease.milli
            if room < ask.milli:
                return ()
        self.notices[ask.id] = (until, victims)
        return victims

    def _take_back(self, ask: FairAsk, standings: Standings, promised: set[str]) -> int:
        """The milli that become free because the time of this ask's victims is over."""
        until, victims = self.notices.get(ask.id, (self.now + 1, ()))
        if until > self.now or promised.intersection(victims):
            return 0
        del self.notices[ask.id]
        victims = tuple(name for name in victims if name in self.leases)
        if not standings.may_take_from(ask.project, ask.milli, victims, priority=ask.priority):
            return 0
        for name in victims:
            self.taken.append((self.leases[name], standings.is_protected(name)))
        gone = sum(self.leases.pop(name).milli for name in victims)
        standings.without(victims)
        return gone
