"""Many ask at once while every device is taken: all are told their place, nobody is lost, and all get their turn in order.

`GPUPOOL_MANY=10000` asks for so many (`make load-check`); figures are printed and go to docs/measurements/many-requests.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

from gpupool.simulation.replay_figures import percentile

from tests.support.full_pool import Askers, FullPool, until

MANY = int(os.environ.get("GPUPOOL_MANY", "400"))
#: Of so many the grants are awaited.
GRANTED = min(MANY, int(os.environ.get("GPUPOOL_MANY_GRANTED", str(MANY))))
DEVICES = 8
PROCESSES = 4 if MANY > 1000 else 2
CHANNELS = 5
#: Nobody hangs: far above what it takes, for a machine that does other work.
LIMIT_SECONDS = 60 + MANY / 10


def requests_granted(ledger: Path) -> list[str]:
    """The keys of all askers' requests that were granted, in the order in which the journal has them."""
    with sqlite3.connect(ledger) as connection:
        rows = connection.execute("SELECT data FROM journal WHERE kind = 'grant' ORDER BY number").fetchall()
    return [key for (data,) in rows if (key := str(json.loads(data)["key"])).startswith("ask-")]


async def ask_many() -> dict[str, Any]:
    async with asyncio.timeout(LIMIT_SECONDS), FullPool(DEVICES) as pool:
        memory, processor = pool.resident_mib(), pool.processor_seconds()
        async with Askers(pool.endpoint, MANY, PROCESSES, CHANNELS) as askers:
            answered = await askers.said("answered")
            answering = pool.processor_seconds() - processor
            grown = pool.resident_mib() - memory
            waiting = await pool.waiting()
            processor = pool.processor_seconds()
            begin = time.monotonic()
            await pool.free(DEVICES)
            if GRANTED == MANY:
                granted = await askers.said("granted")
            else:
                while len(requests_granted(pool.ledger)) < GRANTED:
                    await asyncio.sleep(1.0)
                granted = []
            took = time.monotonic() - begin
            granting = pool.processor_seconds() - processor
            order = requests_granted(pool.ledger)
        return {
            "answered": answered,
            "granted": granted,
            "waiting": waiting,
            "order": order,
            "answering_cpu_s": answering,
            "granting_s": took,
            "granting_cpu_s": granting,
            "kib_per_ask": grown * 1024 / MANY,
        }


async def leave_in_masses(number: int) -> dict[str, Any]:
    async with asyncio.timeout(LIMIT_SECONDS), FullPool(DEVICES) as pool:
        async with Askers(pool.endpoint, number, 1, CHANNELS) as askers:
            await askers.said("answered")
            waiting = await pool.waiting()
        # The process was killed: all its streams broke at once.
        begin = time.monotonic()
        await until(pool.nobody_waits, LIMIT_SECONDS)
        left = time.monotonic() - begin
        await pool.free(1)
        granted = await pool.take("afterwards")
        return {"waiting": waiting, "left_s": left, "granted": granted}


async def restart_under(number: int) -> dict[str, Any]:
    async with asyncio.timeout(LIMIT_SECONDS), FullPool(DEVICES) as pool:
        async with Askers(pool.endpoint, number, 2, CHANNELS) as askers:
            await askers.said("answered")
            await pool.restart()
            await until(lambda: pool.as_many_wait(number), LIMIT_SECONDS)
            await pool.free(DEVICES)
            granted = await askers.said("granted")
        return {
            "granted": granted,
            "order": requests_granted(pool.ledger),
        }


def test_many_who_leave_at_once_leave_nothing_behind() -> None:
    seen = asyncio.run(leave_in_masses(MANY // 2))
    assert seen["waiting"] == MANY // 2
    assert seen["granted"]
    print(json.dumps({"left": MANY // 2, "left_s": seen["left_s"]}))


def test_who_waits_when_the_pool_is_killed_asks_again_and_is_granted_once() -> None:
    """What is promised: nobody is lost, nothing is granted twice. Places are not stored: who asks again first is first."""
    number = MANY // 4
    seen = asyncio.run(restart_under(number))
    assert [row for row in seen["granted"] if row[3]] == []
    assert all(broken >= 1 for *_, broken in seen["granted"]), "the pool was not gone for everybody"
    assert sorted(seen["order"]) == [f"ask-{index:06d}" for index in range(number)]


def test_of_many_who_ask_at_once_none_is_lost_and_all_are_served_in_order() -> None:
    seen = asyncio.run(ask_many())
    answered, granted = seen["answered"], seen["granted"]
    assert [row for row in answered if row[1] is None or row[4]] == []
    assert [row for row in granted if row[3]] == []
    # Everybody was told a place of its own: they are queued in the order in which the pool has heard them.
    assert sorted(place for _, place, *_ in answered) == list(range(1, MANY + 1))
    assert seen["waiting"] == MANY
    # And that is the order in which they were granted, each once, whichever device is free first.
    place = {key: place for key, place, *_ in answered}
    granted_places = [place[key] for key in seen["order"]]
    assert len(set(granted_places)) == len(granted_places) >= GRANTED
    if GRANTED == MANY:
        assert sorted(granted_places) == list(range(1, MANY + 1))
    overtaken = max(turn - number for turn, number in enumerate(granted_places, 1))
    assert overtaken == 0, f"a request was granted {overtaken} turns after its own"
    begin = min(row[2] for row in answered)
    took = sorted(row[3] - row[2] for row in answered)
    figures = {
        "asks": MANY,
        "first_answer_p50_s": percentile(took, 50),
        "first_answer_p99_s": percentile(took, 99),
        "all_answered_s": max(row[3] for row in answered) - begin,
        "answering_cpu_s": seen["answering_cpu_s"],
        "granted": len(granted_places),
        "granting_s": seen["granting_s"],
        "granting_cpu_s": seen["granting_cpu_s"],
        "overtaken_by_at_most": overtaken,
        "kib_per_ask": seen["kib_per_ask"],
    }
    print(json.dumps(figures, indent=2))
