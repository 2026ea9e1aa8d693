"""When host memory is full: who has lain there the longest goes on to disk, as a session image.

Where that does not make room enough, sessions go from their device to disk at once. Only for a request that waits for
nothing but room in host memory, only sessions that can be carried by an image, and never more than fits into the
node's disk budget. The request waits for the disk first and for the host after it.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpupool.model.state import SessionRecord, State, node_of_device
from gpupool.model.state_index import goes_to_disk
from gpupool.pool.model.view import disk_rooms, session_mib
from gpupool.scheduler import decide, explain
from gpupool.scheduler.model import Decision, Outcome, Request
from gpupool.scheduler.pool_view import PoolView


def make_host_room(state: State, view: PoolView, wish: Request, refused: Decision) -> Decision:
    """`refused`, or what goes to disk so that `wish` can be served after all."""
    if refused.outcome is not Outcome.QUEUE or refused.reason != "full" or refused.evict:
        return refused
    if not len(state.index.unattached):
        return refused  # only memory of parked sessions leaves its place for others
    on_disk = disk_rooms(state)
    if all(room <= 0 for room in on_disk.values()) and not _goes_anywhere(state):
        return refused
    could = {name: room + max(0, on_disk.get(name, 0)) for name, room in view.host_room.items()}
    planned = decide(view.with_host_room(could), wish, helps=False, words=False)
    if not planned.evict or len({node_of_device(name) for name in planned.wants}) > 1:
        return refused  # for a gang nobody is sent to disk: room would have to come about on several nodes at once
    node = state.nodes[node_of_device(planned.wants[0])]
    victims = [s for name in planned.evict if (s := state.sessions[name]).parking is None]
    short = sum(session_mib(session) for session in victims) - view.host_room[node.name]
    here = state.index.sessions_of_node.of(node.name)
    in_host = [session for session in here if session.place == "host" and _idle(session)]
    chosen = [session for session in here if goes_to_disk(session)]
    room = on_disk[node.name]
    for session in (*_longest_first(in_host), *_longest_first(victims)):
        mib = session_mib(session)
        if short > sum(session_mib(s) for s in chosen) and not session.move_obstacle and mib <= room:
            chosen.append(session)
            room -= mib
    if short > sum(session_mib(session) for session in chosen):
        return refused
    names = tuple(session.id for session in chosen)
    text = explain.to_disk(sum(session_mib(session) for session in chosen), len(chosen), node.name)
    return Decision(Outcome.QUEUE, "full", text, wants=planned.wants, evict=names, to_disk=frozenset(names))


def _goes_anywhere(state: State) -> bool:
    return any(map(goes_to_disk, state.index.moving_memory.records()))


def _idle(session: SessionRecord) -> bool:
    unasked = session.state == "parked" and not session.lease_id and session.parking is None
    return unasked and not session.park_failure


def _longest_first(sessions: Iterable[SessionRecord]) -> list[SessionRecord]:
    return sorted(sessions, key=lambda session: (session.parked_at or 0.0, session.id))
