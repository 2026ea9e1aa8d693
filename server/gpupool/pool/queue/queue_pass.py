"""One look at the requests that wait, in order: who is granted, who waits, and what for.

Between projects the order is that of fair share (`scheduler.fairshare`), inside a project see `waiting`. A request that
waits for room keeps the devices on which it will most likely fit first free of those behind it, which may pass it
elsewhere; the free part of a kept device never shrinks, so a large request is always served in the end. Who has said how
long it runs may pass on a kept device too, if it is over before that device can serve the one that waits. A request that
is held up by a limit keeps nothing, but holds up those behind it that count against the same limit.

What one request of a lane is told holds for all behind it, so a look costs as much as there are lanes, however many wait.
It stays valid until something else than the queue changes: meanwhile a new request is decided by it alone.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from gpupool.model.state import RequestRecord, key_of
from gpupool.model.state_index import is_owed
from gpupool.pool.leases import budget_rules, notice_rules
from gpupool.pool.model.step import Step
from gpupool.pool.model.waiting import Entry, Lane, Rank, Waiting
from gpupool.pool.projects import limit_rules, live_holdings, standing_view
from gpupool.pool.projects.project_rules import project_tree
from gpupool.pool.queue.claims import Claims
from gpupool.pool.queue.passing import has_room, served_at
from gpupool.pool.queue.project_turns import ProjectTurns
from gpupool.pool.queue.request_view import (
    current_view,
    least_milli_in,
    own_places,
    resumed_by,
    session_obstacle,
    wish_of,
)
from gpupool.pool.queue.said import Said
from gpupool.pool.reclaim.disk_rules import make_host_room
from gpupool.pool.reclaim.taking_rules import TakingBack, Wanted
from gpupool.records import replace
from gpupool.scheduler import advise, decide
from gpupool.scheduler.fairshare.verdict import Verdict
from gpupool.scheduler.fit import above_quota
from gpupool.scheduler.helps import with_facts
from gpupool.scheduler.model import Decision, Outcome, PoolView, Request
from gpupool.sentences import Sentence, clauses, param, say
from gpupool.shares import Share


@dataclass(frozen=True, slots=True)
class Kept:
    """Devices that are kept free for a request that waits.

    Attributes:
        counted: what it will have of them is counted in the pool as it is going to be, see `taking_rules`.
        owed: room on them is being made for it; else they are a wish.
    """

    request_id: str
    project: str
    rank: Rank
    order: tuple[object, ...]
    devices: frozenset[str]
    counted: bool
    owed: bool


class QueuePass:
    """A look that begins with what projects hold now; :meth:`offer` asks in their order."""

    def __init__(self, step: Step, usage: Mapping[str, float]) -> None:
        waiting = step.queue.waiting
        self.view = current_view(step)
        self.tree = project_tree(step.state)
        self.standings = standing_view.standings(step.state, self.tree, usage)
        self._places = standing_view.kept_places(step.state, step.now)
        for place in self._places.values():
            self.standings.granted(place)
        self._sizes: dict[Lane, int] = {}
        self._claims = Claims(self.standings, self.size)
        self._claims.count_all(self.view, waiting, step.state.requests.get)
        self.standings.refresh()
        self.decisions: dict[str, Said] = {}
        #: How many requests could not be decided.
        self.faults = 0
        #: Of each ask that was decided, how it compared with those of other projects when its turn came.
        self.turns: dict[str, tuple[object, ...]] = {}
        #: Of lanes whose first request found no room: what all in it are told.
        self.full: dict[Lane, Said] = {}
        #: Where room is being made for requests that have not been decided in this look.
        self.owed = notice_rules.owed(step)
        self.owed_before = frozenset(self.owed)
        #: Of those for whom nobody else has to go, their projects and ranks: such room comes to the first in line.
        taken = notice_rules.taken_for(step) if self.owed else frozenset()
        self._by_itself = waiting.ranks(name for name in self.owed if name not in taken)
        #: Of lanes whose requests have no room now: in which view, without which devices, and what was said.
        self._full_now: dict[Lane, tuple[PoolView, frozenset[str], Decision]] = {}
        #: Wishes for which there is no room, whoever has them.
        self._no_room: dict[Lane, Said] = {}
        self.taking_back = TakingBack(step, self.view, self.standings, self.owed, taken)
        #: Those for whom room is being made, by their lanes, in order.
        self._promised = waiting.entries({*self.owed, *self.taking_back.noticed_for()})
        #: By the devices and the request: what many wait for is the same few devices.
        self.kept: dict[frozenset[str], dict[str, Kept]] = {}
        #: When kept devices serve whom they are kept for: by the devices and the wish, found out when somebody may pass.
        self._served_at: dict[tuple[object, ...], float | None] = {}
        self._kept_for: dict[str, frozenset[str]] = {}
        #: Projects and users of which a request is held up by a limit, with who that is.
        self._held_up: dict[tuple[str, str], RequestRecord] = {}
        #: Those of them for whom leases of their project end.
        self._below_limit: set[str] = set()

    def size(self, lane: Lane) -> int:
        """Milli-GPU that a request of this lane takes, at least."""
        known = self._sizes.get(lane)
        if known is None:
            known = self._sizes[lane] = least_milli_in(self.view, lane.milli, lane.mib, lane.count)
        return known

    def order(self, lane: Lane) -> tuple[object, ...]:
        """What projects are compared by when a request of this lane is the first of its project."""
        return (*self.standings.order_key(lane.project, self.size(lane)), lane.project)

    def in_order(self, step: Step) -> Iterator[str]:
        """The requests' ids as they come; of a lane that is `full` by then only those for whom room is being made.

        What the first of the lane is told says nothing about them: their notices are to be judged again.
        """
        lines = step.queue.waiting.lines()
        turns = ProjectTurns(lines, self.standings.top, lambda project: self.order(lines[project].lane))
        while lines:
            project = turns.next(self.standings.moved())
            line = lines[project]
            lane, entry = line.take()
            yield entry[2]
            if lane not in self.full:
                line.add_next(lane, entry)
            else:
                promised = self._promised.get(lane, [])
                for later in promised[bisect_right(promised, entry) :][:1]:
                    line.add(lane, later)
            if not line:
                del lines[project]

    def offer(self, step: Step, request: RequestRecord) -> Said:
        """Decides one request; all that come before it have been decided."""
        lane, entry = step.queue.waiting.lane(request.id), step.queue.waiting.entry(request.id)
        self.turns[request.id] = self.order(lane)
        place = self._places.get(request.session_id)
        if place is not None:
            self.standings.without([place.id])
        said = self._as_others(step, request, lane) or self._decide(step, request, lane, entry)
        if place and said.bare.outcome is not Outcome.GRANT and request.id not in self.taking_back.expected:
            self.standings.granted(place)
        self.owed.pop(request.id, None)
        self.decisions[request.id] = said
        decision = said.bare
        if decision.outcome is not Outcome.QUEUE:
            return said
        owed = is_owed(decision)
        if decision.wants:
            rank, turn = lane.rank(entry), self.turns[request.id]
            devices, counted = frozenset(decision.wants), request.id in self.taking_back.expected
            self.forget(request.id)
            kept = Kept(request.id, request.project, rank, turn, devices, counted, owed)
            self.kept.setdefault(devices, {})[request.id] = kept
            self._kept_for[request.id] = devices
        judged_again = lane in self.full and entry in self._promised.get(lane, ())
        if not request.session_id and not owed and not judged_again:
            self.full[lane] = said
            if decision.reason == "full":
                # Room is the same for everybody.
                self._no_room.setdefault(lane.of_anybody, said)
        return said

    def _as_others(self, step: Step, request: RequestRecord, lane: Lane) -> Said | None:
        """What another user was told of the same wish, if nothing but room is in the way of this one, too."""
        known = self._no_room.get(lane.of_anybody) if not request.session_id else None
        if known is None or request.id in self.owed:
            return None
        milli = self.size(lane)
        refused = self._beyond_limits(step, request, milli)
        if refused is not None:
            return Said(refused)
        return None if self._is_out_of_quota(request, milli) else known.to_others()

    def left(self, request_id: str) -> None:
        """A request that does not wait keeps no device from others."""
        self.forget(request_id)

    def granted(self, step: Step, request: RequestRecord, resumed: Collection[str]) -> None:
        """Counts a lease that has just been granted."""
        lease = step.state.leases[step.state.keys[key_of(request.user, request.key)]]
        self.standings.without([standing_view.expected_name(request)])
        parts = step.state.lease_parts(lease)
        self.standings.granted(live_holdings.held_lease(parts))
        self.taking_back.granted(parts, resumed)
        self.view = current_view(step)
        self._claims.granted(self.view, step.queue.waiting, request.user)

    def forget(self, request_id: str) -> None:
        """Keeps nothing for a request that will not wait."""
        devices = self._kept_for.pop(request_id, None)
        if devices is not None:
            of_others = self.kept[devices]
            del of_others[request_id]
            if not of_others:
                del self.kept[devices]

    def failed(self, request: RequestRecord) -> None:
        """Forgets a request that could not be decided, and gives its session the place back that is kept for it."""
        self.forget(request.id)
        self.owed.pop(request.id, None)
        place = self._places.get(request.session_id)
        if place is not None:
            self.standings.granted(place)

    def recount(self, waiting: Waiting, lane: Lane) -> None:
        """Counts anew what the requests of a lane want."""
        self._claims.recount(self.view, waiting, lane)

    def _decide(self, step: Step, request: RequestRecord, lane: Lane, entry: Entry) -> Said:
        milli = self.size(lane)
        obstacle = session_obstacle(step, request) or self._beyond_limits(step, request, milli)
        if obstacle is not None:
            return Said(obstacle)
        names, wish = resumed_by(step, request), wish_of(step, request)
        reserved, what_if = self._reserved(step, request, lane, entry), _what_if(step, wish)

        def make_room(now: Decision, kept: frozenset[str]) -> Decision | None:
            in_future = self._reserved(step, request, lane, entry, in_future=True)
            seen = self.view.resuming(names).reserving(kept)
            wanted = Wanted(request, wish, milli, in_future, names, what_if, now, seen)
            if now.evict:
                self.taking_back.room_is_made(step, wanted, now)
                return None
            return self.taking_back.make_room(step, wanted)

        known, kept = self._known_as_full(lane, reserved)
        coming = None if known is None else make_room(known, kept)
        if coming is not None:
            return Said(coming)
        view = self.view
        seen = view.resuming(names).reserving(reserved)
        bare = step.queue.known_as_full(seen, wish) or decide(seen, wish, helps=False, told=step.says)
        decision = make_host_room(step.state, seen, wish, bare)
        if decision.outcome is Outcome.GRANT:
            placed = sum(share.milli for share in decision.shares)
            above = self._beyond_limits(step, request, placed) if placed != milli else None
            return Said(above or self._until_they_have_gone(request, placed) or decision)
        if decision.reason == "quota":
            self._held_up["user", request.user] = request
        said = Said(decision, (lambda: advise(seen, wish, bare)) if decision is bare else None)
        if decision.outcome is not Outcome.QUEUE or decision.reason != "full":
            return said
        if not bare.evict and not names:
            step.queue.note_full(seen, wish, bare)
        if known is None:
            decision = with_facts(seen, wish, decision) if step.says else decision
            if not decision.evict:
                self._full_now[lane] = view, reserved, decision
            coming = make_room(decision, reserved)
        return said if coming is None else Said(coming)

    def _known_as_full(self, lane: Lane, reserved: frozenset[str]) -> tuple[Decision | None, frozenset[str]]:
        """What was said to a request of the lane that had no room now, though no more was kept from it; and what was kept."""
        view, kept, decision = self._full_now.get(lane, (None, reserved, None))
        return (decision, kept) if view is self.view and kept <= reserved else (None, reserved)

    def _beyond_limits(self, step: Step, request: RequestRecord, milli: int) -> Decision | None:
        """Why a request has to wait, or is refused, wherever there is room; None: nothing is in the way."""
        refused = limit_rules.too_large(step.state, request.user, milli) or budget_rules.refused(
            step, request.user, milli, request.duration
        )
        if refused is not None:
            return refused
        verdict = self.standings.admit(request.project, milli, request.kind)
        if verdict.never or verdict.reason == "over-quota":
            return _from_verdict(Outcome.REFUSE, verdict)
        scopes = [("user", request.user)]
        out_of_quota = self._is_out_of_quota(request, milli)
        if not out_of_quota:
            above = self.tree.ancestors(self.tree.leaf(request.project))
            scopes += [("project", path) for path in above]
        first = next((self._held_up[scope] for scope in scopes if scope in self._held_up), None)
        others = first is not None and first.id != request.id and first.id in step.state.requests
        # What ends for one who is told so below a limit is still held: nobody else has that, but more may end. Whose place
        # is kept takes nothing from the first.
        waits_for_first = bool(verdict) and not own_places(step, request)
        if (
            first is not None
            and others
            and (waits_for_first or (not verdict and first.id not in self._below_limit))
        ):
            return _turn(first)
        if verdict or out_of_quota:
            # Who is held up by their own quota holds up nobody else of the project, and the scheduler says so.
            return None
        self._held_up["project", str(verdict.facts.get("project", request.project))] = request
        return self._make_room_below(step, request, milli, verdict) or _from_verdict(Outcome.QUEUE, verdict)

    def _is_out_of_quota(self, request: RequestRecord, milli: int) -> bool:
        """Whether its user may not have it beside what they hold, so that it waits, or is refused, wherever there is room."""
        return above_quota(self.view, request.user, milli, request.count) is not None

    def _until_they_have_gone(self, request: RequestRecord, milli: int) -> Decision | None:
        """Why a request that has room waits until leases have ended whose notice runs: they still count against a limit."""
        verdict = self.standings.admit_now(request.project, milli)
        if verdict:
            return None
        self._held_up["project", str(verdict.facts["project"])] = request
        return _from_verdict(Outcome.QUEUE, verdict)

    def _make_room_below(
        self, step: Step, request: RequestRecord, milli: int, limit: Verdict
    ) -> Decision | None:
        """What a request waits for that its project's own leases, which matter less, end for; None: none do."""
        wish = wish_of(step, request)

        lane, entry = step.queue.waiting.lane(request.id), step.queue.waiting.entry(request.id)
        reserved = self._reserved(step, request, lane, entry, in_future=True)
        now = _from_verdict(Outcome.QUEUE, limit)
        wanted = Wanted(request, wish, milli, reserved, resumed_by(step, request), _what_if(step, wish), now)
        excess = self.standings.above_limit(request.project, milli)
        decision = self.taking_back.make_room_below_limit(step, wanted, excess)
        if decision is None:
            return None
        self._below_limit.add(request.id)
        said = clauses(decision.said, limit.said)
        return replace(decision, said=said, facts={**limit.facts, **decision.facts})

    def _reserved(
        self, step: Step, request: RequestRecord, lane: Lane, entry: Entry, *, in_future: bool = False
    ) -> frozenset[str]:
        """Devices that are kept for others: of those before it, and where room is being made for somebody.

        Among those for whom room is being made the order alone decides, for they may share it; and room that becomes
        free without a notice is not kept for a later ask against an earlier one of its project. What those before it
        will have of it is taken already in the pool as it is going to be. A wish alone keeps nothing from the one for
        whom room was made there: else what was taken back for it would go to somebody else, and be taken back again.
        """
        rank, order = lane.rank(entry), self.turns[request.id]
        over_by = step.now + request.duration if request.duration > 0 else None
        reserved: set[str] = set()
        mine = self.owed.get(request.id, frozenset())
        if request.id not in self.owed:
            for name, devices in self.owed.items():
                project, later = self._by_itself.get(name, ("", rank))
                if project != request.project or later <= rank:
                    reserved |= devices
        for devices, by_request in self.kept.items():
            for kept in by_request.values():
                if devices <= reserved:
                    break
                if not self._is_ahead(step, kept, request, order, rank) or (in_future and kept.counted):
                    continue
                kept_from_it = devices if kept.owed else devices - mine
                if not kept_from_it <= reserved and not self._passes(step, lane, kept, over_by):
                    reserved |= kept_from_it
        return frozenset(reserved - own_places(step, request))

    def _is_ahead(
        self, step: Step, kept: Kept, request: RequestRecord, order: tuple[object, ...], rank: Rank
    ) -> bool:
        """Whether devices are kept for one that comes before a request; since the look it may have left, or was refused."""
        before = kept.rank < rank if kept.project == request.project else kept.order < order
        return before and kept.request_id != request.id and kept.request_id in step.state.requests

    def eta_of(self, step: Step, request: RequestRecord, decision: Decision) -> float | None:
        """Seconds until a request has room, as far as is known: when notices or deadlines of leases are over."""
        if decision.reason == "notice":
            noticed = step.state.index.noticed.records()
            ends = [x.notice.until for x in noticed if x.notice and x.notice.for_request == request.id]
            return max(0.0, max(ends) - step.now) if ends else None
        return self._eta(step, request) if decision.reason == "full" else None

    def _passes(self, step: Step, lane: Lane, kept: Kept, over_by: float | None) -> bool:
        """Whether a request that is over by then may use devices that are kept for another. Where it has no room it need not."""
        if over_by is None or not has_room(self.view, kept.devices, lane.milli or 1):
            return False
        served_at = self._kept_until(step, kept)
        return served_at is not None and over_by <= served_at

    def _kept_until(self, step: Step, kept: Kept) -> float | None:
        """When the devices serve whom they are kept for; None: it is not known, or a matter of a moment."""
        request, decision = step.state.requests[kept.request_id], self.decisions[kept.request_id].bare
        if decision.evict:
            return None
        if decision.reason == "notice":
            seconds = self.eta_of(step, request, decision)
            return None if seconds is None else step.now + seconds
        key = request.milli, request.mib, request.session_id, kept.devices
        if key not in self._served_at:
            view, share = self.view.resuming(resumed_by(step, request)), Share(request.milli, request.mib)
            self._served_at[key] = served_at(
                view, kept.devices, share, lambda name: step.state.leases[name].ends_at, step.now
            )
        return self._served_at[key]

    def _eta(self, step: Step, request: RequestRecord) -> float | None:
        """Seconds until deadlines of leases make room for a request; None when no deadline does."""
        ends = step.state.index.ending.all()
        if not ends:
            return None
        names = resumed_by(step, request)
        view, wish = self.view.resuming(names), wish_of(step, request)

        def fits(count: int) -> bool:
            gone = {lease_id for _, lease_id in ends[:count]}
            return decide(view.without(gone), wish, helps=False, words=False).outcome is Outcome.GRANT

        if not fits(len(ends)):
            return None
        low, high = 0, len(ends)  # room after `high` of them, none after `low`
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle, high)
        return max(0.0, ends[high - 1][0] - step.now)

    def places(self, step: Step) -> Iterator[tuple[int, str, Said | None]]:
        """(place, request's id, what it is told) of all that wait, as they stand now."""
        waiting = step.queue.waiting
        lines = {project: iter(line) for project, line in waiting.lines().items()}
        heads: list[tuple[tuple[object, ...], str]] = []
        orders: dict[Lane, tuple[object, ...]] = {}

        def next_of(project: str) -> None:
            request_id = next(lines[project], None)
            if request_id is not None:
                turn = self.turns.get(request_id)
                if not turn:
                    lane = waiting.lane(request_id)
                    turn = orders[lane] = orders.get(lane) or self.order(lane)
                heapq.heappush(heads, (turn, request_id))

        for project in lines:
            next_of(project)
        place = 0
        while heads:
            _, request_id = heapq.heappop(heads)
            place += 1
            lane = waiting.lane(request_id)
            yield place, request_id, self.decisions.get(request_id) or self.full.get(lane)
            next_of(lane.project)

    def place_of(self, step: Step, request: RequestRecord) -> int:
        """Where a request stands, without counting all of those in other projects one by one."""
        waiting = step.queue.waiting
        lane = waiting.lane(request.id)
        mine = self.turns.get(request.id) or self.order(lane)
        ahead = waiting.before(request.project, lane.rank(waiting.entry(request.id)))
        for project, first in waiting.firsts().items():
            if project != request.project and self.order(first) < mine:
                ahead += waiting.count(project)
        return ahead + 1


def _what_if(step: Step, wish: Request) -> Callable[[PoolView], Decision]:
    """What would be said to the wish in a pool that is otherwise; nobody reads the words."""
    return lambda view: make_host_room(step.state, view, wish, decide(view, wish, helps=False, words=False))


def _turn(first: RequestRecord) -> Decision:
    said = say("turn", user=param.user(first.user), size=describe(first))
    return Decision(Outcome.QUEUE, "turn", said)


def _from_verdict(outcome: Outcome, verdict: Verdict) -> Decision:
    return Decision(outcome, verdict.reason, verdict.said, facts=dict(verdict.facts))


def describe(request: RequestRecord) -> Sentence:
    """What it asks for, as others are told: size and number, nothing of whose it is."""
    size = say("size.gpu", milli=param.milli(request.milli or 0))
    if request.mib is not None:
        size = say("size.mib", mib=param.mib(request.mib))
    return size if request.count == 1 else say("size.times", count=param.count(request.count), size=size)
