"""Leases as the search for room sees them: which could end or move for another, and what that would free."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gpupool.model.state import LeaseRecord
from gpupool.pool.model.step import Step
from gpupool.pool.model.view import kept_mib, session_mib
from gpupool.pool.projects.project_rules import project_tree
from gpupool.scheduler.model import Held, PlacedShare
from gpupool.scheduler.reclaim import Candidate
from gpupool.scheduler.relocate import Movable
from gpupool.sentences import NOTHING, Sentence, obstacles, param, say


def parts_of(step: Step, name: str) -> list[LeaseRecord]:
    """All parts of a lease that hold shares, by the name of the first."""
    parts = step.state.index.leases_of_gang.of(name) or [step.state.leases[name]]
    return sorted((part for part in parts if part.holds), key=lambda part: part.part)


def wholes(step: Step, leases: Iterable[LeaseRecord]) -> Iterator[tuple[str, list[LeaseRecord]]]:
    """(name, all parts that hold shares) of each of which some part is among these, in their order."""
    for name in dict.fromkeys(lease.gang or lease.id for lease in leases):
        parts = parts_of(step, name)
        if parts:
            yield name, parts


def is_idle(step: Step, lease: LeaseRecord) -> bool:
    """Whether its session has computed nothing for as long as a lease runs before it may be taken back."""
    seconds = max(step.timers.min_run, min_run(step, lease))
    usage = step.state.sessions[lease.session_id].usage
    # The last report may be of the time before this lease.
    idle = usage.idle_seconds > 0 and usage.idle_seconds >= seconds and not usage.in_flight
    return idle and step.now >= lease.granted_at + seconds


def movable(step: Step, parts: Sequence[LeaseRecord]) -> Movable | None:
    """A lease that could go on on another device: of one share, whose memory can leave.

    Guaranteed ones stay put, and reservations, which nobody asks for again.
    """
    lease = parts[0]
    session = step.state.sessions[lease.session_id]
    stays = lease.kind == "guaranteed" or lease.reservation
    moves = lease.state == "attached" and not stays and lease.resize is None
    if (
        len(parts) > 1
        or len(lease.shares) > 1
        or not moves
        or session.park_obstacle
        or lease.node != session.node
    ):
        return None
    return Movable(lease.shares[0], sum(kept_mib(session)), bool(session.move_obstacle), lease.filters)


def candidate(step: Step, parts: Sequence[LeaseRecord]) -> Candidate:
    """A lease as the search sees it.

    Those with a notice come first, then those that need not be waited for longer, then low priority, then the newest.
    """
    first = parts[0]
    kept = []
    for part in parts:
        session = step.state.sessions[part.session_id]
        mib = kept_mib(session)
        if session.state == "closed" or part.node != session.node or not any(mib):
            continue
        stays = obstacles.because(session.park_obstacle) if session.park_obstacle else NOTHING
        held = Held(
            "", part.user, 0, 0,
            session_id=session.id, session_mib=session_mib(session), since=step.now, stays=stays,
        )  # fmt: skip
        placed = (
            PlacedShare(share.device_id, 0, size) for share, size in zip(part.shares, mib, strict=False)
        )
        kept.append((held, tuple(share for share in placed if share.mib)))
    late = max(0.0, first.granted_at + min_run(step, first) - step.now - step.timers.notice)
    rank = (float(first.notice is None), late, float(first.priority), -first.granted_at)
    shares = tuple(share for part in parts for share in part.taken())
    return Candidate(tuple(part.id for part in parts), shares, rank, tuple(kept))


def min_run(step: Step, lease: LeaseRecord) -> float:
    """Seconds that a lease of this project is left alone after it began."""
    return project_tree(step.state).min_run(lease.project, step.timers.min_run)


def asked_back(parts: Sequence[LeaseRecord]) -> Sentence:
    """Whose room is asked back, and how much."""
    milli = sum(share.milli for part in parts for share in part.taken())
    of, whose = param.project(parts[0].project), param.user(parts[0].user)
    return say("asked-back.from", project=of, user=whose, milli=param.milli(milli))
