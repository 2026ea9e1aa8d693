"""Random deaths of the leader, a standby, their connections to PostgreSQL and node agents, while programs attach and detach.

`make standby-check` has 200 of them, and 1,000 attaches in `test_standby.py`.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter

import pytest

from tests.support import postgres
from tests.support.pool_servers import PoolServers, check_ledger
from tests.support.takeover import Askers

KILLS = int(os.environ.get("GPUPOOL_STANDBY_KILLS", "4"))
SEED = int(os.environ.get("GPUPOOL_CRASH_SEED", random.randrange(2**32)))
NODES = ("n1", "n2")
#: Programs that attach and detach all the time.
PROGRAMS = 8


class Fates:
    """What may happen, one after the other in random order, each as often as the others."""

    def __init__(self, pool: PoolServers, cluster: postgres.Cluster, chance: random.Random) -> None:
        self._pool = pool
        self._cluster = cluster
        self._chance = chance
        self._bag: list[str] = []
        self.happened: Counter[str] = Counter()

    def next(self) -> str:
        if not self._bag:
            self._bag = ["leader", "standby", "connection", "agent", "stopped leader"]
            self._chance.shuffle(self._bag)
        return self._bag.pop()

    def strike(self) -> str:
        """Kills something and starts it again; returns what."""
        fate = self.next()
        self.happened[fate] += 1
        pool = self._pool
        match fate:
            case "leader":
                self._kill(pool.leader())
            case "standby":
                leader = pool.leader()
                self._kill(next(name for name in pool.names if name != leader))
            case "connection":
                self._cluster.sql(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name LIKE 'gpupool-%' AND application_name NOT LIKE '%standby%'"
                )
            case "agent":
                name = self._chance.choice(NODES)
                pool.kill(name)
                pool.start_node(name)
            case _:
                self._stop(pool.leader())
        return fate

    def _kill(self, name: str) -> None:
        self._pool.kill(name)
        self._pool.start(name)

    def _stop(self, leader: str) -> None:
        """It may be overtaken meanwhile, or not."""
        pool = self._pool
        pool.signal(leader, signal.SIGSTOP)
        if self._chance.random() < 0.5:
            pool.wait(lambda: any(name != leader for name in pool.leaders()), 60, "another leader")
        pool.signal(leader, signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_no_request_is_lost_and_none_granted_twice() -> None:
    if why := postgres.why_not():
        pytest.skip(why)
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    with postgres.cluster() as cluster, PoolServers(cluster.database(), real_workers=True, scale=0.5) as pool:
        pool.start()
        for name in NODES:
            pool.start_node(name)
        pool.standby()
        pool.wait(lambda: pool.healthy() == 4, 60, "four devices")
        fates = Fates(pool, cluster, chance)
        askers = Askers(pool.endpoint, PROGRAMS)
        working = asyncio.create_task(askers.run_on())
        try:
            for number in range(KILLS):
                before = len(askers.granted)
                await asyncio.sleep(chance.uniform(0.0, 2.0))
                fate = await asyncio.to_thread(fates.strike)
                # The pool serves again before the next one strikes: it is not about how many may be dead at once.
                await asyncio.to_thread(pool.standby)
                async with asyncio.timeout(300):
                    await askers.until(before + PROGRAMS)
                print(f"{number + 1}: {fate}; {len(askers.granted)} attaches", flush=True)
                assert askers.lost == []
                assert not working.done()
        finally:
            askers.stop.set()
            async with asyncio.timeout(300):
                await working
        keys = check_ledger(pool.ledger, askers.granted)
        assert askers.lost == []
        assert {key: times for key, times in keys.items() if times != 1} == {}
        assert keys.keys() >= askers.granted.keys()
        assert sum(fates.happened.values()) == KILLS
        print(
            f"{dict(fates.happened)}: {len(askers.granted)} attaches, {len(askers.again)} asked anew: {askers.again[:5]}"
        )
