"""Room for what fits nowhere, by moving one share or two elsewhere first.

Only parts of one device are moved, and only if every one of them has a place: a session that is parked and resumed in another
place keeps its state, but its user waits meanwhile. So the fewest moves come first, then what leaves the least room unused,
then the smaller share. The caller says how many moves it allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from gpupool.scheduler.placement.cluster import Cluster
from gpupool.scheduler.placement.model import Placement, Request
from gpupool.scheduler.placement.policy import Policy
from gpupool.scheduler.placement.residents import Residents
from gpupool.scheduler.placement.shape import Shape

#: Moves of one relocation at most.
MOST_MOVES: Final = 2
#: Relocations that are tried out before a search gives up; what is promising comes first.
_MOST_TRIALS: Final = 8


@dataclass(frozen=True, slots=True)
class Move:
    """A resident goes from where it lies to another place."""

    resident: int
    source: Placement
    target: Placement


@dataclass(frozen=True, slots=True)
class Relocation:
    """Moves, and the place that there is once they are done."""

    moves: tuple[Move, ...]
    placement: Placement


def make_room_by_moving(
    cluster: Cluster, policy: Policy, residents: Residents, request: Request, most_moves: int = MOST_MOVES
) -> Relocation | None:
    """The cheapest relocation that makes room for one share or one device; ``cluster`` is left as it was.

    None: there is none with so many moves, or the request needs no device or several.
    """
    if request.count != 1 or most_moves < 1:
        return None
    movable = _Destinations(cluster, policy, residents)
    shape = Shape(cluster, request)
    candidates = _candidates(cluster, residents, shape, movable, min(most_moves, MOST_MOVES))
    for moved in islice(candidates, _MOST_TRIALS):
        relocation = _try_out(cluster, policy, residents, request, moved)
        if relocation is not None:
            return relocation
    return None


def carry_out(cluster: Cluster, residents: Residents, relocation: Relocation) -> int | None:
    """Gives the old places back and takes the new ones; the request's number among ``residents``, if it can be moved."""
    for move in relocation.moves:
        cluster.give_back(move.source)
    cluster.take(relocation.placement)
    for move in relocation.moves:
        cluster.take(move.target)
        residents.replace(move.resident, move.target)
    return residents.add(relocation.placement)


class _Destinations:
    """Whether there is room for a resident elsewhere, asked once for each shape."""

    def __init__(self, cluster: Cluster, policy: Policy, residents: Residents) -> None:
        self._cluster = cluster
        self._policy = policy
        self._residents = residents
        self._known: dict[Request, bool] = {}

    def has(self, resident: int) -> bool:
        request = self._residents[resident].request
        if request not in self._known:
            self._known[request] = self._policy.place(self._cluster, request) is not None
        return self._known[request]


def _candidates(
    cluster: Cluster, residents: Residents, shape: Shape, movable: _Destinations, most: int
) -> Iterator[tuple[int, ...]]:
    """Residents of one device whose leaving makes room there, the best first."""
    need = (shape.milli, shape.mib)
    numbers = residents.whose_leaving_helps(cluster, need, shape.request.cpu_milli, shape.request.memory_mib)
    milli, mib = residents.left_without(cluster, numbers, need)
    sizes, memory = residents.sizes(numbers)
    enough = np.flatnonzero((milli >= 0) & (mib >= 0))
    for index in enough[np.lexsort((numbers[enough], sizes[enough], milli[enough]))].tolist():
        if movable.has(int(numbers[index])):
            yield (int(numbers[index]),)
    if most < 2:
        return
    by_device: dict[tuple[int, int], list[int]] = {}
    for index in range(len(numbers)):
        number = int(numbers[index])
        if movable.has(number):
            lies = residents[number]
            by_device.setdefault((lies.node, lies.devices[0]), []).append(index)
    pairs = []
    for group in by_device.values():
        for first, second in _pairs(group):
            left = int(milli[first] + sizes[second])
            if left >= 0 and mib[first] + memory[second] >= 0:
                pairs.append(
                    (left, int(sizes[first] + sizes[second]), int(numbers[first]), int(numbers[second]))
                )
    for _, _, one, other in sorted(pairs):
        yield (one, other)


def _pairs(group: Sequence[int]) -> Iterator[tuple[int, int]]:
    for place, first in enumerate(group):
        for second in group[place + 1 :]:
            yield first, second


def _try_out(
    cluster: Cluster, policy: Policy, residents: Residents, request: Request, moved: Sequence[int]
) -> Relocation | None:
    """Does it, sees whether everybody has a place, and undoes it."""
    sources = [residents[number] for number in moved]
    for source in sources:
        cluster.give_back(source)
    taken: list[Placement] = []
    try:
        placement = cluster.place_at(request, sources[0].node, sources[0].devices)
        if placement is None:
            return None
        cluster.take(placement)
        taken.append(placement)
        moves = []
        # The larger share has fewer places to go to.
        for number in sorted(moved, key=lambda number: -residents[number].shares[0][0]):
            target = policy.place(cluster, residents[number].request)
            if target is None:
                return None
            cluster.take(target)
            taken.append(target)
            moves.append(Move(number, residents[number], target))
        return Relocation(tuple(moves), placement)
    finally:
        for placement in reversed(taken):
            cluster.give_back(placement)
        for source in sources:
            cluster.take(source)
