"""What people are told of a program's share, event by event. Pure."""

from __future__ import annotations

import math

from gpupool.client.session import events as events
from gpupool.client.session.record import Session


def told(before: Session, after: Session, event: events.Event) -> str | None:
    """One sentence about what ``event`` has made of ``before``; None: nothing that needs a word."""
    words = after.words
    match event:
        case events.NoticeTold() if after.notice is not None and before.notice is None:
            seconds = math.ceil(after.notice.seconds_left)
            return f"this share is taken back in {seconds} s: {after.notice.explanation}"
        case events.NoticeTold() if after.notice is None and before.notice is not None:
            return "this share is not taken back after all"
        case events.LeaseEnded() if after.lease is None and before.lease is not None:
            if event.reason == "reset":  # its user's own doing
                return "This program's GPU session was ended, and its share is free again."
            why = words.taken_back(event.reason)
            return f"{why} It goes on when it gets a share again." if after.returning else why
        case events.Granted() if after.lease is not None and before.returning:
            return "this program has a GPU share again and goes on"
        case events.Granted() | events.Refused() if before.returning and not after.returning:
            explanation = "what it had in GPU memory is lost."
            if isinstance(event, events.Refused) and after.session_id is not None:
                explanation = event.explanation
            return f"{words.taken_back(before.reason or '')} It does not wait for another: {explanation}"
        case events.Granted() if after.message == words.state_lost:
            return "the GPU state of this program was lost; arrays on the GPU must be made again"
    return None
