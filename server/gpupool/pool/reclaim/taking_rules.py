"""Who gets room that is coming, and whose leases are taken back for it.

Requests that do not fit now are judged, in their order, against the pool as it is going to be: without the leases that are
being given back, without those that end for requests before them, and with what these requests will have. So room that comes
anyway is used before anybody else is asked to go, and what one large lease leaves is shared by several small requests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from gpupool.model.state import LeaseRecord, RequestRecord
from gpupool.pool.leases import notice_rules
from gpupool.pool.model.consolidation import Consolidation
from gpupool.pool.model.step import Step
from gpupool.pool.projects import standing_view
from gpupool.pool.reclaim import taking_view
from gpupool.records import replace
from gpupool.scheduler import explain, reclaim
from gpupool.scheduler.fairshare.standings import Standings
from gpupool.scheduler.model import Decision, Outcome, Request
from gpupool.scheduler.pool_view import PoolView
from gpupool.scheduler.reclaim import Candidate, Plan, Search
from gpupool.scheduler.relocate import relocation
from gpupool.scheduler.sizes import place_on
from gpupool.sentences import Sentence, param, say
from gpupool.shares import Share, least_milli

#: Shown by name in an explanation, no more.
_MAX_SHOWN = 3
#: With no more requests that wait, the pool as it is and as it is going to be share their columns.
_FEW = 32


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request that does not fit now.

    Attributes:
        milli: what it takes.
        reserved: devices that it may not count on, because they are kept for others.
        resumed: the sessions that go on by it.
        decide: the scheduler's word on it.
        now: what it says of the pool as it is.
        seen: that pool, in which it has no room; None: something else is in its way.
    """

    request: RequestRecord
    wish: Request
    milli: int
    reserved: frozenset[str]
    resumed: Collection[str]
    decide: Callable[[PoolView], Decision]
    now: Decision
    seen: PoolView | None = None


