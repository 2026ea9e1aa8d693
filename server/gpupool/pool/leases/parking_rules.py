"""Memory of parked sessions on its way off the devices, for a request that needs the room.

The room is kept for that request by what it wants (`RequestRecord.wants`). Until the worker has confirmed, the memory counts
as lying where it lay. A session that is asked to go on meanwhile waits for the outcome. Nothing of this is stored:
after a restart the worker says where the memory lies, and telling it again changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

from gpupool.model import events
from gpupool.model.state import Parking, SessionRecord
from gpupool.pool.model import messages
from gpupool.pool.model.step import Step
from gpupool.pool.model.view import kept_mib, session_mib
from gpupool.sentences import Sentence, obstacles

#: What a person reads for the reasons that workers give; others stand for themselves.
_REASONS = {
    "attached": "it has been attached meanwhile",
    "busy": "its last work has not ended",
    "failed": "the driver refused",
}


def where(place: str) -> str:
    """A place off the devices, in words."""
    return "the disk" if place == "image" else "host memory"


def begin(step: Step, session_id: str, place: str, why: Sentence | str) -> bool:
    """Tells a session's worker to move its memory; False: it is being moved already, or goes with its worker."""
    session = step.state.sessions[session_id]
    if session.parking is not None or session.state == "closed":
        return False
    number = messages.park_memory(step, session, place)
    step.state.sessions[session_id] = replace(
        session, parking=Parking(place, number, step.now), park_failure="", park_retry_at=0.0
    )
    step.journal(
        "park-memory", why, user=session.user, session_id=session_id, node=session.node,
        data={"place": place, "mib": session_mib(session)},
    )  # fmt: skip
    return True


def answered(step: Step, event: events.MemoryParked) -> None:
    """The agent's answer; one to an order that was given up is out of date, reports tell how it ended."""
    session = step.state.sessions.get(event.session_id)
    if session is None or session.node != event.node or session.parking is None:
        return
    if session.parking.request != event.request:
        return
    if not event.ok:
        failed(step, session, _in_words(event.message or "no reason given"))
        return
    step.state.sessions[session.id] = replace(
        session,
        place=event.place,
        parking=None,
        parked_mib=kept_mib(session),
        address="" if event.place == "image" else session.address,
        # Without a worker nobody knows whether the client still lives: its time runs from here.
        gone_since=step.now if event.place == "image" else session.gone_since,
    )
    step.reschedule = True
    there = f"{where(event.place)} of node {session.node}"
    step.journal(
        "memory-parked", f"{event.mib} MiB of session {session.id} were moved to {there}",
        user=session.user, session_id=session.id, node=session.node,
        data={"place": event.place, "mib": event.mib, "seconds": round(step.now - session.parking.since, 3)},
    )  # fmt: skip


def _in_words(said: str) -> str:
    """A worker's reason, with the driver's error behind it if there is one (``failed why=out-of-memory``)."""
    reason, _, why = said.partition(" why=")
    known = str(obstacles.because(reason)) if obstacles.is_known(reason) else reason
    words = _REASONS.get(reason) or known
    return f"{words} ({why})" if why else words


def failed(step: Step, session: SessionRecord, why: str) -> None:
    """The memory stays where it is, and is left alone for a while."""
    step.state.sessions[session.id] = replace(
        session, parking=None, park_failure=why, park_retry_at=step.now + step.timers.park_retry
    )
    step.reschedule = True
    step.journal(
        "park-failed", f"the memory of session {session.id} could not be moved: {why}",
        user=session.user, session_id=session.id, node=session.node,
    )  # fmt: skip


def tick(step: Step) -> None:
    """Gives up on workers that do not answer, and looks again when a failure is old enough."""
    for session in step.state.index.moving_memory.records():
        if session.parking is not None and step.now - session.parking.since > step.timers.park:
            failed(step, session, f"no answer within {step.timers.park:.0f} s")
        elif session.park_failure and step.now >= session.park_retry_at:
            step.state.sessions[session.id] = replace(session, park_failure="", park_retry_at=0.0)
            step.reschedule = True
