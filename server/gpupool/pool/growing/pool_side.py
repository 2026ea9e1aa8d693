"""The pool as providers see it: `gpupool.providers.pool.PoolSide`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from gpupool.ledger.ledger import LedgerError
from gpupool.model import events
from gpupool.model.state import RequestRecord, State
from gpupool.pool.growing.node_stands import NodesStand
from gpupool.pool.model.view import parked_session, wish_for_new_session
from gpupool.providers.elasticity import Ask, Scale
from gpupool.providers.pool import NodeStands
from gpupool.scheduler.model import Promise
from gpupool.scheduler.promised import could_serve
from gpupool.sentences import Sentence

#: Why a request waits that more devices would end. One that is held up by a limit, or for which room is being made, needs none.
_ROOM: Final = frozenset({"full", "no-node"})
#: Who drains, in the journal.
_BY: Final = "gpupool"


class GrowingPool(Protocol):
    """What is needed of a pool; `PoolShell` is one, and a simulated pool another."""

    @property
    def state(self) -> State: ...

    def now(self) -> float:
        """Seconds of the pool's clock."""

    def apply(self, event: events.Event) -> None:
        """Raises LedgerError: it could not be stored; nothing happened."""

    def promise(self, promised: Sequence[Promise]) -> None:
        """What providers can bring: from now on requests count on it."""


class PoolSide:
    """Over the pool's own events. What cannot be stored now is tried again at the next look."""

    def __init__(self, pool: GrowingPool) -> None:
        self._pool = pool
        self._promised: tuple[Promise, ...] = ()
        self._nodes = NodesStand(pool.state)

    def now(self) -> float:
        return self._pool.now()

    def asks(self) -> Sequence[Ask]:
        """Those that wait for room and have been told so."""
        waiting = [
            request
            for request in self._pool.state.requests.values()
            if request.decision is not None
            and request.decision.reason in _ROOM
            and not request.decision.evict
            and not self._stays(request)
        ]
        return [
            self._ask(request)
            for request in sorted(waiting, key=lambda request: (request.place, request.number))
        ]

    def _stays(self, request: RequestRecord) -> bool:
        """Whether it is of a session that can go on in no other node: a new one is of no use."""
        session = self._pool.state.sessions.get(request.session_id)
        if session is None:
            return False
        parked = parked_session(self._pool.state, session, self.now())
        return bool(parked.bound) or parked.place == "image"

    def promise(self, scales: Mapping[str, Scale]) -> None:
        self._promised = tuple(_promise(name, scale) for name, scale in scales.items())
        self._pool.promise(self._promised)

    def _ask(self, request: RequestRecord) -> Ask:
        unlike: frozenset[str] = frozenset()
        if not request.session_id:
            wish = wish_for_new_session(request)
            unlike = frozenset(one.provider for one in self._promised if not could_serve(one, wish))
        return Ask(request.id, request.milli, request.mib, request.count, request.pools, unlike)

    def node(self, name: str) -> NodeStands | None:
        if self._nodes.state is not self._pool.state:
            self._nodes = NodesStand(self._pool.state)
        return self._nodes.of(name)

    def node_names(self) -> Sequence[str]:
        return [node.name for node in self._pool.state.nodes.values() if node.connection is not None]

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


def _promise(name: str, scale: Scale) -> Promise:
    offer = scale.offer
    return Promise(
        name,
        scale.devices,
        scale.device_mib,
        scale.node_pool,
        offer.type,
        offer.labels,
        offer.sharing,
        offer.software,
    )
