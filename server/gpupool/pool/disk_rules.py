"""When host memory is full: who has lain there the longest goes on to disk, as a session image.

Only for an ask that waits for nothing but room in host memory, only sessions that can be carried by an image, and
never more than fits into the node's disk budget. The ask then waits for the disk first and for the host after it.
"""

from __future__ import annotations

from dataclasses import replace

from gpupool.pool.state import NodeRecord, SessionRecord, State, node_of_device
from gpupool.pool.view import session_mib
from gpupool.scheduler import decide, explain
from gpupool.scheduler.model import Ask, Decision, Outcome, PoolView


def make_host_room(state: State, view: PoolView, wish: Ask, refused: Decision) -> Decision:
    """`refused`, or what goes to disk so that `wish` can be served after all."""
    if refused.outcome is not Outcome.QUEUE or refused.reason != "full" or refused.evict:
        return refused
    could = {
        name: room + sum(session_mib(session) for session in _candidates(state, state.nodes[name]))
        for name, room in view.host_room.items()
    }
    planned = decide(replace(view, host_room=could), wish)
    if not planned.evict:
        return refused
    node = state.nodes[node_of_device(planned.wants[0])]
    told = [state.sessions[name] for name in planned.evict]
    short = sum(session_mib(s) for s in told if s.parking is None) - view.host_room[node.name]
    chosen: list[SessionRecord] = []
    for session in _candidates(state, node):
        if sum(session_mib(s) for s in chosen) >= short:
            break
        chosen.append(session)
    mib = sum(session_mib(session) for session in chosen)
    text = explain.to_disk(mib, len(chosen), node.name)
    return Decision(
        Outcome.QUEUE, "full", text, wants=planned.wants, evict=tuple(session.id for session in chosen)
    )


def _candidates(state: State, node: NodeRecord) -> list[SessionRecord]:
    """Sessions in host memory of `node` that disk has room for, those that are on their way there first."""
    here = [session for session in state.sessions.values() if session.node == node.name]
    leaving = [s for s in here if s.parking is not None and s.parking.place == "image"]
    room = node.park_disk_mib - sum(session_mib(s) for s in here if s.place == "image" or s in leaving)
    found = list(leaving)
    waiting = [
        session
        for session in here
        if session.place == "host"
        and session.state == "parked"
        and not session.lease_id
        and session.parking is None
        and not session.move_obstacle
        and not session.park_failure
    ]
    for session in sorted(waiting, key=lambda s: (s.parked_at or 0.0, s.id)):
        if session_mib(session) <= room:
            room -= session_mib(session)
            found.append(session)
    return found
