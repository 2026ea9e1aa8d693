"""`kill -9` of a real pool server at random points of its decisions: its ledger is consistent each time, whatever it had
told anybody is in it, and nothing was granted twice. `make crash-points` does it 100 times."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import pytest

from tests.support import postgres
from tests.support.crash_story import CrashStory, Point, strace_works

POINTS = int(os.environ.get("GPUPOOL_CRASH_POINTS", "10"))
DATABASE_POINTS = int(os.environ.get("GPUPOOL_CRASH_POINTS_POSTGRESQL", "2"))
SEED = int(os.environ.get("GPUPOOL_CRASH_SEED", random.randrange(2**32)))


def points(count: int, chance: random.Random, *, at_writes: bool) -> list[Point]:
    """Half of them at writes to the ledger and at its syncs, the rest at any moment."""
    lot = []
    for number in range(count):
        if at_writes and number % 2 == 0:
            call, largest = ("pwrite64", 250) if chance.random() < 0.6 else ("fdatasync", 40)
            lot.append(Point(call, chance.randint(1, largest)))
        else:
            lot.append(Point(delay=chance.uniform(0.0005, 0.6)))
    return lot


def tells_enough(story: CrashStory, deaths: int) -> bool:
    """Whether a story of so many deaths had a pool that granted and took back."""
    counts = story.known.counts
    return counts["granted"] >= deaths and counts["released"] >= deaths / 2


async def run(story: CrashStory, lot: list[Point]) -> None:
    print(f"seed {SEED}")
    for point in lot:
        print(f"killed at {point}", flush=True)
        await story.live_and_die(point)
    # A pool may die each time before a caller wants to give back. Such a story shows little, and goes on with lives
    # that are long enough for some of it: ever longer ones, as a busy machine needs.
    more = 0
    while not tells_enough(story, len(lot)) and more < 10:
        more += 1
        await story.live_and_die(Point(delay=0.6 * more))
    print(
        f"{len(lot)} + {more} deaths: {dict(story.known.counts)}, {len(story.known.told)} leases told to nodes"
    )
    assert tells_enough(story, len(lot))


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_a_ledger_in_a_file() -> None:
    chance = random.Random(SEED)
    with tempfile.TemporaryDirectory(prefix="gpp-") as home:
        await run(CrashStory(Path(home), SEED), points(POINTS, chance, at_writes=strace_works()))


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_ledger_in_postgresql() -> None:
    if why := postgres.why_not():
        pytest.skip(why)
    chance = random.Random(SEED)
    with postgres.cluster() as cluster, tempfile.TemporaryDirectory(prefix="gpp-") as home:
        story = CrashStory(Path(home), SEED, cluster.database())
        await run(story, points(DATABASE_POINTS, chance, at_writes=False))
