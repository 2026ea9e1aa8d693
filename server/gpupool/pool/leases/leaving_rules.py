"""A node whose agent has been told to end: its sessions leave it in the time that is left, or wait on its disk.

Nothing new is placed there. Leases end after a notice, which is shorter than others if there is little time. A session goes on
in another node when its holder asks again. A parked session that nobody asks for goes to the node's disk, where the next
agent finds it. So does one that has found no other node when most of the time is over. What fits nowhere ends with the agent.

Nothing of this is stored: an agent that connects anew says it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpupool.model import events
from gpupool.model.state import NodeRecord, SessionRecord
from gpupool.pool.leases import notice_rules, parking_rules
from gpupool.pool.model.step import Step
from gpupool.pool.model.view import disk_rooms, session_mib
from gpupool.records import replace
from gpupool.sentences import param, say

#: Of the time that is left, the part in which leases end. The rest is for their memory.
_NOTICE_PART: Final = 1 / 3
#: Holders ask again at once when a lease was taken back; seconds.
_ASK_AGAIN: Final = 5.0


def told(step: Step, event: events.NodeLeaving) -> None:
    """The agent waits for its sessions from now on, for `seconds`."""
    node = step.state.nodes[event.node]
    leaves_at = step.now + event.seconds
    if node.leaves_at is None:
        step.journal(
            "node-leaving",
            say("node.leaving", node=param.node(node.name), seconds=param.seconds(event.seconds)),
            node=node.name, data={"seconds": round(event.seconds, 3)},
        )  # fmt: skip
    step.state.nodes[node.name] = replace(node, leaves_at=leaves_at)
    until = step.now + min(step.timers.notice, event.seconds * _NOTICE_PART)
    notice_rules.give_all(step, node.name, until, say("notice.leaving", node=param.node(node.name)))
    step.reschedule = True


def tick(step: Step) -> None:
    """Keeps on the nodes' disks what will not leave them."""
    leaving = [node for node in step.state.nodes.values() if node.leaves_at is not None]
    if not leaving:
        return
    rooms = disk_rooms(step.state)
    for node in leaving:
        for session in _to_keep(step, node):
            mib = session_mib(session)
            why = say("leaving.to-disk", mib=param.mib(mib), node=param.node(node.name))
            if mib <= rooms[node.name] and parking_rules.begin(step, session.id, "image", why):
                rooms[node.name] -= mib


def _to_keep(step: Step, node: NodeRecord) -> Iterator[SessionRecord]:
    """Parked sessions in its memory that an image can carry, and that do not leave by themselves."""
    if node.connection is None or node.leaves_at is None:
        return
    state = step.state
    # From then on a session is kept for the next agent although its holder waits for another node.
    is_late = node.leaves_at - step.now < step.timers.notice
    for session in list(state.index.sessions_of_node.of(node.name)):
        if session.state != "parked" or session.lease_id or session.worker_gone or session.place == "image":
            continue
        if session.parking is not None or session.park_failure or session.move_obstacle or session.gang:
            continue
        asked = bool(state.index.requests_of_session.of(session.id))
        just_parked = step.now - (session.parked_at or 0.0) < _ASK_AGAIN
        if is_late or not (asked or just_parked):
            yield session
