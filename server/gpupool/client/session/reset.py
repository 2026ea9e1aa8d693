"""A GPU session is ended and its process lives on: the part of :mod:`gpupool.client.session.state` for it."""

from __future__ import annotations

from gpupool.client.session.events import (
    CancelRequest,
    CloseSession,
    Instruction,
    Publish,
    ResetWanted,
)
from gpupool.client.session.record import Session, State


def reset_wanted(session: Session, _event: ResetWanted) -> tuple[Session, tuple[Instruction, ...]]:
    """Whatever the session does, it ends now; the next attach begins another one.

    The lease is not released before: that would wait for the work that a reset is to end.
    """
    if session.session_id is None and session.asking is None and session.state is not State.LOST:
        return session, ()
    instructions: list[Instruction] = [Publish()]
    if session.asking is not None and session.lease is None:
        instructions.append(CancelRequest())
    if session.session_id is not None:
        instructions.append(CloseSession(session.session_id, "reset"))
    return as_reset(session), tuple(instructions)


def as_reset(session: Session) -> Session:
    """What is left after a session was ended on request: by us, or by the client runtime at a second interrupt."""
    return Session(
        reason="reset",
        message=session.words.reset,
        request=session.request,
        returns=session.returns,
        words=session.words,
    )
