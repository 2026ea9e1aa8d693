"""Nodes that are borrowed while somebody needs them: the pool's own loop of providers, on an engine in virtual time.

The engine gives a node some time after it was asked for one, and takes it back at once. The loop, its policy and what it sees
of the pool are the real ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from gpupool.pool.growing.pool_side import GrowingPool, PoolSide
from gpupool.providers.contract import Capabilities, Description, JobOrder, JobReport
from gpupool.providers.contract import State as JobState
from gpupool.providers.elasticity import Scale
from gpupool.providers.grower import Grower
from gpupool.providers.jobs import Job
from gpupool.providers.provided import Pace
from gpupool.simulation.replay_nodes import NodeShape

#: Times of the trace and of the pool differ by a constant; what comes at a moment has come when it is this near.
_ROUNDING: Final = 1e-6
#: What the engine says of a job; a look asks for all of them.
_RUNS: Final = JobReport("running")
_ENDED: Final = JobReport("ended")
#: Of the provider, and of its nodes' names.
_NAME: Final = "lent"


@dataclass(frozen=True, slots=True)
class Elastic:
    """What may be borrowed besides the pool's own nodes.

    Attributes:
        maximum: nodes at a time.
        devices: of a node.
        mib: of a device.
        idle: seconds after which a node that nobody needs goes back.
        start: seconds from asking for a node until it serves.
        look: seconds between two looks at what is needed.
    """

    maximum: int
    devices: int
    mib: int
    idle: float = 600.0
    start: float = 120.0
    look: float = 30.0


class GrowingReplay(GrowingPool, Protocol):
    """A replay, as far as borrowed nodes need it."""

    def comes(self, shape: NodeShape) -> None:
        """A node serves from now on."""

    def goes(self, node: str) -> None:
        """Its agent has ended, and its devices are somebody else's."""


class Growth:
    """Borrowed nodes of one replay.

    Attributes:
        living: borrowed nodes that serve, or are on their way.
        asked: nodes that were asked for in all.
    """

    def __init__(self, elastic: Elastic, pool: GrowingReplay) -> None:
        self._elastic = elastic
        self._pool = pool
        self._starts: list[tuple[float, str, str]] = []
        self._nodes: dict[str, str] = {}
        self._numbers = 0
        self.asked = 0
        scale = Scale(
            maximum=elastic.maximum,
            idle=elastic.idle,
            devices=elastic.devices,
            device_mib=elastic.mib,
            start=10 * elastic.start + 1e6,
        )
        # Nothing of an engine in virtual time is late or lost.
        pace = Pace(settle=1e12, insist=1e12, sweep=1e12)
        provider = _Engine(self)
        self._grower = Grower(_Book(), PoolSide(pool), {_NAME: (provider, scale)}, pace, self._name)
        self.looked = pool.now()

    @property
    def living(self) -> int:
        return len(self._nodes)

    @property
    def devices(self) -> int:
        """Borrowed now; those that are on their way are paid for, too."""
        return len(self._nodes) * self._elastic.devices

    @property
    def next_at(self) -> float:
        """When to look next, by the pool's clock."""
        soon = self._starts[0][0] if self._starts else float("inf")
        return min(soon, self.looked + self._elastic.look)

    def look(self) -> None:
        """Lets nodes come whose time it is, and decides about others."""
        now = self._pool.now()
        while self._starts and self._starts[0][0] <= now + _ROUNDING:
            _, job, node = heapq.heappop(self._starts)
            if job in self._nodes:
                self._pool.comes(NodeShape(node, (self._elastic.mib,) * self._elastic.devices))
        self.looked = now
        _done(self._grower.step())

    # ---- the engine

    def submit(self, order: JobOrder) -> None:
        self.asked += 1
        self._nodes[order.job] = order.node
        heapq.heappush(self._starts, (self._pool.now() + self._elastic.start, order.job, order.node))

    def cancel(self, job: str) -> None:
        node = self._nodes.pop(job, None)
        if node is not None:
            self._pool.goes(node)

    def lives(self, job: str) -> bool:
        return job in self._nodes

    def _name(self) -> str:
        self._numbers += 1
        return f"{self._numbers:08d}"


class _Engine:
    """The engine as a provider; it never fails."""

    capabilities = Capabilities()

    def __init__(self, growth: Growth) -> None:
        self._growth = growth

    async def describe(self) -> Description:
        return Description("virtual time")

    async def submit(self, order: JobOrder) -> JobState:
        self._growth.submit(order)
        return {"job": order.job}

    async def poll(self, jobs: Mapping[str, JobState]) -> Mapping[str, JobReport]:
        return {job: _RUNS if self._growth.lives(job) else _ENDED for job in jobs}

    async def cancel(self, job: str, state: JobState) -> None:
        self._growth.cancel(job)

    async def list_owned(self) -> Mapping[str, JobState]:
        return {}

    async def close(self) -> None:
        return None


class _Book:
    """Jobs in memory."""

    pool_id = "replay"

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._limits: dict[str, dict[str, float]] = {}

    def jobs(self) -> dict[str, Job]:
        return dict(self._jobs)

    def find(self, job_id: str) -> Job | None:
        return self._jobs.get(job_id)

    def store(self, job: Job) -> None:
        self._jobs[job.id] = job

    def forget(self, job_id: str) -> None:
        self._jobs.pop(job_id, None)

    def limits(self) -> dict[str, dict[str, float]]:
        return dict(self._limits)

    def set_limits(self, provider: str, limits: Mapping[str, float]) -> None:
        self._limits[provider] = dict(limits)


def _done(coroutine: Coroutine[Any, Any, None]) -> None:
    """Runs to its end what never has to wait: in virtual time all answers are there."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise RuntimeError("a provider in virtual time waited for something")
