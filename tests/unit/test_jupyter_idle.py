"""The idle ladder: who counts as idle, when the user is warned, when the GPU goes back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpupool.server.watching.idle import LONGEST_SECONDS, IdleLimits, IdlePolicy, Rung, Signals, judge

POLICY = IdlePolicy(idle_seconds=600, warn_seconds=60)
QUIET = Signals(
    now=10_000,
    attached_at=9_000,
    cell_running=False,
    last_cell_at=9_000,
    gpu_idle_seconds=1_000,
    gpu_in_flight=False,
)


def test_both_clocks_stood_still_so_it_goes_back() -> None:
    assert judge(POLICY, QUIET).rung is Rung.RELEASE


@pytest.mark.parametrize(
    "sign_of_life",
    [
        {"cell_running": True},
        {"gpu_in_flight": True},
        {"gpu_idle_seconds": 0.0},
        {"gpu_idle_seconds": None},
    ],
)
def test_one_sign_of_life_is_enough(sign_of_life: dict[str, object]) -> None:
    verdict = judge(POLICY, replace(QUIET, **sign_of_life))  # type: ignore[arg-type]
    assert verdict.rung is Rung.ACTIVE
    assert verdict.countdown is None


def test_the_younger_clock_decides() -> None:
    assert judge(POLICY, replace(QUIET, last_cell_at=9_900)).idle_seconds == 100
    assert judge(POLICY, replace(QUIET, gpu_idle_seconds=50)).idle_seconds == 50
    assert judge(POLICY, replace(QUIET, attached_at=9_990)).idle_seconds == 10


@pytest.mark.parametrize(
    ("idle", "rung", "countdown"),
    [
        (1, Rung.IDLE, None),
        (539, Rung.IDLE, None),
        (540, Rung.WARNED, 60),
        (599, Rung.WARNED, 1),
        (600, Rung.RELEASE, 0),
    ],
)
def test_the_rungs(idle: float, rung: Rung, countdown: float | None) -> None:
    verdict = judge(POLICY, replace(QUIET, gpu_idle_seconds=idle))
    assert (verdict.rung, verdict.countdown) == (rung, countdown)


def test_keep_puts_the_release_off_and_the_warning_comes_before_the_new_time() -> None:
    kept = replace(QUIET, kept_until=10_000 + 600)
    assert judge(POLICY, kept).rung is Rung.IDLE
    assert judge(POLICY, replace(kept, now=10_545)).rung is Rung.WARNED
    assert judge(POLICY, replace(kept, now=10_600)).rung is Rung.RELEASE


def test_zero_seconds_means_never() -> None:
    assert judge(IdlePolicy(0, 60), QUIET).rung is Rung.IDLE


def test_a_warning_longer_than_the_limit_warns_from_the_start() -> None:
    policy = IdlePolicy(idle_seconds=5, warn_seconds=60)
    assert judge(policy, replace(QUIET, gpu_idle_seconds=1)).countdown == 4
    assert policy.warn_at == 0


def test_the_two_clocks_are_told_apart() -> None:
    verdict = judge(POLICY, replace(QUIET, last_cell_at=9_970, gpu_idle_seconds=400))
    assert (verdict.kernel_seconds, verdict.gpu_seconds, verdict.idle_seconds) == (30, 400, 30)
    computing = judge(POLICY, replace(QUIET, gpu_in_flight=True))
    assert (computing.kernel_seconds, computing.gpu_seconds) == (1_000, 0)
    running = judge(POLICY, replace(QUIET, cell_running=True))
    assert (running.kernel_seconds, running.gpu_seconds) == (0, 1_000)


def test_a_gpu_that_says_nothing_counts_as_used() -> None:
    verdict = judge(POLICY, replace(QUIET, gpu_idle_seconds=None))
    assert (verdict.gpu_seconds, verdict.idle_seconds) == (None, 0)


def test_work_that_took_an_hour_is_not_idle_since_it_was_submitted() -> None:
    ended = replace(QUIET, gpu_idle_seconds=3_600, last_work_at=9_995)
    assert judge(POLICY, ended).gpu_seconds == 5
    assert judge(POLICY, ended).rung is Rung.IDLE


# --- what an administrator allows ------------------------------------------------------------

LIMITS = IdleLimits(default_seconds=600, warn_seconds=60, most_seconds=3_600)


@pytest.mark.parametrize(
    ("limits", "choice", "seconds"),
    [
        (LIMITS, None, 600),
        (LIMITS, 300, 300),
        (LIMITS, 3_600, 3_600),
        (LIMITS, 7_200, 3_600),
        (LIMITS, 0, 3_600),
        (replace(LIMITS, never_allowed=True), 0, 0),
        (replace(LIMITS, default_seconds=0), None, 0),
        (replace(LIMITS, default_seconds=0), 0, 0),
        (replace(LIMITS, default_seconds=9_000), None, 9_000),
        (replace(LIMITS, default_seconds=9_000), 8_000, 8_000),
        (replace(LIMITS, most_seconds=0), 1e9, LONGEST_SECONDS),
    ],
)
def test_a_choice_stays_within_the_limits(limits: IdleLimits, choice: float | None, seconds: float) -> None:
    assert limits.policy(choice) == IdlePolicy(seconds, 60)
