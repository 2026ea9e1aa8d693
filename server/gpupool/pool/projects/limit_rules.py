"""What one user may have: how much at a time, how many shares, how large one ask, how many GPU-seconds in a window.

Limits that an administrator has set with the pool's options hold for whom the ledger has no record of. Sum and number
are checked where the ask is placed (`scheduler.fit`), because only there its milli-GPU are known; the rest is here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpupool.model import events
from gpupool.model.state import LimitRecord, State
from gpupool.pool.model.step import Step
from gpupool.pool.projects.accounts import EVERYBODY
from gpupool.scheduler.explain import gpu
from gpupool.scheduler.model import Decision, Outcome, Quota

NO_LIMIT = LimitRecord(EVERYBODY)


def limit_set(step: Step, event: events.LimitSet) -> None:
    step.state.limits[event.limit.user] = event.limit
    step.queue.forget()
    step.reschedule = True
    step.journal(
        "limit", f"{event.by} limits {_whom(event.limit.user)} to {_in_words(event.limit)}",
        user=event.limit.user, data={"by": event.by, **_figures(event.limit)},
    )  # fmt: skip


def limit_removed(step: Step, event: events.LimitRemoved) -> None:
    if event.user not in step.state.limits:
        return
    del step.state.limits[event.user]
    step.queue.forget()
    step.reschedule = True
    step.journal(
        "limit", f"{event.by} removed the limit of {_whom(event.user)}",
        user=event.user, data={"by": event.by, "removed": True},
    )  # fmt: skip


def limit_of(state: State, user: str) -> LimitRecord:
    return state.limits.get(user) or state.limits.get(EVERYBODY) or NO_LIMIT


def quotas(state: State, configured: Mapping[str, Quota]) -> Mapping[str, Quota]:
    """Sum and number per user, for the scheduler: a record of the ledger stands above the pool's options."""
    if not state.limits:
        return configured
    recorded = {record.user: Quota(record.milli, record.shares) for record in state.limits.values()}
    return {**configured, **recorded}


def is_limited(state: State, configured: Mapping[str, Quota]) -> Callable[[str], bool]:
    """Whether a user has limits, so that their asks are not like those of others."""
    limits = state.limits
    everybody = EVERYBODY in configured or EVERYBODY in limits
    return lambda user: everybody or user in configured or user in limits


def too_large(state: State, user: str, milli: int) -> Decision | None:
    """A refusal when one ask alone is more than its user may ask for."""
    largest = limit_of(state, user).largest_milli
    if largest is None or milli <= largest:
        return None
    text = f"{gpu(milli)} GPU is asked; {user} may ask for at most {gpu(largest)} at once; ask for less"
    return Decision(
        Outcome.REFUSE, "quota", text, facts={"asked_milli": milli, "cap_milli": largest, "user": user}
    )


def _whom(user: str) -> str:
    return "every user without a limit of their own" if user == EVERYBODY else user


def _figures(record: LimitRecord) -> dict[str, int]:
    names = ("milli", "shares", "largest_milli", "gpu_seconds")
    set_ones = {name: getattr(record, name) for name in names if getattr(record, name) is not None}
    return {**set_ones, "window_seconds": record.window_seconds} if "gpu_seconds" in set_ones else set_ones


def _in_words(record: LimitRecord) -> str:
    words = []
    if record.milli is not None:
        words.append(f"{gpu(record.milli)} GPU at a time")
    if record.shares is not None:
        words.append(f"{record.shares} share(s) at a time")
    if record.largest_milli is not None:
        words.append(f"{gpu(record.largest_milli)} GPU in one ask")
    if record.gpu_seconds is not None:
        words.append(f"{record.gpu_seconds} GPU-seconds in {record.window_seconds} s")
    return ", ".join(words) or "nothing (no limit)"
