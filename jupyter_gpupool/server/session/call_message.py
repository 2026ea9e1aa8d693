"""What a CUDA call is told that finds no GPU attached: why, what is kept, and how to go on.

The session file carries it to the client runtime. It always names the way out, whatever the
kernel's row says at the moment: the refusal of a request that somebody made an hour ago does not
tell how to make another one.
"""

from __future__ import annotations

from jupyter_gpupool.server.session.record import Session, State
from jupyter_gpupool.server.session.words import NOT_ATTACHED, REASONS, WAY_OUT

_KEPT = f"No GPU is attached; what is in GPU memory is kept. {WAY_OUT}"


def call_message(session: Session) -> str:
    """One sentence or two for a session without a lease."""
    said = session.message or ""
    if session.resting or session.returning:
        return f"The GPU was taken back for others, and this call waits for it. {said}".rstrip()
    if session.state is State.QUEUED:
        return f"No GPU is attached yet: the request waits in the queue. {said}".rstrip()
    plain = _KEPT if session.state is State.PARKED else NOT_ATTACHED
    if not said or WAY_OUT in said:
        return said or plain
    if session.reason in REASONS or session.reason is None:
        return f"{said} {WAY_OUT}"
    return f"{plain} The last request was refused: {said}"
