"""Whose turn a software GPU is among sessions that all want it all the time: each has a kernel that never ends.

A kernel that is there already needs no processor to ask for the device, so what sessions get holds on a busy machine too.
How well programs fare that have to give the device work again and again is measured: test_fairness.py.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial

import pytest

from benchmarks.fairness import Got, Load, Session, sessions, share_errors, watch
from benchmarks.worker_process import boottime_ns
from tests.support.pool_node import native_worker_is_built
from tests.support.stack import wait_until

pytestmark = pytest.mark.skipif(not native_worker_is_built(), reason="native worker not built")

#: How far a session may be from its share, as a part of it.
FAIR = 0.15
#: Each look lasts twice as long as the one before. What a busy machine makes of a look, a session whose worker answers
#: late and a turn that ends late, is the same few hundredths of a second in a long look as in a short one.
LOOKS = 4


def endless(*milli: int, strict: bool = False) -> list[Load]:
    return [Load(one, "endless", strict) for one in milli]


def runs(session: Session) -> bool:
    return session.worker.stats()["work"] == "running"


def begin(running: list[Session]) -> None:
    """Returns when all want the device, and their kernels have had a turn: what came before has taken time of the device too."""
    for session in running:
        session.begin()
    for session in running:
        wait_until(partial(runs, session), 20, "a first turn")


def looked(running: list[Session], seconds: float, enough: Callable[[list[Got]], bool]) -> list[Got]:
    for look in range(LOOKS):
        got = watch(running, seconds * 2**look)
        if enough(got):
            break
    return got


def fair(got: list[Got]) -> bool:
    return max(map(abs, share_errors(got))) < FAIR


def has_all(got: list[Got]) -> bool:
    return got[0].part > 0.97


@pytest.mark.parametrize("milli", [(250, 750), (100, 300, 600), (500, 500)])
def test_each_gets_its_share(milli: tuple[int, ...]) -> None:
    with sessions(endless(*milli)) as running:
        begin(running)
        got = looked(running, 2.0, fair)
    assert fair(got), got
    assert sum(one.part for one in got) < 1.05, "their work overlapped"


def test_a_new_share_counts_at_once() -> None:
    with sessions(endless(200, 800)) as running:
        begin(running)
        for session, milli in zip(running, (800, 200), strict=True):
            worker = session.worker
            deadline = boottime_ns() + 3600 * 10**9
            asked = f"lease epoch={worker.epoch} deadline_ns={deadline} share=0:{milli}:256"
            assert worker.ask(asked).startswith("ok")

        def as_told(got: list[Got]) -> bool:
            return fair(
                [
                    Got(Load(milli), one.device_seconds, one.seconds)
                    for milli, one in zip((800, 200), got, strict=True)
                ]
            )

        got = looked(running, 2.0, as_told)
    assert as_told(got), got


def test_a_hard_cap_holds_on_an_idle_device() -> None:
    with sessions(endless(300, strict=True)) as running:
        begin(running)
        assert running[0].worker.stats()["enforcement"] == "hard"
        got = looked(running, 2.0, lambda got: 0.27 < got[0].part < 0.33)
    assert 0.27 < got[0].part < 0.33, got


def test_a_worker_that_is_killed_leaves_all_of_the_device_to_the_other() -> None:
    with sessions(endless(500, 500)) as (killed, other):
        begin([killed, other])
        process = killed.worker.process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        got = looked([other], 1.0, has_all)
    assert has_all(got), got


def test_who_is_revoked_while_it_waits_for_its_turn_computes_no_more() -> None:
    with sessions(endless(50, 950)) as (small, large):
        begin([small, large])
        assert small.worker.ask(f"revoke epoch={small.worker.epoch}", timeout=60).startswith("ok")
        before = small.worker.stats()
        assert before["work"] == "stopped"
        got = looked([large], 1.0, has_all)
        assert small.worker.stats()["device_ns"] == before["device_ns"]
    assert has_all(got), got


def test_who_does_not_use_its_share_leaves_all_of_the_device_to_the_other() -> None:
    with sessions([Load(900), Load(100, "endless")]) as (idle, busy):
        begin([busy])
        before = idle.device_seconds()
        got = looked([busy], 1.0, has_all)
        assert idle.device_seconds() == before
    assert has_all(got), got
