"""Room for a request that fits nowhere, by leases that go on somewhere else first (`scheduler/placement/consolidate.py`).

At most two leases move, each a part of one device. Each has its place before anything is moved, on a device of the same make, and
what its session keeps finds room in the host memory of its node, through which it goes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpupool.filters import Filter
from gpupool.scheduler.candidates import Candidates
from gpupool.scheduler.fleet import Fleet, only
from gpupool.scheduler.model import PlacedShare, Request
from gpupool.scheduler.placement import Consolidation, Demand, Placement, Residents
from gpupool.scheduler.placement.consolidate import MOST_MOVES
from gpupool.scheduler.placement.policy import Mask
from gpupool.scheduler.pool_view import PoolView
from gpupool.scheduler.ports import rows_with_ports, with_ports
from gpupool.shares import Share


@dataclass(frozen=True, slots=True)
class Movable:
    """A lease that may be asked to go on somewhere else.

    Attributes:
        share: all that it holds.
        kept_mib: what its session keeps in memory, which goes through host memory.
        bound: it cannot go on in another node.
        filters: what its holder wants its devices to be like, and will ask for again.
    """

    share: PlacedShare
    kept_mib: int = 0
    bound: bool = False
    filters: tuple[Filter, ...] = ()


@dataclass(frozen=True, slots=True)
class Moved:
    """A lease ends on ``source``, and its session goes on on ``target``."""

    lease_id: str
    source: PlacedShare
    target: PlacedShare


@dataclass(frozen=True, slots=True)
class Moves:
    """What has to move, and where the request lies then."""

    moved: tuple[Moved, ...]
    shares: tuple[PlacedShare, ...]


def relocation(
    pool: PoolView, request: Request, movable: Mapping[str, Movable], most_moves: int = MOST_MOVES
) -> Moves | None:
    """The fewest moves that make room for ``request`` in ``pool``; None: there are none, or it is not one new share.

    Args:
        pool: the pool at one moment.
        request: what room is sought for.
        movable: leases by id. Which of them may be asked at all is the caller's to say.
        most_moves: how many may move, at most.
    """
    if request.count != 1 or request.parked is not None or request.parts or not movable or not pool.devices:
        return None
    share = Share(milli=request.milli, mib=request.mib)
    fleet = pool.fleet
    residents = Residents()
    names: dict[int, str] = {}
    alike = _alike(fleet)
    # The rest of what was asked for holds for all devices of its class, on nodes with the same labels.
    by_name = {
        lease.filters for lease in movable.values() if any(wish.key == "node" for wish in lease.filters)
    }
    admitted = {filters: _admitted(fleet, filters) for filters in by_name}
    for lease_id in sorted(movable):
        number = _add(pool, residents, movable[lease_id], alike, admitted)
        if number is not None:
            names[number] = lease_id
    search = Consolidation(fleet.cluster, fleet.policy, residents)
    for node_pool in request.pools or (None,):
        candidates = fleet.candidates(request, share, node_pool)
        demand = fleet.demand(candidates, share, 1)
        for most in range(1, most_moves + 1):
            found = search.room_for(demand, most, with_ports(pool, candidates).rows)
            if found is None:
                continue
            moved = tuple(
                Moved(names[move.resident], movable[names[move.resident]].share, _share(fleet, move.target))
                for move in found.moves
            )
            if _go_through_host(pool, movable, [move.lease_id for move in moved]):
                return Moves(moved, (_placed(fleet, found.placement, share, candidates),))
    return None


def _alike(fleet: Fleet) -> Mapping[str, Mask | None]:
    """By node: those in the same node pool with the same labels, as a lease may have asked for either; None: all."""
    samples = [fleet.at(row, 0) for row in range(len(fleet.nodes))]
    kinds = [(sample.pool, *sorted(sample.labels.items())) for sample in samples]
    rows: dict[object, Mask | None] = {
        kind: np.array([other == kind for other in kinds], np.bool_) for kind in set(kinds)
    }
    if len(rows) == 1:
        return dict.fromkeys(fleet.nodes)
    return {name: rows[kind] for name, kind in zip(fleet.nodes, kinds, strict=True)}


def _add(
    pool: PoolView,
    residents: Residents,
    lease: Movable,
    alike: Mapping[str, Mask | None],
    admitted: Mapping[tuple[Filter, ...], Mask],
) -> int | None:
    """Its number; None: its device takes nothing new, or it does not fit through its node's host memory.

    `admitted`: by filters that name nodes, those that they admit.
    """
    fleet = pool.fleet
    device = pool.device(lease.share.device_id)
    if device is None or not device.healthy or device.id in pool.reserved or device.sharing == "open":
        return None
    if lease.kept_mib > pool.host_room.get(device.node, 0):
        return None
    row, column = fleet.where(device.id)
    models = frozenset({str(fleet.class_of[row, column])})
    demand = Demand(lease.share.milli, models=models)
    share = (lease.share.milli, lease.share.mib)
    among = only(fleet, device.node) if lease.bound else alike[device.node]
    if (named := admitted.get(lease.filters)) is not None:
        among = named if among is None else among & named
    if (reachable := rows_with_ports(pool)) is not None:
        # On another device of its node it keeps its worker.
        reachable |= only(fleet, device.node)
        among = reachable if among is None else among & reachable
    return residents.add(Placement(demand, row, (column,), (share,)), among)


def _admitted(fleet: Fleet, filters: Sequence[Filter]) -> Mask:
    """Per row: whether the filters admit this node."""
    samples = [fleet.at(row, 0) for row in range(len(fleet.nodes))]
    of_node = [wish for wish in filters if wish.of_node]
    return np.array([all(wish.matches(sample) for wish in of_node) for sample in samples], np.bool_)


def _go_through_host(pool: PoolView, movable: Mapping[str, Movable], lease_ids: Collection[str]) -> bool:
    """Whether host memory has room for what all of them keep together."""
    needed: dict[str, int] = {}
    for lease_id in lease_ids:
        node = movable[lease_id].share.device_id.rpartition("/")[0]
        needed[node] = needed.get(node, 0) + movable[lease_id].kept_mib
    return all(mib <= pool.host_room.get(node, 0) for node, mib in needed.items())


def _share(fleet: Fleet, placement: Placement) -> PlacedShare:
    milli, mib = placement.shares[0]
    return PlacedShare(fleet.at(placement.node, placement.devices[0]).id, milli, mib)


def _placed(fleet: Fleet, placement: Placement, share: Share, candidates: Candidates) -> PlacedShare:
    column = placement.devices[0]
    if not candidates.devices[placement.node, column]:
        raise RuntimeError(
            f"moves make room for {share} on {fleet.at(placement.node, column).id}, which will not do"
        )
    return _share(fleet, placement)
