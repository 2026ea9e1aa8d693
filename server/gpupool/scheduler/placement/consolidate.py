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
from numpy.typing import NDArray

from gpupool.scheduler.placement.cluster import Cluster, Integers
from gpupool.scheduler.placement.model import Demand, Placement
from gpupool.scheduler.placement.policy import Mask, Policy
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


def carry_out(cluster: Cluster, residents: Residents, relocation: Relocation) -> int | None:
    """Gives the old places back and takes the new ones; the demand's number among ``residents``, if it can be moved."""
    for move in relocation.moves:
        cluster.give_back(move.source)
    cluster.take(relocation.placement)
    for move in relocation.moves:
        cluster.take(move.target)
        residents.replace(move.resident, move.target)
    return residents.add(relocation.placement)


class Consolidation:
    """Searches for relocations in one cluster, and remembers until it changes what was in vain."""

    def __init__(self, cluster: Cluster, policy: Policy, residents: Residents) -> None:
        self._cluster = cluster
        self._policy = policy
        self._residents = residents
        self._version = -1
        self._has_place: dict[int, bool] = {}
        self._in_vain: set[tuple[Demand, int]] = set()

    def room_for(
        self, demand: Demand, most_moves: int = MOST_MOVES, among: Mask | None = None
    ) -> Relocation | None:
        """The cheapest relocation that makes room for one share or one device; the cluster is left as it was.

        Args:
            demand: what room is sought for.
            most_moves: how many may move, at most.
            among: per node, whether the demand may go there; None: anywhere.

        None: there is none with so many moves, or the demand needs no device or several.
        """
        most = min(most_moves, MOST_MOVES)
        if demand.count != 1 or most < 1:
            return None
        if self._version != self._cluster.version:
            self._has_place.clear()
            self._in_vain.clear()
        relocation = None
        if among is not None or (demand, most) not in self._in_vain:
            trials = islice(self._candidates(Shape(self._cluster, demand), most, among), _MOST_TRIALS)
            relocation = next((found for moved in trials if (found := self._try_out(demand, moved))), None)
        # Trials were undone: what was true before still is.
        self._version = self._cluster.version
        if relocation is None and among is None:
            self._in_vain.add((demand, most))
        return relocation

    def _candidates(self, shape: Shape, most: int, among: Mask | None) -> Iterator[tuple[int, ...]]:
        """Residents of one device whose leaving makes room there, and that have room elsewhere; the best first."""
        cluster, residents = self._cluster, self._residents
        need = (shape.milli, shape.mib)
        numbers = residents.whose_leaving_helps(
            cluster, need, shape.demand.cpu_milli, shape.demand.memory_mib
        )
        numbers = numbers[self._with_a_place(residents.shapes_of(numbers))]
        if among is not None:
            numbers = numbers[among[residents.nodes_of(numbers)]]
        milli, mib = residents.left_without(cluster, numbers, need)
        sizes, memory = residents.sizes(numbers)
        enough = np.flatnonzero((milli >= 0) & (mib >= 0))
        for index in enough[np.lexsort((numbers[enough], sizes[enough], milli[enough]))].tolist():
            yield (int(numbers[index]),)
        if most < 2:
            return
        pairs = []
        for group in _together(residents.devices_of(numbers)):
            for first, second in _pairs(group):
                left = int(milli[first] + sizes[second])
                if left >= 0 and mib[first] + memory[second] >= 0:
                    pairs.append(
                        (left, int(sizes[first] + sizes[second]), int(numbers[first]), int(numbers[second]))
                    )
        for _, _, one, other in sorted(pairs):
            yield (one, other)

    def _with_a_place(self, shapes: Integers) -> NDArray[np.bool_]:
        """Of each, whether such a demand has room now; asked once for each shape."""
        every = np.zeros(len(self._residents.shapes), np.bool_)
        for shape in np.unique(shapes).tolist():
            if shape not in self._has_place:
                placement = self._policy.place(self._cluster, self._residents.shapes[shape])
                self._has_place[shape] = placement is not None
            every[shape] = self._has_place[shape]
        chosen: NDArray[np.bool_] = every[shapes]
        return chosen

    def _try_out(self, demand: Demand, moved: Sequence[int]) -> Relocation | None:
        """Does it, sees whether everybody has a place, and undoes it."""
        cluster, residents = self._cluster, self._residents
        sources = [residents[number] for number in moved]
        for source in sources:
            cluster.give_back(source)
        taken: list[Placement] = []
        try:
            placement = cluster.place_at(demand, sources[0].node, sources[0].devices)
            if placement is None:
                return None
            cluster.take(placement)
            taken.append(placement)
            moves = []
            # The larger share has fewer places to go to.
            for number in sorted(moved, key=lambda number: -residents[number].shares[0][0]):
                target = self._policy.place(cluster, residents[number].demand, residents.among(number))
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


def _together(devices: Integers) -> Iterator[list[int]]:
    """The indices of those on one device, where there are several."""
    order = np.argsort(devices, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(devices[order])) + 1):
        if len(group) > 1:
            yield group.tolist()


def _pairs(group: Sequence[int]) -> Iterator[tuple[int, int]]:
    for place, first in enumerate(group):
        for second in group[place + 1 :]:
            yield first, second
