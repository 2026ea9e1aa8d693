"""The pool as providers see it: `gpupool.providers.pool.PoolSide`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from gpupool.ledger.ledger import LedgerError
from gpupool.model import events
from gpupool.model.node_records import NodeRecord
from gpupool.model.state import RequestRecord, State
from gpupool.pool.model.view import wish_for_new_session
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
        ]
        return [
            self._ask(request)
            for request in sorted(waiting, key=lambda request: (request.place, request.number))
        ]

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
        state = self._pool.state
        node = state.nodes.get(name)
        if node is None:
            return None
        sessions = state.index.sessions_of_node.of(name)
        leases = state.leases_of_node(name)
        return NodeStands(
            connected=node.connection is not None,
            devices=sum(device.present for device in state.index.devices_of_node.of(name)),
            busy=bool(leases) or any(session.state != "closed" for session in sessions),
            drained=node.drained,
            lost=node.lost,
            leases=tuple(
                Ask(lease.id, share.milli, None) for lease in leases if lease.live for share in lease.shares
            ),
            free=self._free(node),
        )

    def node_names(self) -> Sequence[str]:
        return [node.name for node in self._pool.state.nodes.values() if node.connection is not None]

    def _free(self, node: NodeRecord) -> tuple[int, ...]:
        if node.drained or node.lost or node.connection is None:
            return ()
        free = {
            device.id: 1000
            for device in self._pool.state.index.devices_of_node.of(node.name)
            if device.present
        }
        for lease in self._pool.state.leases_of_node(node.name):
            for share in lease.taken():
                if share.device_id in free:
                    free[share.device_id] -= share.milli
        return tuple(free.values())

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
