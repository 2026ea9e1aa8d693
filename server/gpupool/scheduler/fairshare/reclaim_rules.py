"""Whether leases may be taken back for an ask.

From other projects (*reclaim*): the asking project, and everything above it up to where the two part, stays within
its fair share or what it deserves; and each project that loses something, and everything above it up to there, has
more than its fair share, or more than it deserves while the asker stays within what it deserves. Since leases are
taken whole, the largest one may reach below that line.

Inside the project (*preempt*): only leases of lower priority than the ask.

Never, in both: protected leases.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpupool.scheduler.fairshare.lease import HeldLease
from gpupool.scheduler.fairshare.position import Position
from gpupool.scheduler.fairshare.protection import Protection
from gpupool.scheduler.fairshare.tree import gpus
from gpupool.scheduler.fairshare.verdict import YES, Verdict


def may_take(
    positions: dict[str, Position],
    protection: Protection,
    asker: Position,
    milli: int,
    priority: int,
    victims: Sequence[HeldLease],
) -> Verdict:
    """Whether `victims` may be taken back, all together, for an ask of `milli` in `asker`."""
    for lease in victims:
        if protection.is_protected(lease):
            return _no(
                "protected", f"lease {lease.id} is within what project {lease.project} deserves", lease
            )
        if lease.project == asker.path and lease.priority >= priority:
            text = f"lease {lease.id} has priority {lease.priority}, the ask {priority}; only a lower one gives way"
            return _no("priority", text, lease)
    others = [lease for lease in victims if lease.project != asker.path]
    if not others:
        return YES
    mine = asker.upwards()
    lost = _losses(positions, victims)
    for lease in others:
        theirs = positions[lease.project].upwards()
        common = {position.path for position in theirs}
        sides = [position for position in mine if position.path not in common]
        within_deserved = True
        for position in sides:
            after = position.allocated - _sum(lost.get(position.path)) + milli
            if after > position.entitled:
                return _over(position, milli, after - milli)
            within_deserved = within_deserved and after <= position.deserved
        shared = {position.path for position in mine}
        for position in theirs:
            if position.path in shared:
                break
            total, largest = lost[position.path]
            line = position.deserved if within_deserved else max(position.deserved, position.fair_share)
            if position.allocated - total + largest <= line:
                return _poor(position, total, line)
    return YES


def entitled(asker: Position, milli: int) -> Verdict:
    """Whether an ask of `milli` may take anything from other projects: a cheap look before victims are sought."""
    if asker.allocated + milli > asker.entitled:
        return _over(asker, milli, asker.allocated)
    return YES


def _losses(positions: dict[str, Position], victims: Sequence[HeldLease]) -> dict[str, tuple[int, int]]:
    """(all that is lost, the largest lease of it) in each project and above it."""
    lost: dict[str, tuple[int, int]] = {}
    for lease in victims:
        for position in positions[lease.project].upwards():
            total, largest = lost.get(position.path, (0, 0))
            lost[position.path] = (total + lease.milli, max(largest, lease.milli))
    return lost


def _sum(lost: tuple[int, int] | None) -> int:
    return 0 if lost is None else lost[0]


def _over(position: Position, milli: int, held: int) -> Verdict:
    text = (
        f"project {position.path} may ask others for room up to {gpus(position.entitled)} and holds {gpus(held)}; "
        f"{gpus(milli)} more is above that"
    )
    facts: dict[str, int | str] = {
        "project": position.path,
        "asked_milli": milli,
        "used_milli": held,
        "cap_milli": position.entitled,
    }
    return Verdict(False, "over-quota", text, facts)


def _poor(position: Position, total: int, line: int) -> Verdict:
    text = (
        f"project {position.path} holds {gpus(position.allocated)}, of which {gpus(total)} would go, "
        f"and {gpus(line)} are its own"
    )
    facts: dict[str, int | str] = {
        "project": position.path,
        "asked_milli": total,
        "used_milli": position.allocated,
        "cap_milli": line,
    }
    return Verdict(False, "within-fair-share", text, facts)


def _no(reason: str, text: str, lease: HeldLease) -> Verdict:
    return Verdict(False, reason, text, {"project": lease.project, "lease_id": lease.id})
