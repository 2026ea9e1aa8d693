"""A provider, a pool and a book whose every answer a test chooses, with a clock of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpupool.providers.contract import (
    Capabilities,
    Description,
    JobOrder,
    JobReport,
    ProviderDownError,
    ProviderRefusedError,
    State,
)
from gpupool.providers.elasticity import Ask, Scale
from gpupool.providers.jobs import Job
from gpupool.providers.pool import NodeStands
from gpupool.sentences import Sentence


@dataclass
class ScriptedProvider:
    """An engine in memory.

    Attributes:
        first: what new jobs are.
        down: it does not answer.
        hangs: it does not even say that.
        slow: seconds that it takes for a submit.
        loses_answers: a job is taken, and the answer lost.
        refuses: why it will have no job.
        unending: jobs that it will not end.
        submits: how often it was asked for one.
    """

    capabilities: Capabilities = field(default_factory=Capabilities)
    jobs: dict[str, JobReport] = field(default_factory=dict)
    orders: dict[str, JobOrder] = field(default_factory=dict)
    first: JobReport = field(default_factory=lambda: JobReport("running"))
    down: bool = False
    hangs: bool = False
    slow: float = 0.0
    loses_answers: bool = False
    refuses: str = ""
    unending: set[str] = field(default_factory=set)
    submits: int = 0
    cancels: list[str] = field(default_factory=list)
    closed: bool = False

    def _answer(self) -> None:
        if self.down:
            raise ProviderDownError("it does not answer")

    async def describe(self) -> Description:
        self._answer()
        return Description("scripted")

    async def submit(self, order: JobOrder) -> State:
        self.submits += 1
        self._answer()
        await asyncio.sleep(self.slow)
        if self.refuses:
            raise ProviderRefusedError(self.refuses)
        assert order.job not in self.orders, "a job was submitted twice"
        self.orders[order.job], self.jobs[order.job] = order, self.first
        if self.loses_answers:
            raise ProviderDownError("the answer was lost")
        return {"job": order.job}

    async def poll(self, jobs: Mapping[str, State]) -> Mapping[str, JobReport]:
        if self.hangs:
            await asyncio.sleep(3600)
        self._answer()
        return {job: self.jobs.get(job, JobReport("ended", "unknown")) for job in jobs}

    async def cancel(self, job: str, state: State) -> None:
        if self.hangs:
            await asyncio.sleep(3600)
        self._answer()
        if job in self.unending:
            raise ProviderDownError(f"{job} is protected")
        self.cancels.append(job)
        if job in self.jobs:
            self.jobs[job] = JobReport("ended", "cancelled")

    async def list_owned(self) -> Mapping[str, State]:
        self._answer()
        return {job: {"job": job} for job, report in self.jobs.items() if report.phase != "ended"}

    async def close(self) -> None:
        self.closed = True

    def living(self) -> list[str]:
        return [job for job, report in self.jobs.items() if report.phase != "ended"]

    def node_of(self, job: str) -> str:
        return self.orders[job].node


@dataclass
class ScriptedPool:
    """The pool's side.

    Attributes:
        loses_drains: so many of the next cannot be stored.
    """

    clock: float = 1000.0
    waiting: list[Ask] = field(default_factory=list)
    nodes: dict[str, NodeStands] = field(default_factory=dict)
    drains: list[tuple[str, str, bool]] = field(default_factory=list)
    said: dict[str, Sentence] = field(default_factory=dict)
    promised: dict[str, Scale] = field(default_factory=dict)
    loses_drains: int = 0

    def now(self) -> float:
        return self.clock

    def promise(self, scales: Mapping[str, Scale]) -> None:
        self.promised = dict(scales)

    def asks(self) -> list[Ask]:
        return self.waiting

    def node(self, name: str) -> NodeStands | None:
        return self.nodes.get(name)

    def node_names(self) -> list[str]:
        return list(self.nodes)

    def connect(self, node: str, *, devices: int = 1, busy: bool = False, **like: Any) -> None:
        """`like`: of its devices; else they are what the provider's settings promise."""
        free = () if busy else (1000,) * devices
        scale = next(iter(self.promised.values()), Scale())
        offer = scale.offer
        values = {
            "pool": scale.node_pool, "sharing": offer.sharing, "software": offer.software, "mib": scale.device_mib,
            "labels": tuple(offer.labels.items()), "types": frozenset({offer.type} - {""}), **like,
        }  # fmt: skip
        self.nodes[node] = NodeStands(True, devices, busy, False, False, free=free, **values)

    def serve(self, node: str, *leases: Ask) -> None:
        """On its first device."""
        free = 1000 - sum(lease.milli or 0 for lease in leases)
        self.change(node, busy=bool(leases), leases=leases, free=(free, *self.nodes[node].free[1:]))

    def change(self, node: str, **values: object) -> None:
        self.nodes[node] = replace(self.nodes[node], **values)

    def drain(self, node: str, why: str, *, evict: bool) -> None:
        self.drains.append((node, why, evict))
        if self.loses_drains:
            self.loses_drains -= 1
        elif node in self.nodes:
            self.change(node, drained=True)

    def forget(self, node: str) -> None:
        stands = self.nodes.get(node)
        if stands is not None and stands.lost and not stands.busy:
            del self.nodes[node]

    def say(self, said: Mapping[str, Sentence]) -> None:
        self.said = dict(said)

    def words(self, ask: str) -> str:
        return str(self.said[ask])


@dataclass
class MemoryBook:
    """Jobs that are kept as JSON, as a ledger does.

    Attributes:
        deposed: another server has taken over the ledger.
    """

    pool_id: str = "pool"
    rows: dict[str, dict[str, object]] = field(default_factory=dict)
    set_to: dict[str, dict[str, float]] = field(default_factory=dict)
    deposed: bool = False

    def jobs(self) -> dict[str, Job]:
        return {name: Job.from_json(row) for name, row in self.rows.items()}

    def find(self, job_id: str) -> Job | None:
        self._fence()
        row = self.rows.get(job_id)
        return None if row is None else Job.from_json(row)

    def store(self, job: Job) -> None:
        self._fence()
        self.rows[job.id] = job.as_json()

    def forget(self, job_id: str) -> None:
        self._fence()
        self.rows.pop(job_id, None)

    def limits(self) -> dict[str, dict[str, float]]:
        return self.set_to

    def set_limits(self, provider: str, limits: Mapping[str, float]) -> None:
        self._fence()
        self.set_to[provider] = dict(limits)

    def _fence(self) -> None:
        if self.deposed:
            raise RuntimeError("another pool server has taken over")
