"""What a CUDA call is told that finds no GPU attached: why, what is kept, and how to go on.

The session file carries it to the client runtime. It always names the way out, whatever
is shown of the session at the moment: the refusal of a request that somebody made an hour ago does not
tell how to make another one.
"""

from __future__ import annotations

from gpupool.client.session.record import Session, State
from gpupool.sentences.reasons import REASONS


def call_message(session: Session) -> str:
    """One sentence or two for a session without a lease."""
    said, words = session.message or "", session.words
    if session.resting or session.returning:
        return f"The GPU was taken back for others, and this call waits for it. {said}".rstrip()
    if session.state is State.QUEUED:
        return f"No GPU is attached yet: the request waits in the queue. {said}".rstrip()
    plain = words.kept if session.state is State.PARKED else words.nothing
    if not said or words.way_out in said:
        return said or plain
    if session.reason in REASONS or session.reason is None:
        return f"{said} {words.way_out}"
    return f"{plain} The last request was refused: {said}"
