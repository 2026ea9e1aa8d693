"""Whether a project may have more at all, however much of the pool is free."""

from __future__ import annotations

from gpupool.scheduler.fairshare.position import Position
from gpupool.scheduler.fairshare.protection import Protection
from gpupool.scheduler.fairshare.tree import gpus
from gpupool.scheduler.fairshare.verdict import YES, Verdict


def admit(leaf: Position, milli: int, kind: str, protection: Protection) -> Verdict:
    """Yes, unless a limit would be exceeded, or what is deserved by a ``guaranteed`` ask."""
    for position in leaf.upwards():
        if position.limit is not None and position.allocated + milli > position.limit:
            text = (
                f"project {position.path} is limited to {gpus(position.limit)} and holds "
                f"{gpus(position.allocated)}; {gpus(milli)} more is too much"
            )
            return _no("limit", text, position, milli, position.allocated, position.limit)
    if kind == "guaranteed":
        for position in leaf.upwards():
            # A lease that is never taken back must fit beside all others that are not.
            used = protection.milli(position)
            if used + milli > position.deserved:
                text = (
                    f"project {position.path} deserves {gpus(position.deserved)}, of which {gpus(used)} are taken by "
                    f"leases that are not taken back; {gpus(milli)} more cannot be guaranteed; ask for an "
                    "interactive or preemptible lease"
                )
                return _no("over-quota", text, position, milli, used, position.deserved)
    return YES


def admit_now(leaf: Position, milli: int) -> Verdict:
    """Whether that is below all limits before those have gone who were told to."""
    for position in leaf.upwards():
        held = position.allocated + position.leaving
        if position.limit is not None and position.leaving and held + milli > position.limit:
            text = (
                f"project {position.path} is limited to {gpus(position.limit)} and holds {gpus(held)} until "
                f"{gpus(position.leaving)} of that has been given back; {gpus(milli)} more is too much until then"
            )
            return _no("limit", text, position, milli, held, position.limit)
    return YES


def above_limit(leaf: Position, milli: int) -> int:
    """By how many milli-GPU the project, or one above it, would exceed its limit with so much more; 0: by none."""
    return max((0, *(p.allocated + milli - p.limit for p in leaf.upwards() if p.limit is not None)))


def _no(reason: str, text: str, position: Position, milli: int, used: int, cap: int) -> Verdict:
    facts: dict[str, int | str] = {
        "project": position.path,
        "asked_milli": milli,
        "used_milli": used,
        "cap_milli": cap,
    }
    return Verdict(False, reason, text, facts, never=milli > cap)
