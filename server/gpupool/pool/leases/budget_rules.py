"""GPU-seconds of a user in a window: who has used them up asks in vain until the window is over, and gives back what is held.

What counts is what was granted, not what was used: milli-GPU times seconds, live leases included.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gpupool.model.state import LeaseRecord, State
from gpupool.pool.leases import lease_rules, notice_rules
from gpupool.pool.model.step import Step
from gpupool.pool.projects import accounts, limit_rules, standing_view
from gpupool.scheduler.model import Decision, Outcome
from gpupool.sentences import NOTHING, Sentence, clauses, param, say

#: Milli-GPU-milliseconds of a GPU-second.
_MILLI_MS = 1_000_000
#: Why leases end here. Not ``quota``: that is why a request is refused.
REASON: Final = "budget"
#: An end that moves by less is not told anew, seconds.
_WORTH_TELLING = 0.5


def refused(step: Step, user: str, milli: int, duration: float) -> Decision | None:
    """Why a user's budget does not allow `milli` for `duration` seconds (0: until it is used up); None: it does."""
    limit = limit_rules.limit_of(step.state, user).gpu_seconds
    if limit is None:
        return None
    window = accounts.used_in_window(step.state, user, step.now)
    left = limit * _MILLI_MS - window.milli_ms
    asked = round(milli * duration * 1000)
    # A lease whose end comes before the next tick is told of it too late, and would last for a whole notice.
    rate = milli + sum(lease.milli for lease in step.state.index.holding_of_user.of(user))
    least = round(rate * step.timers.tick * 1000)
    if left > 0 and max(asked, least) <= left:
        return None
    length = accounts.window_seconds(step.state, user)
    resets = length if window.ends is None else max(0, round(window.ends - step.now))
    facts: dict[str, int | str] = {
        "user": user,
        "budget_gpu_seconds": limit,
        "used_gpu_seconds": round(window.gpu_seconds),
        "left_gpu_seconds": max(0, left // _MILLI_MS),
        "resets_in_seconds": resets,
    }
    if asked > 0:
        facts["asked_gpu_seconds"] = asked // _MILLI_MS
    wants = NOTHING
    if asked:
        wants = say(
            "budget.asked",
            milli=param.milli(milli),
            duration=param.seconds(duration),
            gpu_seconds=param.number(asked / _MILLI_MS),
        )
    said = say(
        "budget.left",
        user=param.user(user),
        used=param.number(window.gpu_seconds),
        limit=param.number(limit),
        left=param.number(max(0, left) / _MILLI_MS),
        again=param.seconds(resets),
    )
    short = NOTHING
    if 0 < left < least:
        short = say("budget.too-little", milli=param.milli(rate), seconds=param.seconds(step.timers.tick))
    return Decision(Outcome.REFUSE, "quota", clauses(wants, said, short), facts=facts)


def ends(state: State, now: float) -> dict[str, float]:
    """When the leases of a user end because the budget is used up, as things stand, by user.

    A user who is not named has enough for the present window.
    """
    if all(record.gpu_seconds is None for record in state.limits.values()):
        return {}
    held: dict[str, list[LeaseRecord]] = {}
    for lease in state.index.holding.records():
        held.setdefault(lease.user, []).append(lease)
    found = {}
    for user, leases in held.items():
        limit = limit_rules.limit_of(state, user).gpu_seconds
        rate = sum(lease.milli for lease in leases)
        if limit is None or not rate:
            continue
        window = accounts.used_in_window(state, user, now, leases)
        end = now + max(0, limit * _MILLI_MS - window.milli_ms) / rate / 1000
        if window.ends is None or end < window.ends:
            found[user] = end
    return found


def tick(step: Step) -> None:
    """Ends the leases of those whose budget is used up, and says so before, as long as for any other end."""
    ending = ends(step.state, step.now)
    index = step.state.index
    concerned = {lease.id: lease for user in ending for lease in index.holding_of_user.of(user)}
    concerned |= {lease.id: lease for lease in index.noticed.records() if _noticed(lease)}
    live = [lease for lease in concerned.values() if lease.live]
    for parts in standing_view.wholes(live).values():
        end = ending.get(parts[0].user, math.inf)
        if end <= step.now:
            _end(step, parts)
        elif end <= step.now + step.timers.notice:
            _note(step, parts, end)
        elif _noticed(parts[0]):
            why = say("budget.longer", user=param.user(parts[0].user))
            notice_rules.withdraw(step, [parts], why)


def _end(step: Step, parts: Sequence[LeaseRecord]) -> None:
    """Ends what has been told of its end; a limit that was set just now, or lowered, ends nothing without a word.

    A lease that has been told of another end goes then, if that is at most a notice from now. Otherwise it gets this notice
    in its place.
    """
    notice = parts[0].notice
    until = step.now + step.timers.notice
    if notice is None or (not _noticed(parts[0]) and notice.until > until):
        notice_rules.give_end(step, parts, REASON, until, _why(step, parts[0].user))
    elif _noticed(parts[0]) and notice.until <= step.now:
        for part in parts:
            lease_rules.begin_release(step, step.state.leases[part.id], REASON, _why(step, part.user))


def _note(step: Step, parts: Sequence[LeaseRecord], end: float) -> None:
    """Gives the notice, unless the lease has one; what its user takes or gives back meanwhile moves the end."""
    notice = parts[0].notice
    if notice is None:
        notice_rules.give_end(step, parts, REASON, end, _why(step, parts[0].user))
    elif _noticed(parts[0]) and abs(notice.until - end) >= _WORTH_TELLING:
        for part in parts:
            step.state.leases[part.id] = replace(part, notice=replace(notice, until=end))


def _noticed(lease: LeaseRecord) -> bool:
    return lease.notice is not None and lease.notice.reason == REASON


def _why(step: Step, user: str) -> Sentence:
    limit = limit_rules.limit_of(step.state, user).gpu_seconds or 0
    held = step.state.index.holding_of_user.of(user)
    window = accounts.used_in_window(step.state, user, step.now, held)
    left = limit - window.gpu_seconds
    said = say(
        "budget.ends-soon" if left > 0 else "budget.ends",
        user=param.user(user),
        used=param.number(min(limit, window.gpu_seconds)),
        limit=param.number(limit),
        left=param.number(left),
        milli=param.milli(sum(lease.milli for lease in held)),
    )
    again = param.seconds(max(0.0, (window.ends or step.now) - step.now))
    return clauses(said, say("budget.then", again=again))
