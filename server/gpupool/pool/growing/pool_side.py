"""The pool as providers see it: `gpupool.providers.grower.PoolSide`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

from gpupool.ledger.ledger import LedgerError
from gpupool.model import events
from gpupool.pool.lifecycle.shell import PoolShell
from gpupool.providers.elasticity import Ask
from gpupool.providers.grower import NodeStands
from gpupool.sentences import Sentence

#: Why a request waits that more devices would end. One that is held up by a limit, or for which room is being made, needs none.
_ROOM: Final = frozenset({"full", "no-node"})
#: Who drains, in the journal.
_BY: Final = "gpupool"


class PoolSide:
    """Over the pool's own events. What cannot be stored now is tried again at the next look."""

    def __init__(self, pool: PoolShell) -> None:
        self._pool = pool

    def now(self) -> float:
        return self._pool.clock.now()

    def asks(self) -> Sequence[Ask]:
        """Those that wait for room and have been told so."""
        waiting = [
            request
            for request in self._pool.state.requests.values()
            if request.decision is not None
            and request.decision.reason in _ROOM
            and not request.decision.evict
        ]
        return [
            Ask(request.id, request.milli, request.mib, request.count, request.pools)
            for request in sorted(waiting, key=lambda request: (request.place, request.number))
        ]

    def node(self, name: str) -> NodeStands | None:
        state = self._pool.state
        node = state.nodes.get(name)
        if node is None:
            return None
        sessions = state.index.sessions_of_node.of(name)
        return NodeStands(
            connected=node.connection is not None,
            devices=sum(device.node == name and device.present for device in state.devices.values()),
            busy=bool(state.leases_of_node(name)) or any(session.state != "closed" for session in sessions),
            drained=node.drained,
            lost=node.lost,
        )

    def drain(self, node: str, why: str, *, evict: bool) -> None:
        if node in self._pool.state.nodes:
            self._apply(events.NodeDrained(self.now(), node, True, why, _BY, evict))

    def forget(self, node: str) -> None:
        self._apply(events.NodeForgotten(self.now(), node))

    def say(self, said: Mapping[str, Sentence]) -> None:
        self._apply(events.PoolGrows(self.now(), tuple(said.items())))

    def _apply(self, event: events.Event) -> None:
        with contextlib.suppress(LedgerError):  # said in the log and in /health
            self._pool.apply(event)
