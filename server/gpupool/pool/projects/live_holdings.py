"""What the leases of a pool hold, kept up to date: what changed since somebody looked is counted again, and nothing else.

A look at the queue begins with where all projects stand. With this it costs as much as there are projects and changes,
however many leases there are. Like the scheduler's view (`pool/model/live_view.py`) it follows the tables, undone changes
included, and says at every moment what a walk over them would.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpupool.model.state import LeaseRecord, State, node_of_device
from gpupool.scheduler.fairshare.lease import HeldLease, Waiting
from gpupool.scheduler.fairshare.standings import Standings
from gpupool.scheduler.fairshare.tree import ProjectTree
from gpupool.scheduler.fairshare.usage import HeldUse
from gpupool.shares import WHOLE_DEVICE_MILLI


def of(state: State) -> LiveHoldings:
    """What follows `state`; made by whoever looks first."""
    if state.live_holdings is None:
        state.live_holdings = LiveHoldings(state)
    assert isinstance(state.live_holdings, LiveHoldings)
    return state.live_holdings


def held_lease(parts: Iterable[LeaseRecord]) -> HeldLease:
    """A lease as the rules of projects see it; of several nodes, all its parts as one."""
    whole = list(parts)
    first = whole[0]
    milli = sum(part.milli for part in whole)
    return HeldLease(first.id, first.project, milli, first.kind, first.priority, first.granted_at)


class LiveHoldings:
    """Follows one state. Not to be used from several threads."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._leases = state.leases.watch()
        self._leases.update(state.leases)
        self._nodes = state.nodes.watch()
        self._devices = state.devices.watch()
        self._devices.update(state.devices)
        #: Live leases by the first of their parts, and which that is of each part.
        self._held: dict[str, HeldLease] = {}
        self._whole_of: dict[str, str] = {}
        self._base: Standings | None = None
        #: What each lease adds to what its project uses: (project, milli, since when).
        self._using: dict[str, tuple[str, int, float]] = {}
        self._used: dict[str, HeldUse] = {}
        self._half_life = 0.0
        #: Devices that take leases, as far as is known: of each node that is not lost, and of all.
        self._present: dict[str, int] = {}
        self._serving = 0
        #: By node, its devices that are there and take no new leases.
        self._withdrawn: dict[str, frozenset[str]] = {}

    def follow(self) -> None:
        """Takes note of what has changed. To be called now and then though nobody asks: else it piles up."""
        self._follow_leases()
        self._follow_devices()

    def standings(
        self, tree: ProjectTree, usage: Mapping[str, float], waiting: Iterable[Waiting] = ()
    ) -> Standings:
        """Where projects stand by what live leases hold; the caller's own.

        Those that are being given back count for limits alone, until their shares are free.

        Args:
            tree: the projects, which must be those of the state.
            usage: what they used lately, as parts of what the pool could have given.
            waiting: what is asked beside that.
        """
        self._follow_leases()
        if self._base is None or self._base.tree is not tree:
            self._base = Standings(tree, 0, self._held.values())
        found = Standings(tree, self.capacity(), waiting=waiting, usage=usage, like=self._base)
        for lease in self._state.index.releasing.records():
            found.still_held(lease.project, lease.milli)
        return found

    def used(self, half_life: float, now: float) -> dict[str, float]:
        """What leases that hold shares have used since their grants, by project, in milli-GPU-seconds that fade."""
        self._follow_leases()
        if half_life != self._half_life:
            self._half_life = half_life
            self._used.clear()
            for project, milli, since in self._using.values():
                self._use_of(project).add(milli, since)
        return {project: use.at(now) for project, use in self._used.items()}

    def capacity(self) -> int:
        """Milli-GPU of all devices that serve; a node that is silent for a moment changes what nobody deserves.

        Of a device that takes no new leases, as its node is drained or it is ill, only what is held on it counts: else a
        project would deserve what nobody can have, and others could keep what it is entitled to.
        """
        self._follow_devices()
        still_held = sum(
            share.milli
            for node, devices in self._withdrawn.items()
            for lease in self._state.index.holding_of_node.of(node)
            if lease.live
            for share in lease.taken()
            if share.device_id in devices
        )
        return WHOLE_DEVICE_MILLI * self._serving + still_held

    # ---- leases

    def _follow_leases(self) -> None:
        changed = set()
        for lease_id in self._leases:
            lease = self._state.leases.get(lease_id)
            self._count_use(lease_id, lease)
            whole = self._whole_of.pop(lease_id, None)
            if whole is not None:
                changed.add(whole)
            if lease is not None and lease.live:
                whole = lease.gang or lease.id
                self._whole_of[lease_id] = whole
                changed.add(whole)
        self._leases.clear()
        for whole in changed:
            self._hold(whole)

    def _count_use(self, lease_id: str, lease: LeaseRecord | None) -> None:
        before = self._using.pop(lease_id, None)
        now = (lease.project, lease.milli, lease.granted_at) if lease is not None and lease.holds else None
        if now is not None:
            self._using[lease_id] = now
        if now == before or not self._half_life:
            return
        if before is not None:
            self._use_of(before[0]).add(*before[1:], sign=-1)
        if now is not None:
            self._use_of(now[0]).add(*now[1:])

    def _use_of(self, project: str) -> HeldUse:
        return self._used.setdefault(project, HeldUse(self._half_life))

    def _hold(self, whole: str) -> None:
        parts = self._state.index.leases_of_gang.of(whole)
        if not parts:
            alone = self._state.leases.get(whole)
            parts = [] if alone is None else [alone]
        live = sorted((part for part in parts if part.live), key=lambda part: part.part)
        now = held_lease(live) if live else None
        before = self._held.pop(whole, None)
        if now is not None:
            self._held[whole] = now
        if now == before or self._base is None:
            return
        if before is not None:
            self._base.without([before.id])
        if now is not None:
            self._base.granted(now)

    # ---- devices

    def _follow_devices(self) -> None:
        nodes = self._nodes.union(map(node_of_device, self._devices))
        self._nodes.clear()
        self._devices.clear()
        for name in nodes:
            node = self._state.nodes.get(name)
            here = self._state.index.devices_of_node.of(name) if node is not None and not node.lost else ()
            present = [device for device in here if device.present]
            closed = node is not None and node.closed
            withdrawn = frozenset(device.id for device in present if closed or not device.healthy)
            number = len(present) - len(withdrawn)
            self._serving += number - self._present.pop(name, 0)
            if number:
                self._present[name] = number
            self._withdrawn.pop(name, None)
            if withdrawn:
                self._withdrawn[name] = withdrawn
