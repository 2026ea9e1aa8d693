"""Devices that a look at the queue keeps free for requests that wait, and who may use them nevertheless.

A request that waits for room keeps the devices on which it will most likely fit first. Those behind it may pass it elsewhere,
or use a kept device if they are over before it can serve the one that waits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gpupool.model.state import RequestRecord
from gpupool.model.state_index import is_owed
from gpupool.pool.model.step import Step
from gpupool.pool.model.waiting import Lane, Rank, Waiting
from gpupool.pool.queue.eta import eta_of
from gpupool.pool.queue.passing import has_room, served_at
from gpupool.pool.queue.request_view import own_places, resumed_by
from gpupool.scheduler.model import Decision
from gpupool.scheduler.pool_view import PoolView
from gpupool.shares import Share


@dataclass(frozen=True, slots=True)
class Kept:
    """Devices that are kept free for a request that waits.

    Attributes:
        request_id: the one that waits.
        project: whose it is.
        rank: its place among those of its project.
        order: how it compared with those of other projects when its turn came.
        devices: their ids.
        decision: what it was told.
        counted: what it will have of them is counted in the pool as it is going to be, see `taking_rules`.
        owed: room on them is being made for it; else they are a wish.
    """

    request_id: str
    project: str
    rank: Rank
    order: tuple[object, ...]
    devices: frozenset[str]
    decision: Decision
    counted: bool
    owed: bool


class KeptDevices:
    """What is kept, as the requests of one look are decided in their order."""

    def __init__(self, waiting: Waiting, owed: Mapping[str, frozenset[str]], taken: Collection[str]) -> None:
        """Keeps nothing but where room is being made.

        Args:
            waiting: all that wait.
            owed: where room is being made for requests that have not been decided in this look; changes as they are.
            taken: requests for which somebody was told to go.
        """
        self._owed = owed
        #: Of those for whom nobody else has to go, their projects and ranks: such room comes to the first in line.
        self._by_itself = waiting.ranks(name for name in owed if name not in taken)
        #: By the devices and the request: what many wait for is the same few devices.
        self._kept: dict[frozenset[str], dict[str, Kept]] = {}
        self._kept_for: dict[str, frozenset[str]] = {}
        #: When kept devices serve whom they are kept for: by the devices and the wish, found out when somebody may pass.
        self._served_at: dict[tuple[object, ...], float | None] = {}

    def keep(
        self,
        request: RequestRecord,
        rank: Rank,
        order: tuple[object, ...],
        decision: Decision,
        *,
        counted: bool,
    ) -> None:
        """Keeps the devices that a request wants, and no longer those that it wanted before."""
        self.forget(request.id)
        devices = frozenset(decision.wants)
        kept = Kept(request.id, request.project, rank, order, devices, decision, counted, is_owed(decision))
        self._kept.setdefault(devices, {})[request.id] = kept
        self._kept_for[request.id] = devices

    def forget(self, request_id: str) -> None:
        """Keeps nothing for a request that will not wait."""
        devices = self._kept_for.pop(request_id, None)
        if devices is not None:
            of_others = self._kept[devices]
            del of_others[request_id]
            if not of_others:
                del self._kept[devices]

    def from_request(
        self, step: Step, view: PoolView, request: RequestRecord, lane: Lane, rank: Rank, order: tuple[object, ...],
        *, in_future: bool,
    ) -> frozenset[str]:  # fmt: skip
        """Devices that are kept from a request: by those before it, and where room is being made for somebody.

        Among those for whom room is being made the order alone decides, for they may share it; and room that becomes
        free without a notice is not kept for a later ask against an earlier one of its project. What those before it
        will have of it is taken already in the pool as it is going to be. A wish alone keeps nothing from the one for
        whom room was made there: else what was taken back for it would go to somebody else, and be taken back again.

        Args:
            step: the step of the machine that this is part of.
            view: the pool as it is.
            request: the one that is decided.
            lane: its lane.
            rank: its place among those of its project.
            order: how it compares with those of other projects.
            in_future: of the pool as it is going to be.
        """
        over_by = step.now + request.duration if request.duration > 0 else None
        reserved: set[str] = set()
        mine = self._owed.get(request.id, frozenset())
        if request.id not in self._owed:
            for name, devices in self._owed.items():
                project, later = self._by_itself.get(name, ("", rank))
                if project != request.project or later <= rank:
                    reserved |= devices
        for devices, by_request in self._kept.items():
            for kept in by_request.values():
                if devices <= reserved:
                    break
                if not _is_ahead(step, kept, request, order, rank) or (in_future and kept.counted):
                    continue
                kept_from_it = devices if kept.owed else devices - mine
                if not kept_from_it <= reserved and not self._passes(step, view, lane, kept, over_by):
                    reserved |= kept_from_it
        return frozenset(reserved - own_places(step, request))

    def _passes(self, step: Step, view: PoolView, lane: Lane, kept: Kept, over_by: float | None) -> bool:
        """Whether a request that is over by then may use devices that are kept for another. Where it has no room it need not."""
        if over_by is None or not has_room(view, kept.devices, lane.milli or 1):
            return False
        served = self._kept_until(step, view, kept)
        return served is not None and over_by <= served

    def _kept_until(self, step: Step, view: PoolView, kept: Kept) -> float | None:
        """When the devices serve whom they are kept for; None: it is not known, or a matter of a moment."""
        request, decision = step.state.requests[kept.request_id], kept.decision
        if decision.evict:
            return None
        if decision.reason == "notice":
            seconds = eta_of(step, view, request, decision)
            return None if seconds is None else step.now + seconds
        key = request.milli, request.mib, request.session_id, kept.devices
        if key not in self._served_at:
            resuming, share = view.resuming(resumed_by(step, request)), Share(request.milli, request.mib)
            self._served_at[key] = served_at(
                resuming, kept.devices, share, lambda name: step.state.leases[name].ends_at, step.now
            )
        return self._served_at[key]


def _is_ahead(step: Step, kept: Kept, request: RequestRecord, order: tuple[object, ...], rank: Rank) -> bool:
    """Whether devices are kept for one that comes before a request; since the look it may have left, or was refused."""
    before = kept.rank < rank if kept.project == request.project else kept.order < order
    return before and kept.request_id != request.id and kept.request_id in step.state.requests
