"""One provider, its engine and the pool, with the real loop between them."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpupool.providers.elasticity import Ask, Scale
from gpupool.providers.grower import Grower

from tests.support.scripted_provider import MemoryBook, ScriptedPool, ScriptedProvider

ASK = Ask("ann", 200, None)


@dataclass
class World:
    """The provider is called "lab"; `grower` is the loop."""

    scale: Scale = field(default_factory=lambda: Scale(maximum=3, idle=60.0, drain_before=100.0, start=50.0))
    provider: ScriptedProvider = field(default_factory=ScriptedProvider)
    pool: ScriptedPool = field(default_factory=ScriptedPool)
    book: MemoryBook = field(default_factory=MemoryBook)

    def __post_init__(self) -> None:
        self.grower = self.restarted()

    def restarted(self) -> Grower:
        """A pool server that has just started on the same ledger."""
        self.grower = Grower(self.book, self.pool, {"lab": (self.provider, self.scale)})
        return self.grower

    async def look(self, *, after: float = 5.0, times: int = 1) -> None:
        for _ in range(times):
            self.pool.clock += after
            await self.grower.step()

    async def one_job(self, *, connect: bool = True, busy: bool = False) -> str:
        """A job that ASK has caused; its node."""
        self.pool.waiting = [ASK]
        await self.look()
        (job,) = self.provider.living()
        if connect:
            self.pool.connect(self.provider.node_of(job), busy=busy)
            self.pool.waiting = []
            await self.look()
        return job
