"""What is refused again and again has few lines in the journal, and each caller its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpupool.ledger import audit
from gpupool.ledger.ledger import Ledger
from gpupool.model import events
from gpupool.model.clock import Clock
from gpupool.model.instructions import TellRefused
from gpupool.pool.lifecycle.shell import PoolShell
from gpupool.pool.model.timers import Timers
from gpupool.pool.reporting.journal_metrics import JournalCounters

from tests.support.pool_world import offered


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[PoolShell]:
    ledger = Ledger(tmp_path / "pool.sqlite", Clock(1_800_000_000.0))
    shell = PoolShell(ledger, Clock.start(), Timers())
    shell.apply(events.NodeHello(shell.clock.now(), "n1", 1, "run", (offered(0),)))
    yield shell
    ledger.close()


def refused(pool: PoolShell, number: int, now: float, user: str = "ann") -> None:
    """Asks for what there is on no device."""
    pool.apply(events.Requested(now, user, f"{user}-{number}", None, 10**6, 1, wait=None))


def lines(pool: PoolShell) -> list[Any]:
    with pool.ledger.engine.connect() as connection:
        return audit.page(connection, audit.Filter(kind="refuse"), 0)


class TestRefusalsInALoop:
    def test_fill_no_disk_and_are_counted(self, pool: PoolShell) -> None:
        now = pool.clock.now()
        for number in range(500):
            refused(pool, number, now)
        few, steps = len(lines(pool)), pool.ledger.last_step
        assert few < 50
        refused(pool, 500, now)
        assert pool.ledger.last_step == steps
        refused(pool, 501, now + 60.0)
        assert lines(pool)[-1].data["left_out"] == 501 - few
        counters = JournalCounters(0)
        with pool.ledger.engine.connect() as connection:
            counters.read(connection)
        counted = next(metric for metric in counters.metrics() if metric.name == "gpupool_decisions")
        assert {sample.value for sample in counted.samples} == {502}

    def test_are_those_of_one_user(self, pool: PoolShell) -> None:
        now = pool.clock.now()
        for number in range(100):
            refused(pool, number, now)
        before = len(lines(pool))
        refused(pool, 0, now, user="bob")
        assert len(lines(pool)) == before + 1

    def test_are_answered_all(self, pool: PoolShell) -> None:
        now = pool.clock.now()

        async def ask() -> list[Any]:
            told = []
            for number in range(60):
                mailbox = pool.join("ann", f"ann-{number}")
                refused(pool, number, now)
                told.append(await mailbox.get(0.0))
            return told

        assert {type(one) for one in asyncio.run(ask())} == {TellRefused}
