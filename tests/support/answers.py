"""All that the pool answers one user, as it would go over the wire: what lists, explanations, refusals and the journal say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from gpupool.ledger.ledger import journal_row
from gpupool.model import instructions
from gpupool.model.clock import Clock
from gpupool.pool.access.hidden_users import hide
from gpupool.pool.api import convert, explanations
from gpupool.pool.api.reports_service import journal_line
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.proto.sentences import to_message

from tests.support.pool_world import PoolWorld


def lists(world: PoolWorld, viewer: str) -> Iterator[Any]:
    """What is there now, of all and of the viewer's own."""
    state, now, clock = world.machine.state, world.now, Clock(offset=0.0)
    yield convert.device_list(state, world.timers, now, viewer)
    yield convert.lease_list(state, clock, viewer)
    yield convert.session_list(state, now, viewer)
    yield convert.queue_list(state, clock, viewer)
    for request in state.requests.values():
        if request.user == viewer and (said := explanations.of_request(request, state)) is not None:
            yield said
    for lease in state.leases.values():
        if lease.user == viewer and not lease.part:
            for protected in (True, False):
                yield explanations.of_lease(
                    lease, state, world.timers, now, protected=protected, min_run=world.timers.min_run
                )


def told(world: PoolWorld, viewer: str, after: int = 0) -> Iterator[Any]:
    """What was said to the viewer since there were `after` answers."""
    for item in world.told[after:]:
        match item:
            case instructions.TellQueued() if item.user == viewer:
                yield pb.QueuePlace(place=item.place, said=to_message(item.said))
            case instructions.TellRefused() if item.user == viewer:
                yield explanations.of_refusal(item, world.machine.state)
            case instructions.TellResized() if world.machine.state.leases[item.lease_id].user == viewer:
                yield to_message(item.said)


def journal(world: PoolWorld, viewer: str, after: int = 0) -> Iterator[Any]:
    """The viewer's lines since there were `after` lines."""
    for line in world.journal[after:]:
        if line.user == viewer:
            yield journal_line(SimpleNamespace(number=0, **journal_row(line, 0.0, 0)))


def names_in(message: Any, viewer: str, users: set[str]) -> set[str]:
    """Users beside the viewer whom an answer names once it has passed `hide`."""
    hide(message, viewer)
    words = str(message)
    return {
        name
        for name in users - {viewer}
        if name in words and re.search(rf"(?<![\w/-]){re.escape(name)}(?![\w/-])", words)
    }
