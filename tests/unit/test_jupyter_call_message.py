"""What a CUDA call is told that finds no GPU attached."""

from __future__ import annotations

import pytest
from gpupool.client.session.call_message import call_message
from gpupool.client.session.state import Session, State
from gpupool.client.types import QueuePlace
from gpupool.sentences.reasons import REASONS

from jupyter_gpupool.server.session.words import KERNEL_WORDS

WAYS_OUT = ("%%gpu 0.2", "sidebar")


def test_a_fresh_kernel_is_told_what_to_do() -> None:
    said = call_message(Session(words=KERNEL_WORDS))
    assert all(way in said for way in WAYS_OUT)
    assert "kept" not in said


@pytest.mark.parametrize("reason", sorted({*REASONS} - {"lost", "admin", "stopped", "upgrade"}))
def test_a_parked_session_is_told_that_its_memory_is_kept(reason: str) -> None:
    parked = Session(
        State.PARKED, "5e", reason=reason, message=KERNEL_WORDS.ended(reason), words=KERNEL_WORDS
    )
    said = call_message(parked)
    assert "kept" in said
    assert all(way in said for way in WAYS_OUT)
    assert said.count("%%gpu 0.2") == 1


def test_a_refused_request_is_named_behind_the_way_out() -> None:
    said = call_message(
        Session(State.PARKED, "5e", reason="timeout", message="waited 2 s; 0.1 is free.", words=KERNEL_WORDS)
    )
    assert said.index("%%gpu 0.2") < said.index("waited 2 s")
    assert "kept" in said


def test_who_waits_is_told_so() -> None:
    place = QueuePlace(1, "0.5 of 0.9 is free", None)
    said = call_message(Session(State.QUEUED, queue=place, message=place.reason))
    assert "queue" in said
    assert "0.5 of 0.9 is free" in said
