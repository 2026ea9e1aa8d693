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

from gpupool.model.state import RequestRecord, key_of
from gpupool.model.state_index import is_owed
from gpupool.pool.leases import budget_rules, notice_rules
from gpupool.pool.model.step import Step
from gpupool.pool.model.waiting import Entry, Lane, Waiting
from gpupool.pool.projects import limit_rules, live_holdings, standing_view
from gpupool.pool.projects.project_rules import project_tree
from gpupool.pool.queue.claims import Claims
from gpupool.pool.queue.kept_devices import KeptDevices
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
from gpupool.scheduler.model import Decision, Outcome, Request
from gpupool.scheduler.pool_view import PoolView
from gpupool.sentences import Sentence, clauses, param, say


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
        taken = notice_rules.taken_for(step) if self.owed else frozenset()
        self._kept = KeptDevices(waiting, self.owed, taken)
        #: Of lanes whose requests have no room now: in which view, without which devices, and what was said.
        self._full_now: dict[Lane, tuple[PoolView, frozenset[str], Decision]] = {}
        #: Wishes for which there is no room, whoever has them.
        self._no_room: dict[Lane, Said] = {}
        self.taking_back = TakingBack(step, self.view, self.standings, self.owed, taken)
        #: Those for whom room is being made, by their lanes, in order.
        self._promised = waiting.entries({*self.owed, *self.taking_back.noticed_for()})
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
            counted = request.id in self.taking_back.expected
            self._kept.keep(request, lane.rank(entry), self.turns[request.id], decision, counted=counted)
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
        self._kept.forget(request_id)

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
        """Devices that are kept for others, see `kept_devices`."""
        rank, order = lane.rank(entry), self.turns[request.id]
        return self._kept.from_request(step, self.view, request, lane, rank, order, in_future=in_future)

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
