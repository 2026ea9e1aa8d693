"""The pool as providers see it: `gpupool.providers.pool.PoolSide`."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from gpupool.ledger.ledger import LedgerError
from gpupool.model import events
from gpupool.model.state import RequestRecord, SessionRecord, State
from gpupool.pool.growing.node_stands import NodesStand
from gpupool.pool.model.view import parked_session, wish_for_new_session
from gpupool.providers.elasticity import Ask, Scale
from gpupool.providers.pool import NodeStands
from gpupool.records import replace
from gpupool.scheduler.model import Request
from gpupool.scheduler.pool_view import Promise
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
        """Whether a new node is of no use to it: its session can go on in no other, or waits for the end of its own lease."""
        session = self._pool.state.sessions.get(request.session_id)
        if session is None:
            return False
        if self._pool.state.lease_of_session(session) is not None:
            return True
        parked = parked_session(self._pool.state, session, self.now())
        return bool(parked.bound) or parked.place == "image"

    def promise(self, scales: Mapping[str, Scale]) -> None:
        self._promised = tuple(_promise(name, scale) for name, scale in scales.items())
        self._pool.promise(self._promised)

    def _ask(self, request: RequestRecord) -> Ask:
        wish = wish_for_new_session(request)
        session = self._pool.state.sessions.get(request.session_id)
        kind = ""
        if session is not None:
            wish, kind = replace(wish, isolated=session.isolated), self._kind_of(session)
        unlike = frozenset(one.provider for one in self._promised if not _could_serve(one, wish, kind))
        return Ask(request.id, request.milli, request.mib, request.count, request.pools, unlike)

    def _kind_of(self, session: SessionRecord) -> str:
        """What the devices are called on which its memory can go on; empty: it is not known."""
        devices = self._pool.state.devices
        kinds = {devices[name].name for name in session.device_ids if name in devices}
        return kinds.pop() if len(kinds) == 1 else ""

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
        record = self._pool.state.nodes.get(node)
        if record is not None and record.connection is None and not record.given_back:
            self._apply(events.NodeForgotten(self.now(), node))

    def say(self, said: Mapping[str, Sentence]) -> None:
        self._apply(events.PoolGrows(self.now(), tuple(said.items())))

    def _apply(self, event: events.Event) -> None:
        with contextlib.suppress(LedgerError):  # said in the log and in /health
            self._pool.apply(event)


def _could_serve(promise: Promise, wish: Request, kind: str) -> bool:
    """Whether its nodes have devices for the wish; `kind`: what they have to be called, empty: anything.

    A provider of which nobody has said what it brings may bring that kind: a session that goes on has been placed there, perhaps.
    """
    if kind and promise.type not in ("", kind):
        return False
    return could_serve(dataclasses.replace(promise, type=promise.type or kind), wish)


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
