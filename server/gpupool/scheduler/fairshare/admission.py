"""Whether a project may have more at all, however much of the pool is free."""

from __future__ import annotations

from gpupool.scheduler.fairshare.position import Position
from gpupool.scheduler.fairshare.protection import Protection
from gpupool.scheduler.fairshare.verdict import YES, Verdict
from gpupool.sentences import Sentence, param, say


def admit(leaf: Position, milli: int, kind: str, protection: Protection) -> Verdict:
    """Yes, unless a limit would be exceeded, or what is deserved by a ``guaranteed`` request."""
    for position in leaf.upwards():
        if position.limit is not None and position.allocated + milli > position.limit:
            said = say(
                "limit",
                project=param.project(position.path),
                limit=param.milli(position.limit),
                held=param.milli(position.allocated),
                milli=param.milli(milli),
            )
            return _no("limit", said, position, milli, position.allocated, position.limit)
    if kind == "guaranteed":
        for position in leaf.upwards():
            # A lease that is never taken back must fit beside all others that are not.
            used = protection.milli(position)
            if used + milli > position.deserved:
                said = say(
                    "over-quota.guaranteed",
                    project=param.project(position.path),
                    deserved=param.milli(position.deserved),
                    used=param.milli(used),
                    milli=param.milli(milli),
                )
                return _no("over-quota", said, position, milli, used, position.deserved)
    return YES


def admit_now(leaf: Position, milli: int) -> Verdict:
    """Whether that is below all limits before those have gone who were told to."""
    for position in leaf.upwards():
        held = position.allocated + position.leaving
        if position.limit is not None and position.leaving and held + milli > position.limit:
            said = say(
                "limit.now",
                project=param.project(position.path),
                limit=param.milli(position.limit),
                held=param.milli(held),
                leaving=param.milli(position.leaving),
                milli=param.milli(milli),
            )
            return _no("limit", said, position, milli, held, position.limit)
    return YES


def above_limit(leaf: Position, milli: int) -> int:
    """By how many milli-GPU the project, or one above it, would exceed its limit with so much more; 0: by none."""
    return max((0, *(p.allocated + milli - p.limit for p in leaf.upwards() if p.limit is not None)))


def _no(reason: str, said: Sentence, position: Position, milli: int, used: int, cap: int) -> Verdict:
    facts: dict[str, int | str] = {
        "project": position.path,
        "asked_milli": milli,
        "used_milli": used,
        "cap_milli": cap,
    }
    return Verdict(False, reason, said, facts, never=milli > cap)
