"""What nodes and the journal are told. A message to a node that is not connected is left out: its next hello is reconciled."""

from __future__ import annotations

from gpupool.model.instructions import (
    ApplyLease,
    ParkMemory,
    RevokeLease,
    StartWorker,
    StopWorker,
    TellRefused,
)
from gpupool.model.state import LeaseRecord, SessionRecord
from gpupool.pool.model.session_keys import client_token, move_key
from gpupool.pool.model.step import Step
from gpupool.scheduler.model import PlacedShare


def start_worker(step: Step, session: SessionRecord, lease: LeaseRecord) -> int:
    """Starts one where the lease is; a session that lives elsewhere or on disk comes along.

    Returns the request number, also when nobody is there to hear it.
    """
    number = step.request()
    connection = step.connection_of(lease.node)
    if connection is not None:
        moves = not lease.new_session and lease.node != session.node
        step.do(
            StartWorker(
                lease.node,
                connection,
                number,
                session.id,
                lease.epoch,
                lease.shares,
                client_token(session),
                move_key(session),
                session.user,
                session.strict,
                image_source=session.address if moves else "",
                from_image=session.place == "image" and not moves,
            )
        )
    return number


def apply_lease(step: Step, session: SessionRecord, epoch: int, shares: tuple[PlacedShare, ...]) -> int:
    """The number that the node's answer will bear; nothing is sent to a node that is away."""
    number = step.request()
    connection = step.connection_of(session.node)
    if connection is not None:
        step.do(ApplyLease(session.node, connection, number, session.id, epoch, shares))
    return number


def revoke_lease(step: Step, session: SessionRecord, epoch: int) -> int:
    """The number that the node's answer will bear; nothing is sent to a node that is away."""
    number = step.request()
    connection = step.connection_of(session.node)
    if connection is not None:
        step.do(RevokeLease(session.node, connection, number, session.id, epoch))
    return number


def park_memory(step: Step, session: SessionRecord, place: str) -> int:
    """The number that the node's answer will bear; nothing is sent to a node that is away. `place`: ``host`` or ``image``."""
    number = step.request()
    connection = step.connection_of(session.node)
    if connection is not None:
        step.do(ParkMemory(session.node, connection, number, session.id, session.epoch, place))
    return number


def stop_worker(step: Step, node: str, session_id: str, reason: str) -> None:
    """Nothing is sent to a node that is away: it is told when it comes back."""
    connection = step.connection_of(node)
    if connection is not None:
        step.do(StopWorker(node, connection, step.request(), session_id, reason))


def journal_refusal(step: Step, refused: TellRefused, session_id: str) -> None:
    """Every request that ends without a lease is in the journal."""
    step.journal(
        "refuse", refused.said, user=refused.user, session_id=session_id,
        data={"reason": refused.reason, "key": refused.key},
    )  # fmt: skip
