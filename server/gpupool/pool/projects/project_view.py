"""Where projects and users stand, for people: what they may have, hold and wait for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpupool.model.state import LimitRecord, State
from gpupool.pool.model.timers import Timers
from gpupool.pool.projects import accounts, limit_rules, standing_view
from gpupool.pool.projects.project_rules import default_project_of
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.scheduler.fairshare import Standings
from gpupool.scheduler.model import Quota


def project_list(
    state: State, timers: Timers, now: float, user: str = "", groups: tuple[str, ...] = ()
) -> pb.ProjectList:
    """The whole tree. With a `user`, who is in `groups`: what is open to them, and where a request without a project counts."""
    now_there = standing_view.with_requests(state, timers, now)
    usage = accounts.decayed_usage(state, timers, now)
    answer = pb.ProjectList(
        projects=[_project(now_there, usage, path) for path in now_there.tree.paths],
        warnings=now_there.tree.warnings(now_there.capacity),
        capacity_milli=now_there.capacity,
    )
    if user:
        answer.default_path = default_project_of(state, user, groups)
        open_to_user = set(now_there.tree.projects_of(user, groups))
        for project in answer.projects:
            project.open = project.path in open_to_user
    return answer


def project(state: State, timers: Timers, now: float, path: str) -> pb.Project:
    """One of the list."""
    return _project(
        standing_view.with_requests(state, timers, now), accounts.decayed_usage(state, timers, now), path
    )


def limit(state: State, record: LimitRecord, now: float, *, configured: bool = False) -> pb.Limit:
    """A limit and how much of it is used; of ``*`` nothing is. `configured`: it is of the pool's options."""
    message = pb.Limit(
        user=record.user,
        milli=_number(record.milli),
        shares=_number(record.shares),
        largest_milli=_number(record.largest_milli),
        gpu_seconds=_number(record.gpu_seconds),
        window_seconds=record.window_seconds,
        resets_in_seconds=-1.0,
        configured=configured,
    )
    if record.user != accounts.EVERYBODY:
        held = state.index.holding_of_user.of(record.user)
        message.held_milli = sum(lease.milli for lease in held)
        message.held_shares = sum(len(lease.shares) for lease in held)
        window = accounts.used_in_window(state, record.user, now)
        message.used_gpu_seconds = window.gpu_seconds
        if window.ends is not None:
            message.resets_in_seconds = window.ends - now
    return message


def limits_seen_by(
    state: State, configured: Mapping[str, Quota], viewer: str | None
) -> list[tuple[LimitRecord, bool]]:
    """All limits for administrators (`viewer` None); else the user's own, as it comes to, and no other's.

    With each: whether its sum and number are of the pool's options (`configured`), above which those of the ledger stand.
    """
    quotas = limit_rules.quotas(state, configured)
    limited = viewer in quotas or accounts.EVERYBODY in quotas
    users = sorted(quotas) if viewer is None else [viewer] if limited else []
    return [_limit_and_origin(state, quotas, user) for user in users]


def effective_limit(state: State, configured: Mapping[str, Quota], user: str) -> LimitRecord:
    """What counts for a user: their own limit, else that of everybody, with the pool's options below those of the ledger."""
    return _limit_and_origin(state, limit_rules.quotas(state, configured), user)[0]


def _limit_and_origin(state: State, quotas: Mapping[str, Quota], user: str) -> tuple[LimitRecord, bool]:
    name = user if user in quotas else accounts.EVERYBODY
    quota = quotas.get(name, Quota(None, None))
    record = replace(limit_rules.limit_of(state, user), user=user, milli=quota.milli, shares=quota.shares)
    return record, name not in state.limits


def _project(now_there: Standings, usage: dict[str, float], path: str) -> pb.Project:
    tree = now_there.tree
    own, standing = tree[path], now_there.standing(path)
    below = [leaf for leaf in tree.leaves if path in tree.ancestors(leaf)]
    return pb.Project(
        path=path,
        deserved_milli=_number(own.deserved),
        limit_milli=_number(own.limit),
        weight=own.weight,
        priority=own.priority,
        min_run_seconds=-1.0 if own.min_run is None else own.min_run,
        members=own.members,
        allocated_milli=standing.allocated,
        protected_milli=standing.protected,
        waiting_milli=standing.waiting,
        fair_share_milli=standing.fair_share,
        real_deserved_milli=standing.deserved,
        decayed_gpu_seconds=sum(max(0.0, usage.get(leaf, 0.0)) for leaf in below) / 1000,
    )


def _number(value: int | None) -> int:
    return -1 if value is None else value
