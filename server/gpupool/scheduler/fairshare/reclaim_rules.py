"""Whether leases may be taken back for a request.

From other projects (*reclaim*): the asking project stays within its fair share or what it deserves; so does what is
above it, up to where the two projects part, or it stays less over its share than what is lost from; and each project
that loses something, and everything above it up to there, has more than its fair share, or more than it deserves while
the asker stays within what it deserves. Since leases are taken whole, the largest one may reach below that line.

Inside the project (*preempt*): only leases of lower priority than the request.

Never, in both: protected leases.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpupool.scheduler.fairshare.lease import HeldLease
from gpupool.scheduler.fairshare.position import Position
from gpupool.scheduler.fairshare.protection import Protection
from gpupool.scheduler.fairshare.verdict import YES, Verdict
from gpupool.sentences import Sentence, param, say


def may_take(
    positions: dict[str, Position],
    protection: Protection,
    asker: Position,
    milli: int,
    priority: int,
    victims: Sequence[HeldLease],
) -> Verdict:
    """Whether `victims` may be taken back, all together, for a request of `milli` in `asker`."""
    for lease in victims:
        if protection.is_protected(lease):
            said = say("protected", lease=param.text(lease.id), project=param.project(lease.project))
            return _no("protected", said, lease)
        if lease.project == asker.path and lease.priority >= priority:
            said = say(
                "priority",
                lease=param.text(lease.id),
                theirs=param.count(lease.priority),
                own=param.count(priority),
            )
            return _no("priority", said, lease)
    others = [lease for lease in victims if lease.project != asker.path]
    if not others:
        return YES
    mine = asker.upwards()
    lost = _losses(positions, victims)
    after = {position.path: position.allocated - _sum(lost, position) + milli for position in mine}
    if after[asker.path] > asker.entitled:
        return _over(asker, milli, after[asker.path] - milli)
    for lease in others:
        theirs = positions[lease.project].upwards()
        # The two projects right below where the trees of asker and victim part, each with what is below it.
        mine_only = [position for position in mine if position not in theirs]
        theirs_only = [position for position in theirs if position not in mine]
        top, their_top = mine_only[-1], theirs_only[-1]
        if after[top.path] > top.entitled:
            remaining = their_top.allocated - _sum(lost, their_top)
            if after[top.path] * their_top.entitled >= remaining * top.entitled:
                return _over(top, milli, after[top.path] - milli)
        within_deserved = all(after[position.path] <= position.deserved for position in mine_only)
        for position in theirs_only:
            total, largest = lost[position.path]
            line = position.deserved if within_deserved else position.entitled
            if position.allocated - total + largest <= line:
                return _poor(position, total, line)
    return YES


def entitled(asker: Position, milli: int) -> Verdict:
    """Whether a request of `milli` may take anything from other projects: a cheap look before victims are sought."""
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


def _sum(lost: dict[str, tuple[int, int]], position: Position) -> int:
    return lost.get(position.path, (0, 0))[0]


def _over(position: Position, milli: int, held: int) -> Verdict:
    said = say(
        "over-quota",
        project=param.project(position.path),
        entitled=param.milli(position.entitled),
        held=param.milli(held),
        milli=param.milli(milli),
    )
    facts: dict[str, int | str] = {
        "project": position.path,
        "asked_milli": milli,
        "used_milli": held,
        "cap_milli": position.entitled,
    }
    return Verdict(False, "over-quota", said, facts)


def _poor(position: Position, total: int, line: int) -> Verdict:
    said = say(
        "within-fair-share",
        project=param.project(position.path),
        held=param.milli(position.allocated),
        milli=param.milli(total),
        own=param.milli(line),
    )
    facts: dict[str, int | str] = {
        "project": position.path,
        "asked_milli": total,
        "used_milli": position.allocated,
        "cap_milli": line,
    }
    return Verdict(False, "within-fair-share", said, facts)


def _no(reason: str, said: Sentence, lease: HeldLease) -> Verdict:
    return Verdict(False, reason, said, {"project": lease.project, "lease_id": lease.id})
