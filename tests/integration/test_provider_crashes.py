"""The pool is killed before and after every step of a job's life: the next one finds it, and no job is ever there twice."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from gpupool.ledger.ledger import Ledger
from gpupool.model.clock import Clock
from gpupool.pool.growing.book import LedgerBook
from gpupool.providers.elasticity import Ask, Scale
from gpupool.providers.grower import Grower
from gpupool.providers.kubernetes.provider import KubernetesProvider
from gpupool.providers.kubernetes.settings import KubernetesSettings
from gpupool.providers.local import LocalProvider, LocalSettings
from gpupool.providers.provided import Pace

from tests.support.cluster.apart import cluster_apart
from tests.support.cluster.kinds import schema_is_missing
from tests.support.provider_engines import nothing_left
from tests.support.scripted_provider import ScriptedPool

#: A provider for a folder, as after a restart of the pool.
Open: TypeAlias = Callable[[Path], Any]

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


def local(folder: Path) -> LocalProvider:
    return LocalProvider(LocalSettings(folder / "jobs", f"crash{folder.name}", _AGENT, grace=2.0))


def of_kubernetes(kubeconfig: Path) -> Open:
    def opened(folder: Path) -> KubernetesProvider:
        token = folder.parent / "token"
        token.write_text("gpupool_token")
        return KubernetesProvider(
            KubernetesSettings(
                f"crash{folder.name}",
                "box",
                _AGENT,
                "image",
                kubeconfig=str(kubeconfig),
                token_file=token,
                grace=2.0,
            )
        )

    return opened


async def life(provider: Open, folder: Path, killer: Killer) -> None:
    """One job from the ask to the end of everything, or what is left of it after a death."""
    engine: Any = provider(folder)
    if isinstance(engine, KubernetesProvider):
        # An order is several objects.
        cluster: Any = engine._cluster
        cluster.apply = killer.around_async(cluster.apply)
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
    await engine.close()


def lived(provider: Open, folder: Path, at: int) -> bool:
    """A pool server that dies at point `at`. Whether it came to its end before."""
    child = os.fork()
    if child == 0:
        # What other tests left for the garbage collector is not to be collected here: gRPC's channels wait for threads
        # that this process does not have.
        gc.freeze()
        code = 1
        try:
            asyncio.run(life(provider, folder, Killer(at)))
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), f"point {at}: status {status}"
    return status == 0


async def dies_at_every_step(provider: Open, tmp_path: Path) -> int:
    """How many steps there were."""
    at = 1
    while True:
        folder = tmp_path / f"p{at}"
        folder.mkdir()
        watching = provider(folder)
        async with nothing_left(watching):
            if lived(provider, folder, at):
                await watching.close()
                return at
            assert lived(provider, folder, 0)
            assert await watching.list_owned() == {}
        await watching.close()
        at += 1


async def test_the_pool_dies_at_every_step(tmp_path: Path) -> None:
    # submit, cancel, and the lines of the ledger before and after each.
    assert await dies_at_every_step(local, tmp_path) > 14


@pytest.mark.slow
@pytest.mark.skipif(bool(schema_is_missing()), reason=schema_is_missing())
async def test_the_pool_dies_at_every_step_with_kubernetes(tmp_path: Path) -> None:
    # The same, and the Secret and the pod of an order.
    with cluster_apart() as kubeconfig:
        assert await dies_at_every_step(of_kubernetes(kubeconfig), tmp_path) > 18
