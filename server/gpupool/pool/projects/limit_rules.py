"""What one user may have: how much at a time, how many shares, how large one request, how many GPU-seconds in a window.

Limits that an administrator has set with the pool's options hold for whom the ledger has no record of. Sum and number
are checked where the request is placed (`scheduler.fit`), because only there its milli-GPU are known; the rest is here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpupool.model import events
from gpupool.model.state import LimitRecord, State
from gpupool.pool.model.step import Step
from gpupool.pool.projects.accounts import EVERYBODY
from gpupool.scheduler.model import Decision, Outcome, Quota
from gpupool.sentences import Sentence, param, say

NO_LIMIT = LimitRecord(EVERYBODY)


def limit_set(step: Step, event: events.LimitSet) -> None:
    """Holds from the next request on; leases that lie stay."""
    step.state.limits[event.limit.user] = event.limit
    step.queue.forget()
    step.reschedule = True
    step.journal(
        "limit", _about("limit.set", event.by, event.limit.user, what=_in_words(event.limit)),
        user=event.limit.user, data={"by": event.by, **_figures(event.limit)},
    )  # fmt: skip


def limit_removed(step: Step, event: events.LimitRemoved) -> None:
    """Nothing happens where there is no such limit."""
    if event.user not in step.state.limits:
        return
    del step.state.limits[event.user]
    step.queue.forget()
    step.reschedule = True
    step.journal(
        "limit", _about("limit.removed", event.by, event.user),
        user=event.user, data={"by": event.by, "removed": True},
    )  # fmt: skip


def limit_of(state: State, user: str) -> LimitRecord:
    """The user's own limit, else that of everybody, else none."""
    return state.limits.get(user) or state.limits.get(EVERYBODY) or NO_LIMIT


def quotas(state: State, configured: Mapping[str, Quota]) -> Mapping[str, Quota]:
    """Sum and number per user, for the scheduler: a record of the ledger stands above the pool's options.

    The same object as long as nothing has changed: views with the same quotas are known to be the same by that.
    """
    if not state.limits:
        return configured
    merged = state.merged_quotas
    if merged is None:
        merged = state.merged_quotas = _MergedQuotas(state)
    assert isinstance(merged, _MergedQuotas)
    return merged.over(configured)


class _MergedQuotas:
    """The quotas of one state's limits above others, merged when either has changed."""

    def __init__(self, state: State) -> None:
        self._limits = state.limits
        self._changed = state.limits.watch()
        self._merged: tuple[Mapping[str, Quota], Mapping[str, Quota]] | None = None

    def over(self, configured: Mapping[str, Quota]) -> Mapping[str, Quota]:
        if self._merged is None or self._changed or self._merged[0] is not configured:
            self._changed.clear()
            recorded = {record.user: Quota(record.milli, record.shares) for record in self._limits.values()}
            self._merged = configured, {**configured, **recorded}
        return self._merged[1]


def is_limited(state: State, configured: Mapping[str, Quota]) -> Callable[[str], bool]:
    """Whether a user has limits, so that their requests are not like those of others."""
    limits = state.limits
    everybody = EVERYBODY in configured or EVERYBODY in limits
    return lambda user: everybody or user in configured or user in limits


def too_large(state: State, user: str, milli: int) -> Decision | None:
    """A refusal when one request alone is more than its user may ask for."""
    largest = limit_of(state, user).largest_milli
    if largest is None or milli <= largest:
        return None
    said = say("quota.largest", milli=param.milli(milli), user=param.user(user), limit=param.milli(largest))
    return Decision(
        Outcome.REFUSE, "quota", said, facts={"asked_milli": milli, "cap_milli": largest, "user": user}
    )


def _about(code: str, by: str, user: str, **params: Sentence) -> Sentence:
    """Of one user's limit, or of that of all who have none of their own."""
    code = f"{code}-for-all" if user == EVERYBODY else code
    return say(code, by=param.user(by), user=param.user(user), **params)


def _figures(record: LimitRecord) -> dict[str, int]:
    names = ("milli", "shares", "largest_milli", "gpu_seconds")
    set_ones = {name: getattr(record, name) for name in names if getattr(record, name) is not None}
    return {**set_ones, "window_seconds": record.window_seconds} if "gpu_seconds" in set_ones else set_ones


def _in_words(record: LimitRecord) -> Sentence:
    words = []
    if record.milli is not None:
        words.append(say("limit.milli", milli=param.milli(record.milli)))
    if record.shares is not None:
        words.append(say("limit.shares", count=param.count(record.shares)))
    if record.largest_milli is not None:
        words.append(say("limit.largest", milli=param.milli(record.largest_milli)))
    if record.gpu_seconds is not None:
        window = param.seconds(record.window_seconds)
        words.append(say("limit.gpu-time", most=param.number(record.gpu_seconds), window=window))
    return say("listed", of=words) if words else say("limit.none")
