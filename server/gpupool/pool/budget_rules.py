"""GPU-seconds of a user in a window: who has used them up asks in vain until the window is over, and gives back what is held.

What counts is what was granted, not what was used: milli-GPU times seconds, live leases included.
"""

from __future__ import annotations

from gpupool.pool import accounts, lease_rules, limit_rules
from gpupool.pool.state import LeaseRecord, State
from gpupool.pool.step import Step
from gpupool.scheduler.explain import gpu
from gpupool.scheduler.model import Decision, Outcome

#: Milli-GPU-milliseconds of a GPU-second.
_MILLI_MS = 1_000_000


def refused(step: Step, user: str, milli: int, duration: float) -> Decision | None:
    """Why a user's budget does not allow `milli` for `duration` seconds (0: until it is used up); None: it does."""
    limit = limit_rules.limit_of(step.state, user).gpu_seconds
    if limit is None:
        return None
    window = accounts.used_in_window(step.state, user, step.now)
    left = limit * _MILLI_MS - window.milli_ms
    asked = round(milli * duration * 1000)
    if left > 0 and asked <= left:
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
    wants = f"{gpu(milli)} GPU for {duration:g} s is {asked / _MILLI_MS:.0f} GPU-seconds; " if asked else ""
    text = (
        f"{wants}{user} has used {window.gpu_seconds:.0f} of {limit} GPU-seconds, {max(0, left) / _MILLI_MS:.0f} are "
        f"left, and all of them are there again in {in_words(resets)}"
    )
    return Decision(Outcome.REFUSE, "quota", text, facts=facts)


def ends(state: State, now: float) -> dict[str, float]:
    """When the leases of a user end because the budget is used up, as things stand, by user; who is not named has
    enough for the present window.
    """
    if all(record.gpu_seconds is None for record in state.limits.values()):
        return {}
    held: dict[str, list[LeaseRecord]] = {}
    for lease in state.index.holding.records():
        held.setdefault(lease.user, []).append(lease)
    found = {}
    for user, leases in held.items():
        limit = limit_rules.limit_of(state, user).gpu_seconds
        rate = sum(map(accounts.milli_of, leases))
        if limit is None or not rate:
            continue
        window = accounts.used_in_window(state, user, now, leases)
        end = now + max(0, limit * _MILLI_MS - window.milli_ms) / rate / 1000
        if window.ends is None or end < window.ends:
            found[user] = end
    return found


def tick(step: Step) -> None:
    """Ends the leases of those whose budget is used up."""
    state = step.state
    for user, end in ends(state, step.now).items():
        if end > step.now:
            continue
        limit = limit_rules.limit_of(state, user).gpu_seconds
        why = f"{user} has used all of {limit} GPU-seconds; the session is parked with its memory"
        for lease in [lease for lease in state.index.holding_of_user.of(user) if lease.live]:
            lease_rules.begin_release(step, state.leases[lease.id], "deadline", why)


def in_words(seconds: float) -> str:
    """``3 h 20 min``, ``5 min``, ``40 s``."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes = -(-whole // 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
