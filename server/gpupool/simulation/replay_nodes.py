"""Nodes for a pool in virtual time: workers that start, park and end at once, as the pool says.

What a node of a replay does is what an agent does when all goes well. Failures have simulated nodes of their own in the tests.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from gpupool.model import events, instructions
from gpupool.model.instructions import Instruction
from gpupool.model.state import Usage
from gpupool.node.profile import DeviceProfile
from gpupool.scheduler.model import DEFAULT_NODE_POOL, PlacedShare

#: Host memory of a node for parked sessions: never short, so that only devices decide.
_PARK_MEMORY_MIB: Final = 1 << 30
_DRIVER: Final = 13000


@dataclass(frozen=True, slots=True)
class NodeShape:
    """A node that a replay lends to the pool.

    Attributes:
        devices: MiB of each.
        kind: name of its devices; sessions move between devices of one kind only.
        pool: the node pool that it belongs to.
    """

    name: str
    devices: tuple[int, ...]
    kind: str = "Simulated GPU"
    pool: str = DEFAULT_NODE_POOL
    labels: tuple[tuple[str, str], ...] = ()


def nodes_of(devices: int, per_node: int, mib: int) -> tuple[NodeShape, ...]:
    """Equal nodes; the last one has what is left."""
    sizes = [min(per_node, devices - first) for first in range(0, devices, per_node)]
    return tuple(NodeShape(f"node{number:03d}", (mib,) * size) for number, size in enumerate(sizes))


@dataclass(slots=True)
class _Worker:
    node: str
    epoch: int
    shares: tuple[PlacedShare, ...]
    keeps: tuple[int, ...]
    place: str = "device"
    attached: bool = True


@dataclass(slots=True)
class ReplayNodes:
    """All nodes of one replay.

    Attributes:
        used: part of its memory share that a session fills, which is what has to be moved when it is parked.
    """

    shapes: tuple[NodeShape, ...]
    used: float = 0.5
    _workers: dict[tuple[str, str], _Worker] = field(default_factory=dict)
    _images: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    _connections: dict[str, int] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def hellos(self, now: float) -> Iterator[events.NodeHello]:
        """What the agents say when they connect."""
        for shape in self.shapes:
            yield self.add(shape, now)

    def add(self, shape: NodeShape, now: float) -> events.NodeHello:
        """What its agent says when it connects."""
        connection = next(self._numbers)
        self._connections[shape.name] = connection
        devices = tuple(_offered(shape.kind, ordinal, mib) for ordinal, mib in enumerate(shape.devices))
        return events.NodeHello(
            now, shape.name, connection, shape.name, devices,
            park_memory_mib=_PARK_MEMORY_MIB, pool=shape.pool, labels=shape.labels,
        )  # fmt: skip

    def remove(self, node: str) -> int:
        """Its agent ends; the number of its connection."""
        for name in [name for name in self._workers if name[0] == node]:
            del self._workers[name]
        return self._connections.pop(node)

    def obey(self, item: Instruction, now: float) -> events.Event | None:
        """The answer to an instruction for a node; None: it is for nobody here, or has no answer."""
        match item:
            case instructions.StartWorker():
                return self._start(item, now)
            case instructions.ApplyLease():
                return self._apply(item, now)
            case instructions.RevokeLease():
                worker = self._workers.get((item.node, item.session_id))
                if worker is not None:
                    worker.epoch, worker.attached = item.epoch, False
                return self._applied(item, item.epoch, worker, now)
            case instructions.ParkMemory():
                return self._park(item, now)
            case instructions.StopWorker():
                self._workers.pop((item.node, item.session_id), None)
                self._images.pop((item.node, item.session_id), None)
                return events.WorkerExited(now, item.node, item.connection, item.session_id, 0, "")
        return None

    def _start(self, item: instructions.StartWorker, now: float) -> events.Event:
        name = (item.node, item.session_id)
        keeps = tuple(int(share.mib * self.used) for share in item.shares)
        if item.from_image:
            keeps = self._images.pop(name, keeps)
        elif item.image_source:
            source = self._workers.get((item.image_source.partition(":")[0], item.session_id))
            keeps = keeps if source is None else source.keeps
        self._workers[name] = _Worker(item.node, item.epoch, item.shares, keeps)
        address = f"{item.node}:1"
        return events.WorkerStarted(now, item.node, item.connection, item.session_id, item.epoch, address)

    def _apply(self, item: instructions.ApplyLease, now: float) -> events.Event:
        worker = self._workers.get((item.node, item.session_id))
        if worker is not None:
            worker.epoch, worker.shares, worker.attached = item.epoch, item.shares, True
            worker.place = "device"
        return self._applied(item, item.epoch, worker, now)

    def _park(self, item: instructions.ParkMemory, now: float) -> events.Event:
        name = (item.node, item.session_id)
        worker = self._workers.get(name)
        mib = 0 if worker is None else sum(worker.keeps)
        if worker is not None:
            worker.place = item.place
            if item.place == "image":
                self._images[name] = self._workers.pop(name).keeps
        return events.MemoryParked(
            now, item.node, item.connection, item.session_id, item.epoch,
            worker is not None, "" if worker is not None else "no worker of this session runs here",
            mib, item.request, item.place,
        )  # fmt: skip

    def _applied(
        self,
        item: instructions.ApplyLease | instructions.RevokeLease,
        epoch: int,
        worker: _Worker | None,
        now: float,
    ) -> events.LeaseApplied:
        report = None
        if worker is not None:
            report = events.ReportedWorker(
                item.session_id,
                worker.epoch,
                "attached" if worker.attached else "parked",
                f"{item.node}:1",
                Usage(client_connected=True, memory_used=tuple(mib << 20 for mib in worker.keeps)),
                place=worker.place,
                device_ids=tuple(share.device_id for share in worker.shares),
            )
        text = "" if worker is not None else "no worker of this session runs here"
        return events.LeaseApplied(
            now, item.node, item.connection, item.session_id, epoch, worker is not None, text, item.request, report,
            answered=worker is not None,
        )  # fmt: skip


def _offered(kind: str, ordinal: int, mib: int) -> events.OfferedDevice:
    uuid = f"{ordinal:032x}"
    profile = DeviceProfile(ordinal, kind, uuid, False, mib, "0000:00:00.0", {}).encode(_DRIVER)
    return events.OfferedDevice(ordinal, kind, uuid, False, mib, profile)
