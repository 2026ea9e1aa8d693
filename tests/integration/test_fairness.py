"""Device time of sessions that share one software GPU: real workers, real clients under full load.

The bounds are loose, for machines that do other things too; `gpupool bench fairness` measures.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

import pytest

from benchmarks.fairness import Got, Load, Session, occupied, sessions, share_errors, watch
from benchmarks.worker_process import boottime_ns
from tests.support.patience import measured
from tests.support.pool_node import native_worker_is_built

pytestmark = [
    pytest.mark.serial,
    pytest.mark.skipif(not native_worker_is_built(), reason="native worker not built"),
]


#: How far a session may be from its share, as a part of it.
FAIR = 0.15
#: A session that the machine does not let ask for the device gets less than its share: then it is looked again.
LOOKS = 5


def looked(running: list[Session], seconds: float, enough: Callable[[list[Got]], bool]) -> list[Got]:
    """What the sessions got in the first look in which it was enough; in the last where there was none."""
    for _ in range(LOOKS):
        got = watch(running, seconds)
        if enough(got):
            break
    return got


def fair(got: list[Got]) -> bool:
    return max(map(abs, share_errors(got))) < FAIR


def most(got: list[Got]) -> bool:
    return got[0].part > 0.6


def test_two_sessions_get_the_device_by_their_shares() -> None:
    with sessions([Load(250, "graphs"), Load(750, "streams")]) as running:

        def fairly() -> list[Got]:
            time.sleep(0.5)
            return looked(running, 2.0, fair)

        results, busy = occupied(running, fairly)
    assert busy < 1.01, "their work overlapped"
    measured(fair(results), results)


def test_a_kernel_of_ten_seconds_takes_turns_with_short_ones() -> None:
    for loads in (Load(250, "long"), Load(750)), (Load(750, "long"), Load(250)):
        with sessions(loads) as running:
            for session in running:
                session.begin()
            time.sleep(1)  # until each has had a turn
            results = looked(running, 4.0, fair)
        measured(fair(results), results)


def test_sessions_whose_workers_stand_still_for_a_while_do_not_overlap() -> None:
    """Less than the two seconds after which nobody waits for another any more."""
    choice = random.Random(20261121)
    with sessions([Load(500, "graphs"), Load(500)]) as running:

        def stopped_now_and_then() -> None:
            for _ in range(5):
                pid = choice.choice(running).worker.process.pid
                os.kill(pid, signal.SIGSTOP)
                try:
                    time.sleep(choice.uniform(0.1, 0.6))
                finally:
                    os.kill(pid, signal.SIGCONT)
                time.sleep(choice.uniform(0.02, 0.2))

        _, busy = occupied(running, stopped_now_and_then)
    assert 0 < busy < 1.01, "their work overlapped"


def test_a_new_share_counts_at_once() -> None:
    with sessions([Load(200), Load(800)]) as running:
        for session in running:
            session.begin()
        time.sleep(0.5)
        for session, milli in zip(running, (800, 200), strict=True):
            worker = session.worker
            deadline = boottime_ns() + 3600 * 10**9
            assert worker.ask(
                f"lease epoch={worker.epoch} deadline_ns={deadline} share=0:{milli}:256"
            ).startswith("ok")

        def as_told(got: list[Got]) -> bool:
            first, second = got
            return 2.5 < first.device_seconds / second.device_seconds < 6

        results = looked(running, 1.5, as_told)
    measured(as_told(results), results)


def test_a_hard_cap_holds_on_an_idle_device() -> None:
    def used(got: list[Got]) -> bool:
        return got[0].part > 0.24

    with sessions([Load(300, strict=True)]) as running:
        running[0].begin()
        time.sleep(0.5)
        assert running[0].worker.stats()["enforcement"] == "hard"
        results = looked(running, 2.0, used)
    assert results[0].part < 0.34
    measured(used(results), results)


def test_a_worker_killed_under_load_leaves_the_device_to_the_other() -> None:
    with sessions([Load(500), Load(500)]) as (killed, other):
        killed.begin()
        other.begin()
        time.sleep(0.5)
        assert other.worker.stats()["enforcement"] == "soft"
        process = killed.worker.process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        results = looked([other], 1.0, most)
    measured(most(results), results)  # within a fraction of the second it has all of it


def test_a_session_that_waits_for_its_turn_is_revoked_in_bounded_time() -> None:
    with sessions([Load(50), Load(950)]) as (small, large):
        small.begin()
        large.begin()
        time.sleep(0.5)
        assert small.worker.ask(f"revoke epoch={small.worker.epoch}", timeout=60).startswith("ok")
        time.sleep(0.3)
        before = small.worker.stats()
        results = looked([large], 1.0, most)
        # No more work than what had been given to the device, and the turn is the other's alone.
        assert small.worker.stats()["device_ns"] == before["device_ns"]
    measured(most(results), results)


def test_who_does_not_use_its_share_leaves_all_of_the_device_to_the_other() -> None:
    with sessions([Load(900), Load(100)]) as (idle, busy):
        busy.begin()
        time.sleep(0.3)
        results = looked([busy], 0.7, most)
        assert idle.device_seconds() < 0.2
    measured(most(results), results)
