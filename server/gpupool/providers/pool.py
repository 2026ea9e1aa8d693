"""The pool, as far as providers need it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpupool.providers.elasticity import Ask, Scale
from gpupool.sentences import Sentence


@dataclass(frozen=True, slots=True)
class NodeStands:
    """A node as the pool knows it.

    Attributes:
        devices: that its agent has told.
        busy: leases, or sessions that are not closed.
        lost: silent for so long that its workers have fenced themselves.
        leases: of those that it serves, what they hold on it.
        free: milli-GPU of each device that nobody has; empty if it takes no new leases.
        pool: the node pool it belongs to.
        sharing: of its devices, one of `scheduler.model.SHARING`.
        types: what its devices are called.
        mib: memory of the smallest of them; 0: it has none.
        software: one of them is a software GPU.
        labels: of the node.
    """

    connected: bool
    devices: int
    busy: bool
    drained: bool
    lost: bool
    leases: tuple[Ask, ...] = ()
    free: tuple[int, ...] = ()
    pool: str = "default"
    sharing: str = "isolated"
    types: frozenset[str] = frozenset()
    mib: int = 0
    software: bool = False
    labels: tuple[tuple[str, str], ...] = ()


class PoolSide(Protocol):
    """The pool, as far as providers need it."""

    def now(self) -> float:
        """Seconds of a clock that never goes back."""

    def promise(self, scales: Mapping[str, Scale]) -> None:
        """What providers can bring, by name: from now on requests count on it."""

    def asks(self) -> Sequence[Ask]:
        """What waits because there is no room, in the order in which it is served."""

    def node(self, name: str) -> NodeStands | None:
        """None: it has never connected, or is forgotten."""

    def node_names(self) -> Sequence[str]:
        """All that are connected."""

    def drain(self, node: str, why: str, *, evict: bool) -> None:
        """It takes no new leases; `evict`: those that it has end with notice, and their sessions go on elsewhere."""

    def forget(self, node: str) -> None:
        """It will not come back, unless it is connected; the pool drops it when nothing of it is left."""

    def say(self, said: Mapping[str, Sentence]) -> None:
        """What those that wait are told."""
