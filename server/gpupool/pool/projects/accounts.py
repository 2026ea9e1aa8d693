"""What users and projects have used: of their windows, and lately.

Accounts hold what ended leases used; what live ones did is added from their grant on. When a lease changes its size,
what it held more or less until then is added once, so that the sum is right though only the new size is known later. In
the same way what it held while no pool was there is taken off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpupool.model.state import AccountRecord, LeaseRecord, LimitRecord, State
from gpupool.pool.model.step import Step
from gpupool.pool.model.timers import Timers
from gpupool.pool.projects import live_holdings
from gpupool.records import replace
from gpupool.scheduler.fairshare import usage

#: Whose limit holds for all who have none of their own.
EVERYBODY = "*"


@dataclass(frozen=True, slots=True)
class WindowUse:
    """What a user has used of the present window.

    Attributes:
        milli_ms: milli-GPU-milliseconds.
        begins: None: nothing was used in it yet, it begins with the next lease.
        ends: when it is all forgotten.
    """

    milli_ms: int
    begins: float | None
    ends: float | None

    @property
    def gpu_seconds(self) -> float:
        return self.milli_ms / 1_000_000


def follow(step: Step) -> None:
    """Books leases that ended or changed their size in this step."""
    changes = [
        (before, after)
        for before, after in step.state.leases.changes().values()
        if before is not None and before.holds and (after is None or not after.takes_like(before))
    ]
    # A window begins with the first lease in it, also if several end in one step.
    for before, after in sorted(changes, key=lambda change: change[0].granted_at):
        if after is None or not after.holds:
            lease_ended(step, before)
        elif after.milli != before.milli:
            _book(step, before, before.milli - after.milli, goes_on=True)


def lease_ended(step: Step, lease: LeaseRecord) -> None:
    """Its use is booked with its user and its project."""
    _book(step, lease, lease.milli, goes_on=False)


def not_served(step: Step, lease: LeaseRecord, since: float) -> None:
    """A lease that goes on was of no use from `since` until now: what is counted of it for that time is taken off again."""
    if max(since, lease.granted_at) < step.now:
        _book(step, lease, -lease.milli, goes_on=True, since=since)


def forget_unused(step: Step) -> None:
    """Drops what users of long ago have used: it is of windows that are over, however long one lasts.

    To be called after `follow`. Users may be named by a login service, so their number has no bound.
    """
    state = step.state
    longest = max((limit.window_seconds for limit in state.limits.values()), default=0)
    # Twice as long: who makes windows longer has something to begin with.
    horizon = step.now - 2 * max(longest, LimitRecord("").window_seconds)
    for record in state.index.user_accounts.before(horizon):
        if not state.index.holding_of_user.count(record.id.partition("/")[2]):
            del state.accounts[record.id]


def used_in_window(state: State, user: str, now: float, held: list[LeaseRecord] | None = None) -> WindowUse:
    """What `user` has used in the window that lasts now, live leases included.

    Args:
        state: the pool as it is.
        user: their name.
        now: the pool's boot-time clock, seconds.
        held: all leases of the user that hold shares, by whom has looked for them already.
    """
    length = window_seconds(state, user)
    live = held
    if live is None:
        live = state.index.holding_of_user.of(user)
    return _window(state.accounts.get(_user_id(user)), length, live, now)


def window_seconds(state: State, user: str) -> int:
    """How long a window of `user` lasts."""
    limit = state.limits.get(user) or state.limits.get(EVERYBODY) or LimitRecord(user)
    return limit.window_seconds


def decayed_usage(state: State, timers: Timers, now: float) -> dict[str, float]:
    """Milli-GPU-seconds that each project used, halved once per half-life; live leases included."""
    found: dict[str, float] = {}
    for record in state.index.accounts.of("project"):
        path = record.id.partition("/")[2]
        age = now - record.as_of
        found[path] = usage.decay(record.decayed_milli_seconds, age, timers.half_life)
    for path, more in live_holdings.of(state).used(timers.half_life, now).items():
        found[path] = found.get(path, 0.0) + more
    return found


def parts_of_pool(state: State, timers: Timers, now: float, capacity: int) -> dict[str, float]:
    """The same as parts of what the pool could have given, as :class:`..fairshare.Standings` wants it."""
    used = decayed_usage(state, timers, now)
    # A resize books a correction, which rounding could leave a hair below zero.
    return {path: max(0.0, usage.part_of_pool(n, capacity, timers.half_life)) for path, n in used.items()}


def _book(step: Step, lease: LeaseRecord, milli: int, *, goes_on: bool, since: float = -math.inf) -> None:
    """As if `milli` had been held since the lease's grant or since a moment after it, and is not any more."""
    state, now = step.state, step.now
    since = max(since, lease.granted_at)
    name = _user_id(lease.user)
    record = state.accounts.get(name) or AccountRecord(name, as_of=now)
    others = [x for x in state.index.holding_of_user.of(lease.user) if x.id != lease.id]
    length = window_seconds(state, lease.user)
    # The lease itself holds the window open until now.
    window = _window(record, length, [*others, lease], now)
    begins = now if window.begins is None else window.begins
    booked = record.window_milli_ms if record.window_from == begins else 0
    booked += _milli_ms(milli, max(begins, since), now)
    # A lease that ends together with a window begins no other one.
    unused = begins == now and not others and not goes_on
    state.accounts[name] = replace(
        record, window_from=None if unused else begins, window_milli_ms=booked, as_of=now
    )

    name = f"project/{lease.project}"
    record = state.accounts.get(name) or AccountRecord(name, as_of=now)
    half_life = step.timers.half_life
    value = usage.decay(record.decayed_milli_seconds, now - record.as_of, half_life)
    value += usage.held(milli, now - since, half_life)
    state.accounts[name] = replace(record, decayed_milli_seconds=value, as_of=now)


def _window(record: AccountRecord | None, length: float, live: list[LeaseRecord], now: float) -> WindowUse:
    """The window that lasts at `now`: after the last one it began with the next use."""
    first = min((lease.granted_at for lease in live), default=None)
    begins = record.window_from if record is not None else None
    booked = record.window_milli_ms if record is not None else 0
    if begins is None or now >= begins + length:
        if first is None:
            return WindowUse(0, None, None)
        # A lease that goes on when a window ends begins the next one.
        begins = first if begins is None else max(first, begins + length)
        begins += (now - begins) // length * length
        booked = 0
    for lease in live:
        booked += _milli_ms(lease.milli, max(begins, lease.granted_at), now)
    return WindowUse(max(0, booked), begins, begins + length)


def _milli_ms(milli: int, since: float, until: float) -> int:
    return milli * max(0, round((until - since) * 1000))


def _user_id(user: str) -> str:
    return f"user/{user}"