class TakingBack:
    """The pool as it is going to be, seen from one look at the queue."""

    def __init__(
        self,
        step: Step,
        view: PoolView,
        standings: Standings,
        owed: Collection[str],
        taken: Collection[str],
    ) -> None:
        """Begins with the pool as it is.

        Args:
            step: the step of the machine that this is part of.
            view: what the scheduler sees now.
            standings: where projects stand; changes with what is counted on.
            owed: requests for which room is being made and that have not been decided in this look; changes as they are.
            taken: requests for which somebody was told to go.
        """
        self._standings = standings
        self._owed, self._taken = owed, taken
        #: Requests that will have what is counted on for them.
        self.expected: set[str] = set()
        #: Leases whose sessions are idle; None: nobody has asked yet.
        self._idle: list[str] | None = None
        #: Leases that have a notice, by the request it is for; "": requests that are gone.
        self._noticed: dict[str, set[str]] = {}
        for name, parts in taking_view.wholes(step, step.state.index.noticed.records()):
            notice = parts[0].notice
            if parts[0].live and notice is not None and notice.for_request:
                owner = notice.for_request if notice.for_request in step.state.requests else ""
                self._noticed.setdefault(owner, set()).add(name)
        ending = taking_view.wholes(step, step.state.index.releasing.records())
        leaving = [taking_view.candidate(step, parts) for _, parts in ending if not parts[0].live]
        # Few are asked about the present and the future in turns without columns for each, which cost their upkeep.
        seen = view.aside() if len(step.state.requests) > _FEW else view
        self._future = reclaim.after(seen, leaving)

    def granted(self, parts: Sequence[LeaseRecord], resumed: Collection[str]) -> None:
        """Counts a lease that has been granted now."""
        self._future = self._future.resuming(resumed)
        for part in parts:
            self._future = self._future.taking(part.shares, part.user, part.id)

    def make_room(self, step: Step, wanted: Wanted) -> Decision | None:
        """What a request waits for, when room is coming or can be taken back for it; None: nothing comes of it."""
        base = self._future.resuming(wanted.resumed).reserving(wanted.reserved)
        mine = sorted(self._noticed.get(wanted.request.id, ()))
        # Where nothing is coming, there is no room as there is none now.
        coming = wanted.now if wanted.seen is not None and wanted.seen.is_same(base) else wanted.decide(base)
        if reclaim.serves(coming):
            self.forgo(step, mine, say("forgo.enough"))
            self._expect(step, wanted, base, Plan((), coming))
            return self._waits(step, wanted, coming, ())
        if self._gives_up_first(step, wanted, mine):
            return None
        search = Search(wanted.wish, wanted.decide, lambda victims: self._allowed(wanted, victims))
        found = self._as_planned(step, base, search, mine)
        if found is None:
            with self._kept_for_later(step, wanted):
                moves = self._moves(step, wanted, base, mine)
                if moves is not None:
                    return moves
                possible = self._possible(step, wanted, mine)
                found = reclaim.plan(base, search, possible) if possible else None
        return self._take(step, wanted, base, mine, found)

    def make_room_below_limit(self, step: Step, wanted: Wanted, excess: int) -> Decision | None:
        """What a request waits for whose project is at a limit: leases of the project that matter less end for it.

        Beside them others may have to, where there is no room either. None: nothing comes of it.

        Args:
            step: the step of the machine that this is part of.
            wanted: the request, with its size.
            excess: milli-GPU that the project would have above the limit.
        """
        base = self._future.resuming(wanted.resumed).reserving(wanted.reserved)
        mine = sorted(self._noticed.get(wanted.request.id, ()))
        if self._gives_up_first(step, wanted, mine):
            return None
        own = self._standings.tree.leaf(wanted.request.project)
        possible = self._possible(step, wanted, mine)
        below = [x for x in possible if step.state.leases[x.id].project == own]
        # Those who were told to go already, if that is enough.
        forced = reclaim.freeing([x for x in below if x.id in mine], excess) or reclaim.freeing(below, excess)
        found = self._plan_beside(step, wanted, base, mine, forced) if forced else None
        return self._take(step, wanted, base, mine, found)

    def _gives_up_first(self, step: Step, wanted: Wanted, mine: Collection[str]) -> bool:
        """Whether a request does not wait as long as a notice lasts: then only leases that have one could end for it."""
        give_up_at = wanted.request.give_up_at
        hurried = give_up_at is not None and give_up_at < step.now + step.timers.notice
        return hurried and not mine and not self._noticed.get("")

    def _plan_beside(
        self, step: Step, wanted: Wanted, base: PoolView, mine: Sequence[str], forced: Sequence[Candidate]
    ) -> Plan | None:
        """`forced`, and who has to end beside them so that the request has room; None: it is not had by that."""
        leases = [held for victim in forced if (held := self._standings.lease(victim.id))]
        self._standings.without([held.id for held in leases])
        try:
            if not self._standings.admit(wanted.request.project, wanted.milli, wanted.request.kind):
                return None
            freed = reclaim.after(base, forced)
            alone = wanted.decide(freed)
            found: Plan | None = Plan((), alone)
            if not reclaim.serves(alone):
                search = Search(wanted.wish, wanted.decide, lambda victims: self._allowed(wanted, victims))
                others = [x for x in self._possible(step, wanted, mine) if x not in forced]
                found = reclaim.plan(freed, search, others)
        finally:
            for held in leases:
                self._standings.granted(held)
        return None if found is None else Plan((*forced, *found.victims), found.decision)

    def _take(
        self, step: Step, wanted: Wanted, base: PoolView, mine: Sequence[str], found: Plan | None
    ) -> Decision | None:
        """Tells those of a plan to go, and those of the last one who are not in it to stay."""
        chosen = sorted(victim.id for victim in found.victims) if found is not None else []
        ends = {name: self._ends_at(step, name) for name in chosen}
        give_up_at = wanted.request.give_up_at
        in_vain = give_up_at is not None and any(end > give_up_at for end in ends.values())
        if found is None or not chosen or in_vain:
            self.forgo(step, mine, say("forgo.in-vain"))
            return None
        self.forgo(step, [name for name in mine if name not in chosen], say("forgo.not-needed"))
        for name, until in ends.items():
            self._notice(step, wanted, name, until)
        self._standings.leave(chosen)
        self._expect(step, wanted, base, found)
        return self._waits(step, wanted, found.decision, chosen)

    @contextmanager
    def _kept_for_later(self, step: Step, wanted: Wanted) -> Iterator[None]:
        """Judges as if those behind it, of its project and priority, had what others were told to give back to them.

        Else a stream of requests with a short ``--for`` could have the notice of one that is overtaken begin again and
        again. Among those for whom somebody has been told to go, the order alone decides.
        """
        kept = []
        for owner in self._owed if wanted.request.id not in self._owed else ():
            request = step.state.requests.get(owner)
            if request is None or owner not in self._taken:
                continue
            if (request.project, request.priority) == (wanted.request.project, wanted.request.priority):
                names = sorted(self._noticed.get(owner, ()))
                kept.append((request, [held for name in names if (held := self._standings.lease(name))]))
        for request, leases in kept:
            milli = least_milli(
                (device.usable for device in self._future.devices), request.milli, request.mib, request.count
            )
            self._standings.without([held.id for held in leases])
            self._standings.granted(standing_view.expected_lease(request, milli, step.now))
        try:
            yield
        finally:
            for request, leases in kept:
                self._standings.without([standing_view.expected_name(request)])
                for held in leases:
                    self._standings.granted(held)

    def _moves(self, step: Step, wanted: Wanted, base: PoolView, mine: Sequence[str]) -> Decision | None:
        """Lets leases go on elsewhere so that a request fits; None: there is no way, or they are not wanted to.

        Only for a project that is entitled to what it asks, and nobody who computes within what is theirs is disturbed,
        unless the administrator has it so.
        """
        if step.consolidate is Consolidation.OFF:
            return None
        if not self._standings.entitled(wanted.request.project, wanted.milli):
            return None
        movable = {}
        for name in self._free_to_move(step, mine):
            parts = taking_view.parts_of(step, name)
            unspoken = parts[0].notice is None or name in mine
            if unspoken and (could := taking_view.movable(step, parts)) is not None:
                movable[name] = could
        found = relocation(base, wanted.wish, movable) if movable else None
        if found is None:
            return None
        targets = {move.lease_id: move.target for move in found.moved}
        ends = {name: self._ends_at(step, name) for name in targets}
        give_up_at = wanted.request.give_up_at
        if give_up_at is not None and max(ends.values()) > give_up_at:
            return None
        after = reclaim.after(
            base, [taking_view.candidate(step, taking_view.parts_of(step, name)) for name in targets]
        )
        for name, target in targets.items():
            after = after.taking((target,), step.state.leases[name].user, f"moved {name}")
        decision = wanted.decide(after)
        if not reclaim.serves(decision):
            return None
        self.forgo(step, [name for name in mine if name not in targets], say("forgo.not-needed"))
        for name, until in ends.items():
            self._noticed.get("", set()).discard(name)
            self._noticed.setdefault(wanted.request.id, set()).add(name)
            notice_rules.give_move(
                step, taking_view.parts_of(step, name), wanted.request, wanted.milli, until, targets[name]
            )
        self._expect(step, wanted, after, Plan((), decision))
        # Where they go on nobody else may go meanwhile.
        kept = dict.fromkeys((*reclaim.places(decision), *(target.device_id for target in targets.values())))
        seconds = round(max(0.0, max(ends.values()) - step.now))
        moved = [
            say(
                "moves.lease",
                user=param.user(step.state.leases[name].user),
                device=param.device(targets[name].device_id),
            )
            for name in sorted(targets)
        ]
        said = say(
            "moves",
            milli=param.milli(wanted.milli),
            count=param.count(len(targets)),
            leases=moved,
            seconds=param.seconds(seconds),
        )
        facts: dict[str, int | str] = {
            "asked_milli": wanted.milli, "free_in_seconds": seconds, "moved_leases": len(targets)
        }  # fmt: skip
        return Decision(Outcome.QUEUE, "notice", said, wants=tuple(kept), facts=facts)

    def _free_to_move(self, step: Step, mine: Collection[str]) -> list[str]:
        """Leases that may go on elsewhere as far as their own rights go: those that are not protected, and idle ones."""
        leases = step.state.leases
        if step.consolidate is Consolidation.ANY:
            return [
                name
                for name, parts in taking_view.wholes(step, step.state.index.holding.records())
                if parts[0].live
            ]
        if self._idle is None:
            resting = (leases[session.lease_id] for session in step.state.index.resting.records())
            wholes = [(name, parts[0]) for name, parts in taking_view.wholes(step, resting)]
            self._idle = [name for name, first in wholes if first.live and taking_view.is_idle(step, first)]
        exposed = {held.id for held in self._standings.exposed() if held.id in leases}
        exposed.update(name for name in mine if not self._standings.is_protected(name))
        return sorted(exposed.union(self._idle), key=leases.place)

    def room_is_made(self, step: Step, wanted: Wanted, decision: Decision) -> None:
        """A request waits for nothing but memory of parked sessions that leaves its devices."""
        self.forgo(step, sorted(self._noticed.get(wanted.request.id, ())), say("forgo.comes-anyway"))
        self._expect(step, wanted, self._future.resuming(wanted.resumed), Plan((), decision))

    def forgo(self, step: Step, names: Sequence[str], why: Sentence) -> None:
        """Withdraws notices."""
        if names:
            notice_rules.withdraw(step, [taking_view.parts_of(step, name) for name in names], why)
        for owned in self._noticed.values():
            owned.difference_update(names)

    def noticed_for(self) -> list[str]:
        """Requests that wait, for which leases have a notice."""
        return [request for request in self._noticed if request]

    def forgo_unjudged(self, step: Step, served: Collection[str]) -> None:
        """Withdraws notices whose request is gone, or was not found to be helped by them in this look.

        Args:
            step: the step of the machine that this is part of.
            served: requests for which room is being made, beside those that are expected to have some.
        """
        for request, names in list(self._noticed.items()):
            if request not in step.state.requests:
                self.forgo(step, sorted(names), say("forgo.gone"))
            elif request not in self.expected and request not in served:
                self.forgo(step, sorted(names), say("forgo.in-vain"))

    def _as_planned(self, step: Step, base: PoolView, search: Search, mine: Sequence[str]) -> Plan | None:
        """The plan of last time, less what it does not need any more; None: there is none, or it has come to nothing."""
        notices = [step.state.leases[name].notice for name in mine]
        if any(notice.target for notice in notices if notice is not None):
            return None  # they were to move, which is looked for anew
        victims = tuple(taking_view.candidate(step, taking_view.parts_of(step, name)) for name in mine)
        if not victims or not search.allowed(victims):
            return None
        decision = search.decide(reclaim.after(base, victims))
        if not reclaim.serves(decision):
            return None
        return reclaim.without_spare(base, search, Plan(victims, decision))

    def _possible(self, step: Step, wanted: Wanted, mine: Sequence[str]) -> list[Candidate]:
        """Leases that may be taken back; those that have not begun to serve and those promised to others left out."""
        request = wanted.request
        free_to_use = {*mine, *self._noticed.get("", ())}
        found = []
        for held in self._standings.takeable(request.project, wanted.milli, priority=request.priority):
            if held.id not in step.state.leases:
                continue  # it is only expected
            parts = taking_view.parts_of(step, held.id)
            unspoken = parts[0].notice is None or held.id in free_to_use
            if unspoken and all(part.state == "attached" for part in parts):
                found.append(taking_view.candidate(step, parts))
        return found

    def _allowed(self, wanted: Wanted, victims: Sequence[Candidate]) -> bool:
        names, request = [victim.id for victim in victims], wanted.request
        return bool(
            self._standings.may_take_from(request.project, wanted.milli, names, priority=request.priority)
        )

    def _ends_at(self, step: Step, name: str) -> float:
        """When a lease would end: after the notice, and not before it has run a while; a notice that is given stays."""
        lease = step.state.leases[name]
        if lease.notice is not None:
            return lease.notice.until
        return max(step.now + step.timers.notice, lease.granted_at + taking_view.min_run(step, lease))

    def _notice(self, step: Step, wanted: Wanted, name: str, until: float) -> None:
        parts = taking_view.parts_of(step, name)
        self._noticed.get("", set()).discard(name)
        self._noticed.setdefault(wanted.request.id, set()).add(name)
        if parts[0].notice is None or parts[0].notice.for_request != wanted.request.id:
            standing = self._standings.standing(self._standings.tree.leaf(parts[0].project))
            notice_rules.give(step, parts, wanted.request, wanted.milli, until, standing)

    def _expect(self, step: Step, wanted: Wanted, base: PoolView, found: Plan) -> None:
        """Counts on what the request is going to have."""
        self.expected.add(wanted.request.id)
        self._standings.granted(standing_view.expected_lease(wanted.request, wanted.milli, step.now))
        future = reclaim.after(base, found.victims).reserving(())
        shares = found.decision.shares
        if not shares:
            share = Share(milli=wanted.wish.milli, mib=wanted.wish.mib)
            devices = [future.device(name) for name in found.decision.wants]
            placed = [place_on(device, share) for device in devices if device is not None]
            shares = tuple(one for one in placed if one is not None)
        self._future = future.taking(shares, wanted.request.user, standing_view.expected_name(wanted.request))

    def _waits(self, step: Step, wanted: Wanted, decision: Decision, chosen: Sequence[str]) -> Decision:
        """What the request is told."""
        devices = reclaim.places(decision)
        ends = [self._ends_at(step, name) for name in chosen] or [
            lease.notice.until
            for lease in step.state.index.noticed.records()
            if lease.live and lease.notice is not None and any(s.device_id in devices for s in lease.shares)
        ]
        seconds = round(max(0.0, max(ends, default=step.now) - step.now))
        facts: dict[str, int | str] = {"asked_milli": wanted.milli, "free_in_seconds": seconds}
        figures = {"milli": param.milli(wanted.milli), "seconds": param.seconds(seconds)}
        if chosen:
            leases = [taking_view.parts_of(step, name) for name in chosen]
            listed = [taking_view.asked_back(parts) for parts in leases]
            if len(listed) > _MAX_SHOWN:
                listed = [*listed[:_MAX_SHOWN], say("more", count=param.count(len(listed) - _MAX_SHOWN))]
            facts["taken_back_milli"] = sum(
                share.milli for x in leases for part in x for share in part.taken()
            )
            said = say("asked-back", leases=listed, **figures)
        elif ends:
            said = say("room-enough", devices=explain.names(devices), **figures)
        else:
            # Leases that are being given back: a matter of a moment, not worth another word.
            return replace(wanted.now, reason="notice", wants=devices, facts={**wanted.now.facts, **facts})
        return Decision(Outcome.QUEUE, "notice", said, wants=devices, facts=facts)
