"""The projects of a pool at one moment: who is entitled to what, and which leases may be taken back for whom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from gpupool.scheduler.fairshare import admission, order, reclaim_rules
from gpupool.scheduler.fairshare.division import fair_shares
from gpupool.scheduler.fairshare.lease import HeldLease, Waiting, seniority
from gpupool.scheduler.fairshare.leases import Leases
from gpupool.scheduler.fairshare.position import Position, Standing
from gpupool.scheduler.fairshare.protection import Protection
from gpupool.scheduler.fairshare.tree import ProjectTree
from gpupool.scheduler.fairshare.verdict import Verdict

_NO_USAGE: Final[Mapping[str, float]] = MappingProxyType({})


class Standings:
    """Made once for a pool, updated in place as leases come and go.

    Fair shares stay as they were computed until :meth:`refresh`: what happens within one pass over the queue does not
    change whose turn it was. Everything else is up to date after each call. A lease or ask of a project that is gone
    counts for ``default``.
    """

    def __init__(
        self,
        tree: ProjectTree,
        capacity: int,
        leases: Iterable[HeldLease] = (),
        waiting: Iterable[Waiting] = (),
        usage: Mapping[str, float] = _NO_USAGE,
        *,
        like: Standings | None = None,
    ) -> None:
        """Takes stock.

        Args:
            tree: the projects.
            capacity: milli-GPU of all devices that serve.
            leases: what is held.
            waiting: what waits.
            usage: of each leaf, what it used lately as a part of the pool, see :func:`.usage.part_of_pool`.
            like: whose leases are held, too; of the same tree. Each goes its own way from here on. It costs as much as there
                are projects, however many leases (`Leases`).
        """
        self.tree = tree
        self.capacity = capacity
        self._usage = usage
        self._positions: dict[str, Position] = {}
        for path in tree.paths:
            above = tree.ancestors(path)[1:2]
            self._positions[path] = Position(
                path,
                self._positions[above[0]] if above else None,
                tree[path].priority,
                tree.deserved(path, capacity),
                tree.limit(path),
            )
        self._upwards = {path: tuple(p.upwards()) for path, p in self._positions.items()}
        #: Top-level projects below which something has been granted or has ended, see `moved`.
        self._moved: set[str] = set()
        self._leases: Leases = Leases(None if like is None else like._leases)
        self._protection = Protection(self._positions, self._leases)
        self._waiting: dict[str, Waiting] = {}
        if like is not None:
            self._take_over(like)
        for lease in leases:
            self.granted(lease)
        for request in waiting:
            self.asked(request)
        self.refresh()

    # ---- what stands

    def standing(self, path: str) -> Standing:
        position = self._positions[path]
        return Standing(
            deserved=position.deserved,
            limit=position.limit,
            fair_share=position.fair_share,
            allocated=position.allocated,
            protected=self._protection.milli(position),
            requested=position.allocated + position.waiting,
        )

    def lease(self, lease_id: str) -> HeldLease | None:
        return self._leases.get(lease_id)

    def is_protected(self, lease_id: str) -> bool:
        """Whether the lease is not taken back for anybody, as things stand; False for one that is not known."""
        lease = self._leases.get(lease_id)
        return lease is not None and self._protection.is_protected(lease)

    # ---- what may be

    def admit(self, project: str, milli: int, kind: str) -> Verdict:
        """Whether `project` may have `milli` more, if there is room. Reasons: ``limit``, ``over-quota``."""
        return admission.admit(self._leaf(project), milli, kind, self._protection)

    def admit_now(self, project: str, milli: int) -> Verdict:
        """Whether `project` may have `milli` more while leases of :meth:`leave` are still there. Reason: ``limit``."""
        return admission.admit_now(self._leaf(project), milli)

    def above_limit(self, project: str, milli: int) -> int:
        """By how many milli-GPU `project`, or one above it, would exceed its limit with so much more; 0: by none."""
        return admission.above_limit(self._leaf(project), milli)

    def order_key(self, project: str, milli: int) -> order.Key:
        """Whose turn it is: of two requests in different projects the one with the smaller key comes first."""
        return order.order_key(self._leaf(project), milli)

    def top(self, project: str) -> str:
        """The top-level project that it is part of: its place in the order depends on nothing that happens elsewhere."""
        return self._upwards[self.tree.leaf(project)][-1].path

    def moved(self) -> set[str]:
        """The top-level projects whose :meth:`order_key` may have changed since this was asked last, but for :meth:`refresh`."""
        moved, self._moved = self._moved, set()
        return moved

    def entitled(self, project: str, milli: int) -> Verdict:
        """Whether `project` may take anything from others for a request of `milli`; cheap."""
        return reclaim_rules.entitled(self._leaf(project), milli)

    def may_take_from(
        self, project: str, milli: int, victims: Sequence[str], *, priority: int = 100
    ) -> Verdict:
        """Whether these leases may be taken back, all together, for a request of `milli` in `project`.

        Reasons: ``protected``, ``priority``, ``over-quota``, ``within-fair-share``. Leases that are not known count
        as gone already.
        """
        known = [lease for name in dict.fromkeys(victims) if (lease := self._leases.get(name)) is not None]
        asker = self._leaf(project)
        return reclaim_rules.may_take(self._positions, self._protection, asker, milli, priority, known)

    def takeable(self, project: str, milli: int, *, priority: int = 100) -> list[HeldLease]:
        """The leases that may be taken back for such a request if it is one alone: the lowest priority and newest first.

        Several together must be asked about with :meth:`may_take_from`.
        """
        asker = self._leaf(project)
        from_others = bool(self.entitled(project, milli))
        found = []
        # A lease of another project is judged by what the project holds, and by its own size.
        judged: dict[tuple[str, int], bool] = {}
        for group in self._leases.groups():
            leaf, of_priority, _ = group
            own = leaf == asker.path
            if (own and of_priority >= priority) or not (own or from_others):
                continue
            for lease in self._protection.exposed(group):
                key = (leaf, lease.milli)
                if key not in judged:
                    judged[key] = own or self.may_take_from(project, milli, [lease.id]).admitted
                if judged[key]:
                    found.append(lease)
        return sorted(found, key=seniority, reverse=True)

    def exposed(self) -> Iterator[HeldLease]:
        """The leases that are not protected. A project without any costs nothing, however many it has."""
        for group in self._leases.groups():
            yield from self._protection.exposed(group)

    # ---- what happens

    def granted(self, lease: HeldLease, request_id: str = "") -> None:
        """A lease begins, or one that is known has another size or project now; it answers the request `request_id`."""
        self.without([lease.id])
        if request_id:
            self.answered(request_id)
        leaf = self.tree.leaf(lease.project)
        if leaf != lease.project:
            lease = HeldLease(lease.id, leaf, lease.milli, lease.kind, lease.priority, lease.granted_at)
        self._leases.add(lease)
        self._move(lease, lease.milli)
        self._protection.add(lease)

    #: The same, for a what-if that is taken back by :meth:`without`.
    with_lease = granted

    def without(self, lease_ids: Iterable[str]) -> None:
        """Leases end; those that are not known have."""
        for name in lease_ids:
            lease = self._leases.pop(name)
            if lease is not None:
                self._move(lease, -lease.milli)
                self._protection.remove(lease)

    def leave(self, lease_ids: Iterable[str]) -> None:
        """Leases will end, and count no more but for :meth:`admit_now`."""
        for name in lease_ids:
            lease = self._leases.get(name)
            if lease is not None:
                self.without([name])
                self.still_held(lease.project, lease.milli)

    def still_held(self, project: str, milli: int) -> None:
        """A lease that is over for its holder, and not among those of the others, holds so much until it has gone."""
        for position in self._upwards[self.tree.leaf(project)]:
            position.leaving += milli

    def asked(self, request: Waiting) -> None:
        """A request waits; one of the same id is replaced."""
        self.answered(request.id)
        self._waiting[request.id] = request
        for position in self._upwards[self.tree.leaf(request.project)]:
            position.waiting += request.milli
            position.held_up += request.held_up

    def answered(self, request_id: str) -> None:
        """A request waits no longer, if it did."""
        request = self._waiting.pop(request_id, None)
        if request is not None:
            for position in self._upwards[self.tree.leaf(request.project)]:
                position.waiting -= request.milli
                position.held_up -= request.held_up

    def refresh(self, usage: Mapping[str, float] | None = None) -> None:
        """Fair shares as they are now; the cost is that of the projects, not of their leases.

        Args:
            usage: as at the beginning; None: unchanged.
        """
        if usage is not None:
            self._usage = usage
        leaves = ((leaf, self._positions[leaf]) for leaf in self.tree.leaves)
        requested = {leaf: at.allocated + at.waiting - at.held_up for leaf, at in leaves}
        shares = fair_shares(self.tree, self.capacity, requested, self._usage)
        for path, position in self._positions.items():
            position.fair_share = shares[path]
            position.key = None

    # ---- helpers

    def _take_over(self, other: Standings) -> None:
        for path, position in self._positions.items():
            theirs = other._positions[path]
            position.allocated, position.guaranteed = theirs.allocated, theirs.guaranteed
            position.leaving = theirs.leaving
        self._protection.take_over(other._protection)

    def _leaf(self, project: str) -> Position:
        return self._positions[self.tree.leaf(project)]

    def _move(self, lease: HeldLease, milli: int) -> None:
        upwards = self._upwards[lease.project]
        self._moved.add(upwards[-1].path)
        for position in upwards:
            position.allocated += milli
            position.key = None
            if lease.kind == "guaranteed":
                position.guaranteed += milli
