"""The sampler of the history: a minute is counted once, whatever fails around it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from gpupool.ledger import samples
from gpupool.ledger.ledger import Ledger
from gpupool.ledger.servers import ServerIdentity
from gpupool.ledger.snapshot import snapshot
from gpupool.model.clock import Clock
from gpupool.model.history_amounts import MINUTE_MS, total
from gpupool.model.state import State
from gpupool.pool.reporting.history_sampler import HistorySampler
from sqlalchemy.exc import OperationalError

T0 = 1_700_000_040.0
"""The beginning of a minute."""


class Pool:
    """What the sampler looks at: a pool without GPUs, whose clock the test moves."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.state = State()
        self.at = T0
        self.clock = SimpleNamespace(now=lambda: self.at, to_unix=lambda now: now)
        self.timers = SimpleNamespace(heartbeat=5.0)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    with Ledger(tmp_path / "pool.sqlite", Clock(offset=0.0), leader=ServerIdentity()) as ledger:
        yield Pool(ledger)


def covered_ms(pool: Pool) -> int:
    with snapshot(pool.ledger.engine) as connection:
        wanted = samples.Wanted(0, round(time.time() * 1000) + 86_400_000)
        return total(samples.points(connection, wanted, MINUTE_MS).values()).covered_ms


async def test_a_minute_is_stored_once_though_thinning_fails_after_it(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = HistorySampler(pool)  # type: ignore[arg-type]

    def breaks(*arguments: object) -> bool:
        raise OperationalError("delete", {}, Exception("gone"))

    monkeypatch.setattr(samples, "thin", breaks)
    pool.at = T0 + 61.0
    sampler.look()
    assert await sampler.write(round(pool.at * 1000))
    monkeypatch.undo()
    pool.at = T0 + 66.0
    sampler.look()
    assert not await sampler.write(round(pool.at * 1000))
    assert covered_ms(pool) == MINUTE_MS


async def test_a_minute_that_is_in_the_ledger_is_not_told_as_unwritten_too(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = HistorySampler(pool)  # type: ignore[arg-type]
    pool.at = T0 + 61.0
    seen: list[int] = []
    monkeypatch.setattr(samples, "thin", lambda *arguments: bool(seen.append(len(sampler.present().times))))
    sampler.look()
    assert await sampler.write(round(pool.at * 1000))
    assert seen == [1]  # the minute that runs
