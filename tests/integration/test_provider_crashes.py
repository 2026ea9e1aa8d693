"""The pool is killed before and after every step of a job's life: the next one finds it, and no job is ever there twice."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from gpupool.ledger.ledger import Ledger
from gpupool.model.clock import Clock
from gpupool.pool.growing.book import LedgerBook
from gpupool.providers.elasticity import Ask, Scale
from gpupool.providers.grower import Grower, Pace
from gpupool.providers.local import LocalProvider, LocalSettings

from tests.support.provider_engines import nothing_left
from tests.support.scripted_provider import ScriptedPool

_AGENT = ("/bin/sh", "-c", "trap 'kill $!; exit 0' TERM; sleep 600 & wait", "agent")


class Killer:
    """Kills this process at point number `at`; 0: never. `points`: how many there were."""

    def __init__(self, at: int) -> None:
        self.at, self.points = at, 0

    def point(self) -> None:
        self.points += 1
        if self.points == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def acts(*arguments: Any) -> Any:
            self.point()
            done = act(*arguments)
            self.point()
            return done

        return acts

    def around_async(self, act: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def acts(*arguments: Any) -> Any:
            self.point()
            done = await act(*arguments)
            self.point()
            return done

        return acts


def provider(folder: Path) -> LocalProvider:
    return LocalProvider(LocalSettings(folder / "jobs", f"crash{folder.name}", _AGENT, grace=2.0))


async def life(folder: Path, killer: Killer) -> None:
    """One job from the ask to the end of everything, or what is left of it after a death."""
    engine: Any = provider(folder)
    with Ledger(folder / "pool.sqlite", Clock.start()) as ledger:
        book: Any = LedgerBook(ledger)
        book.store, book.forget = killer.around(book.store), killer.around(book.forget)
        engine.submit, engine.cancel = killer.around_async(engine.submit), killer.around_async(engine.cancel)
        pool = ScriptedPool()
        begun = book.jobs()
        pool.waiting = [] if begun else [Ask("ann", 200, None)]
        grower = Grower(
            book, pool, {"box": (engine, Scale(idle=10.0))}, Pace(settle=0.0, sweep=0.0, insist=0.0)
        )
        give_up = time.monotonic() + 60
        looks = 0
        while looks < 3 or book.jobs():
            assert time.monotonic() < give_up, book.jobs()
            looks += 1
            pool.clock += 5.0
            await grower.step()
            living = await engine.list_owned()
            assert len(living) <= 1, living
            for job, stands in grower.standing("box"):
                if stands.engine == "running" and pool.node(job.node) is None and job.id in living:
                    pool.connect(job.node)
                    pool.waiting = []
                elif job.id not in living and pool.node(job.node) is not None:
                    pool.change(job.node, connected=False, lost=True)


def lived(folder: Path, at: int) -> bool:
    """A pool server that dies at point `at`. Whether it came to its end before."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            asyncio.run(life(folder, Killer(at)))
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), f"point {at}: status {status}"
    return status == 0


async def test_the_pool_dies_at_every_step(tmp_path: Path) -> None:
    at = 1
    while True:
        folder = tmp_path / f"p{at}"
        folder.mkdir()
        async with nothing_left(provider(folder)):
            if lived(folder, at):
                break
            assert lived(folder, 0)
            assert await provider(folder).list_owned() == {}
        at += 1
    # submit, cancel, and the lines of the ledger before and after each.
    assert at > 14
