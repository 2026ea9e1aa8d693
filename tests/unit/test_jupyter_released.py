"""What is said of a release, and for how long it can be taken back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpupool.client.session.record import Hold, Session, State
from gpupool.client.types import Grant, GrantedShare, LeaseRequest, Usage
from gpupool.durations import duration_text
from gpupool.shares import Share

from jupyter_gpupool.server.session.quantities import memory_text
from jupyter_gpupool.server.session.released import (
    Release,
    release_by_death,
    release_of,
    release_sentence,
    undo_seconds,
    with_later_report,
)
from jupyter_gpupool.server.session.words import KERNEL_WORDS

GRANT = Grant(
    lease_id="l1",
    session_id="s1",
    epoch=1,
    shares=(GrantedShare("vm/0", 200, 1587),),
    worker_address="",
    worker_token="",
    software=True,
    profile="",
    new_session=True,
)
HELD = Session(
    state=State.ATTACHED,
    session_id="s1",
    lease=GRANT,
    hold=Hold("sidebar", Share(milli=200)),
    request=LeaseRequest(Share(milli=200), project="research"),
)
PARKED = Session(state=State.PARKED, session_id="s1", reason="idle", request=HELD.request)


def noted(after: Session = PARKED, before: Session = HELD, memory: int = 1_288_490_189) -> Release:
    release = release_of(before, after, unused_seconds=600, memory_bytes=memory, at=1_000.0)
    assert release is not None
    return release


def test_a_kernel_that_died_says_what_it_held() -> None:
    release = release_by_death(HELD, at=1_000.0)
    assert release is not None
    again = Session()
    assert release_sentence(release, again, None) == (
        "The kernel died: 0.2 of GPU 0 on vm is free again; what was in its memory is gone."
    )
    assert undo_seconds(release, again, 1_000.0) == 0
    assert release_by_death(PARKED, at=1_000.0) is None


def test_says_why_what_is_free_and_where_the_memory_is() -> None:
    assert release_sentence(noted(), PARKED, "host") == (
        "Released after 10 min without use: 0.2 of GPU 0 on vm is free again; 1.2 GiB of arrays are kept in host memory."
    )


@pytest.mark.parametrize(
    ("reason", "place", "sentence"),
    [
        (
            "release",
            "device",
            "Detached: 0.2 of GPU 0 on vm is free again; "
            "1.2 GiB of arrays are kept in GPU memory until others need the room.",
        ),
        (
            "deadline",
            "image",
            "Released because the time that was asked for is over: 0.2 of GPU 0 on vm is free again; "
            "1.2 GiB of arrays are kept on disk.",
        ),
        (
            "reclaim",
            None,
            "Taken back for a project that is entitled to it: 0.2 of GPU 0 on vm went to others; "
            "1.2 GiB of arrays are kept.",
        ),
    ],
)
def test_each_reason_has_its_sentence(reason: str, place: str | None, sentence: str) -> None:
    after = replace(PARKED, reason=reason)
    assert release_sentence(noted(after), after, place) == sentence


@pytest.mark.parametrize(
    ("work", "software", "parts"),
    [
        ("running", True, ["not free yet", "forever has been running for 12 s", "4 s", "stopped", "goes on"]),
        ("draining", False, ["not free yet", "forever has been running for 12 s", "4 s", "ends", "lost"]),
        ("", True, ["is going back", "1.2 GiB of arrays are kept"]),
    ],
)
def test_a_share_that_is_not_free_yet_is_not_called_free(work: str, software: bool, parts: list[str]) -> None:
    usage = Usage(work=work, kernel="forever", work_seconds=12.3)
    release = replace(noted(), software=software)
    said = release_sentence(release, PARKED, "device", draining=True, usage=usage)
    assert [part for part in parts if part not in said] == []
    assert "free again" not in said


def test_a_reset_is_what_was_asked_for() -> None:
    after = Session(reason="reset")
    assert release_of(HELD, after, unused_seconds=0, memory_bytes=1, at=1.0) is None


def test_memory_that_is_gone_is_not_promised() -> None:
    lost = replace(PARKED, state=State.LOST, session_id=None, reason="lost")
    release = noted(lost)
    assert release.memory_bytes == 0
    assert release_sentence(release, lost, "host").endswith("what was in its memory is gone.")
    # Closed by the pool some time after the release.
    assert release_sentence(noted(), lost, "host").endswith("what was in its memory is gone.")
    assert undo_seconds(noted(), lost, 1_000.0) == 0


def test_a_session_that_ends_after_its_lease_is_said_to_end_for_its_own_reason() -> None:
    after = replace(PARKED, reason="release")
    message = KERNEL_WORDS.gone("stopped")
    stopped = replace(after, state=State.LOST, session_id=None, reason="stopped", message=message)
    said = release_sentence(noted(after), stopped, None, draining=True, usage=Usage(work="draining"))
    assert said == message
    # One that ended with its lease has the sentence of its lease.
    lost = replace(stopped, reason="lost", message=KERNEL_WORDS.gone("lost"))
    assert "0.2 of GPU 0 on vm cannot be reached;" in release_sentence(noted(lost), lost, None)


def test_arrays_made_just_before_a_detach_are_kept_arrays_too() -> None:
    """The last report of the worker was from before they were made."""
    release = with_later_report(noted(memory=0), "s1", Usage(memory_used=(64 << 20,)))
    assert "64 MiB of arrays are kept" in release_sentence(release, PARKED, "device")
    # Out of device memory, but not out of the world.
    assert with_later_report(release, "s1", Usage(memory_used=(0,))).memory_bytes == 64 << 20
    assert with_later_report(noted(memory=0), "another", Usage(memory_used=(64 << 20,))).memory_bytes == 0


def test_several_devices() -> None:
    both = replace(GRANT, shares=(*GRANT.shares, GrantedShare("vm/1", 200, 1587)))
    release = noted(before=replace(HELD, lease=both), memory=0)
    assert "2 × 0.2 of GPU 0 and 1 on vm are free again; nothing was in its memory." in release_sentence(
        release, PARKED, "none"
    )


@pytest.mark.parametrize("reason", ["exit", None])
def test_the_end_of_a_cell_needs_no_word(reason: str | None) -> None:
    after = replace(PARKED, reason=reason)
    assert release_of(HELD, after, unused_seconds=0, memory_bytes=0, at=0) is None


def test_the_end_of_the_kernel_needs_no_word() -> None:
    closed = Session(state=State.CLOSED, reason="lost")
    assert release_of(HELD, closed, unused_seconds=0, memory_bytes=0, at=0) is None


def test_undo_brings_back_what_was_held_not_what_a_cell_added() -> None:
    grown = replace(
        HELD, request=replace(HELD.request or LeaseRequest(Share(milli=1)), share=Share(milli=700))
    )
    release = noted(before=grown)
    assert (release.request.share, release.request.project, release.by) == (
        Share(milli=200),
        "research",
        "sidebar",
    )


@pytest.mark.parametrize(
    ("reason", "now", "left"),
    [
        ("idle", 1_000, 120),
        ("idle", 1_119, 1),
        ("idle", 1_120, 0),
        ("idle", 900, 120),
        ("release", 1_010, 110),
        ("deadline", 1_010, 110),
        ("reclaim", 1_010, 0),
        ("preempt", 1_010, 0),
        ("admin", 1_010, 0),
    ],
)
def test_how_long_undo_is_offered(reason: str, now: float, left: float) -> None:
    after = replace(PARKED, reason=reason)
    assert undo_seconds(noted(after), after, now) == left


def test_no_undo_of_another_session_or_while_one_is_held() -> None:
    assert undo_seconds(noted(), replace(PARKED, session_id="s2"), 1_000) == 0
    assert undo_seconds(noted(), HELD, 1_000) == 0
    assert undo_seconds(noted(), replace(PARKED, state=State.QUEUED), 1_000) == 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        # The same figures as in format.spec.ts: both stand in one row.
        (0, "0 s"),
        (0.5, "0 s"),
        (45.4, "45 s"),
        (60, "1 min"),
        (90, "90 s"),
        (119, "119 s"),
        (119.6, "2 min"),
        (150, "2 min"),
        (210, "4 min"),
        (599, "10 min"),
        (600, "10 min"),
        (3_599, "1 h"),
        (3_600, "1 h"),
        (5_400, "1 h 30 min"),
        (7_199, "2 h"),
        (90_000, "25 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (300 * 2**20, "300 MiB"), (2**30 - 1, "1.0 GiB")],
)
def test_memory(count: int, text: str) -> None:
    assert memory_text(count) == text
