"""The queue: requests wait in order, are granted, give up. What the order is, see `queue_pass` and `waiting`.

Whenever room, health or the queue changes, all who wait are looked at. A new request is decided at once, by itself. Places
are told at once to whom they concern first, and to all others as long as they are few; else once a tick.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gpupool.model import events
from gpupool.model.instructions import Fault, TellQueued, TellRefused
from gpupool.model.state import RequestRecord
from gpupool.model.state_index import is_owed
from gpupool.pool.leases import gang_rules, notice_rules, parking_rules
from gpupool.pool.model import messages
from gpupool.pool.model.step import Step
from gpupool.pool.projects import accounts, limit_rules
from gpupool.pool.projects.standing_view import capacity
from gpupool.pool.queue.alone import granted_alone
from gpupool.pool.queue.eta import eta_of
from gpupool.pool.queue.queue_pass import QueuePass
from gpupool.pool.queue.request_view import current_view, resumed_by
from gpupool.pool.queue.said import Said
from gpupool.records import replace
from gpupool.scheduler.model import Decision, Outcome
from gpupool.sentences import NOTHING, Sentence, clauses, param, say

#: Up to so many requests are told of every change at once.
ALL_TOLD = 50
#: Requests that one look may fail at; when more fail, nothing of the look counts.
_MOST_FAULTS = 2
#: So often the queue is looked at again at once because room that was being made for somebody is not needed any more.
_LOOKS = 3


def grows(step: Step, event: events.PoolGrows) -> None:
    """Those who wait are told what is done so that the pool grows for them."""
    said = dict(event.said)
    for request in list(step.state.requests.values()):
        growth = said.get(request.id, NOTHING)
        if growth != request.growth:
            step.state.requests[request.id] = replace(request, growth=growth)
            step.queue.untold = step.reschedule = True


def schedule(step: Step) -> None:
    """Looks at every waiting request, in order, and at the notices that were given for some of them."""
    step.reschedule = False
    memory = step.queue
    follow(step)
    memory.latest = None
    if not step.state.requests and not notice_rules.any_for_requests(step):
        memory.forget_full()
        return
    if _still_comes_back(step):
        # What the nodes have is not known yet: a notice would be withdrawn for nothing, a place lost.
        memory.untold = True
        _move_up(step)
        return
    for _ in range(_LOOKS):
        # A request that waits for room that is being made keeps it from others until that comes to nothing.
        owed_before = look_at_all(step).owed_before
        if all(is_owed(request.decision) for request in _still_waiting(step, owed_before)):
            break
    memory.looked_at, memory.untold = step.now, True
    if len(memory.waiting) <= ALL_TOLD or _time_to_tell(step):
        tell_places(step)
    step.reschedule = False


def look_at_all(step: Step) -> QueuePass:
    """One look at all who wait."""
    step.queue.latest = None  # what is held need not be copied when it changes for a look that is over
    look = step.queue.latest = QueuePass(step, _usage(step))
    for request_id in look.in_order(step):
        request = step.state.requests.get(request_id)
        if request is not None:
            _answer(step, look, request)
    follow(step)
    _give_up(step, look)
    look.taking_back.forgo_unjudged(
        step, {name for name, said in look.decisions.items() if is_owed(said.bare)}
    )
    return look


def arrived(step: Step, request: RequestRecord) -> None:
    """Decides a new request alone, as long as nothing else has changed: others that wait had no room, and have none now.

    While few wait all are looked at: the order among projects changes with what each asks for, and so does who is before
    whom. One that nobody waits beside is not compared with anybody.
    """
    memory = step.queue
    follow(step)
    if _grant_alone(step, request):
        return
    if memory.latest is None or step.reschedule or len(memory.waiting) <= ALL_TOLD:
        schedule(step)
        return
    look = memory.latest
    lane = memory.waiting.lane(request.id)
    look.standings.refresh()
    look.view = current_view(step)
    full = look.full.get(lane)
    if full is None or memory.waiting.lanes[lane][0] == memory.waiting.entry(request.id):
        _answer(step, look, request)
    else:
        _wait_or_leave(step, look, request, full)
    follow(step)
    # Others may be entitled to less, or stand a place further behind; that can wait a moment.
    memory.untold = True
    if len(memory.waiting) <= ALL_TOLD:
        tell_places(step)
    step.reschedule = False


def _grant_alone(step: Step, request: RequestRecord) -> bool:
    """Grants a request if nobody else waits and nothing has to be weighed for it; False: it has to be looked at."""
    if len(step.queue.waiting) > 1 or step.reschedule or _still_comes_back(step):
        return False
    if notice_rules.any_for_requests(step):
        return False
    decision = granted_alone(step, request)
    if decision is None:
        return False
    gang_rules.grant(step, request, decision)
    follow(step)
    step.queue.changed()
    step.reschedule = False
    return True


def _still_comes_back(step: Step) -> bool:
    """Whether the pool was just started, and a node of before has not said hello yet."""
    if step.now >= step.queue.began_at + step.timers.return_:
        return False
    return any(
        node.connection is None and not node.lost and not node.given_back
        for node in step.state.nodes.values()
    )


def looks_again(step: Step) -> bool:
    """Whether it is time for another look though nothing has happened: what was used fades, and limits come to their end."""
    memory = step.queue
    if not step.state.requests:
        return False
    return (memory.untold and _time_to_tell(step)) or step.now >= memory.looked_at + step.timers.renew


def _time_to_tell(step: Step) -> bool:
    """Once a tick; less often the more there are: callers hear of a place as seldom (`PoolShell.place_seconds`)."""
    memory = step.queue
    return step.now >= memory.told_at + step.timers.tick * (1 + len(memory.waiting) // 500)


def tell_places(step: Step) -> None:
    """Tells all who wait where they stand now."""
    memory = step.queue
    look = memory.latest
    memory.told_at, memory.untold = step.now, False
    if look is None:
        return
    # Those of one lane are told the same words: they are put together once, and are one object.
    words: dict[tuple[int, int], Sentence] = {}
    for place, request_id, said in list(look.places(step)):
        request = step.state.requests.get(request_id)
        if request is not None and said is not None:
            decision = _in_full(step, request, said)
            key = id(decision.said), id(request.growth)
            if key not in words:
                words[key] = clauses(decision.said, request.growth)
            _tell_place(step, look, request, place, decision, words[key])


def _move_up(step: Step) -> None:
    """Fills the places of those who left the queue, without a look at what the others could get."""
    if len(step.state.requests) > ALL_TOLD:
        return
    told = sorted((x for x in step.state.requests.values() if x.place), key=lambda x: x.place)
    for place, request in enumerate(told, 1):
        if request.place != place:
            step.state.requests[request.id] = replace(request, place=place, told=(place, request.said))
            step.do(TellQueued(request.user, request.key, place, request.said, request.eta))


def _answer(step: Step, look: QueuePass, request: RequestRecord) -> None:
    try:
        said = look.offer(step, request)
    except Exception as error:
        # One wish that the pool cannot weigh must not keep all others from being served, at this look and at each later one.
        # Where several fail, it is not for their wishes: all keep their places, and the next look tries again.
        look.faults += 1
        if look.faults > _MOST_FAULTS or isinstance(error, MemoryError):
            raise
        step.do(Fault("a request could not be decided", request.user, request.key, error))
        look.failed(request)
        _refuse(step, request, Decision(Outcome.REFUSE, "fault", say("request-failed")))
        return
    decision = said.bare
    if decision.outcome is Outcome.GRANT:
        resumed = resumed_by(step, request)
        gang_rules.grant(step, request, decision)
        follow(step)
        look.granted(step, request, resumed)
        return
    _wait_or_leave(step, look, request, said)
    begun = False
    for session_id in decision.evict:
        where = "image" if session_id in decision.to_disk else "host"
        begun = parking_rules.begin(step, session_id, where, decision.said) or begun
    if begun:
        look.view = current_view(step)


def _wait_or_leave(step: Step, look: QueuePass, request: RequestRecord, said: Said) -> None:
    decision = said.bare
    # Room that is being made is as good as there: it is waited for, also by who would not wait for others.
    waits = request.give_up_at is None or request.give_up_at > step.now or bool(decision.evict)
    if decision.outcome is Outcome.REFUSE or not waits:
        look.forget(request.id)
        _refuse(step, request, _with_advice(step, request, said))
    elif request.told is None:
        told = _in_full(step, request, said)
        words = clauses(told.said, request.growth)
        _tell_place(step, look, request, look.place_of(step, request), told, words)
    elif is_owed(request.decision) != is_owed(decision):
        step.state.requests[request.id] = replace(
            request, decision=_in_full(step, request, said), wants=decision.wants
        )
    elif request.wants != decision.wants:
        # Why it waits it is told when all are told their places.
        step.state.requests[request.id] = replace(request, wants=decision.wants)


def _in_full(step: Step, request: RequestRecord, said: Said) -> Decision:
    """What one who goes on waiting is told: with what would help, if there is anybody who reads it."""
    return _with_advice(step, request, said) if step.advises else said.bare


def _with_advice(step: Step, request: RequestRecord, said: Said) -> Decision:
    """A decision with what would help; alone, if that cannot be found out."""
    try:
        return said.in_full()
    except Exception as error:
        step.do(Fault("what would help a request could not be found", request.user, request.key, error))
        return said.without_advice()


def _give_up(step: Step, look: QueuePass) -> None:
    """Those whose patience is over, and who were told no more than others of their lane."""
    for request in step.state.index.give_up.until(step.now):
        if request.id not in look.decisions:
            said = look.full.get(step.queue.waiting.lane(request.id))
            if said is not None:
                _refuse(step, request, _with_advice(step, request, said))
    follow(step)


def _still_waiting(step: Step, requests: Iterable[str]) -> Iterator[RequestRecord]:
    return (request for name in requests if (request := step.state.requests.get(name)) is not None)


def follow(step: Step) -> None:
    """Brings what is remembered of the queue in step with the state."""
    step.queue.follow(step.state, limit_rules.is_limited(step.state, step.quotas))


def _tell_place(
    step: Step, look: QueuePass, request: RequestRecord, place: int, decision: Decision, said: Sentence
) -> None:
    eta = eta_of(step, look.view, request, decision) if place == 1 or decision.reason == "notice" else None
    told = (place, said)
    wants = decision.wants if request.id in look.decisions else ()
    # Where there are words, numbers in them change from look to look, and to compare them takes as long as to tell them.
    same = decision is request.decision or (not step.says and decision == request.decision)
    if same and (eta, wants, told) == (request.eta, request.wants, request.told):
        return
    step.state.requests[request.id] = replace(
        request, place=place, said=said, eta=eta, wants=wants, told=told, decision=decision
    )
    if request.told is None:
        step.journal(
            "queue", said, user=request.user, session_id=request.session_id,
            data={"place": place, "reason": decision.reason, "key": request.key},
        )  # fmt: skip
    if request.told != told:
        step.do(TellQueued(request.user, request.key, place, said, eta))


def _refuse(step: Step, request: RequestRecord, decision: Decision) -> None:
    """Ends a request without a lease."""
    waited = step.now - request.since
    gave_up = decision.outcome is Outcome.QUEUE and request.told is not None
    reason, said = decision.reason, decision.said
    if decision.outcome is Outcome.QUEUE and reason in ("notice", "turn"):
        reason = "full"  # what it would have waited for is no reason to refuse it for
    if gave_up:
        reason, said = "timeout", say("timeout", waited=param.seconds(waited), why=decision.said)
    del step.state.requests[request.id]
    refused = TellRefused(request.user, request.key, reason, said, request, decision)
    step.do(refused)
    messages.journal_refusal(step, refused, request.session_id)


def _usage(step: Step) -> Mapping[str, float]:
    return accounts.parts_of_pool(step.state, step.timers, step.now, capacity(step.state))
