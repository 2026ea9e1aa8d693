"""A program that waits for the network most of the time is told which call does it."""

from __future__ import annotations

import pytest
from gpupool.client.hints import hint
from gpupool.client.runtime import Counters

from jupyter_gpupool.kernel.figures import Figures, html_line, text_line

NOTHING = Counters()


def after(small: int = 0, **asks: tuple[int, float]) -> Counters:
    return Counters(
        asks=sum(n for n, _ in asks.values()),
        ask_seconds=sum(s for _, s in asks.values()),
        asks_by_name=asks,
        copies_to_host=(small, 0, 0, 0),
    )


@pytest.mark.parametrize(
    "waiting", ["cuMemcpyDtoH_v2", "cuStreamSynchronize"]
)  # pageable memory, pinned memory
def test_item_in_a_loop_is_named(waiting: str) -> None:
    said = hint(NOTHING, after(1024, **{waiting: (1030, 2.0), "cuCtxSynchronize": (3, 0.1)}), 2.5)
    assert said is not None
    assert "1,024 copies of at most 16 bytes" in said
    assert ".item()" in said


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("cuMemcpyDtoH_v2", "larger copies"),
        ("cuStreamSynchronize", "once, at the end"),
        ("cuEventQuery", "polling"),
        ("cuModuleLoadData", "first time"),
        ("cuMemPoolGetAttribute", "waits for the GPU"),
    ],
)
def test_each_kind_of_waiting_has_its_advice(name: str, word: str) -> None:
    said = hint(NOTHING, after(**{name: (200, 1.0)}), 1.5)
    assert said is not None
    assert word in said
    assert f"200 × {name.removesuffix('_v2')} (1 s)" in said


def test_the_slowest_call_counts_not_only_the_most_frequent() -> None:
    said = hint(NOTHING, after(cuModuleLoadData=(60, 6.0), cuEventQuery=(100, 0.1)), 7.0)
    assert said is not None
    assert "cuModuleLoadData" in said


def test_only_what_was_added_since_the_first_reading_counts() -> None:
    before = after(1000, cuMemcpyDtoH_v2=(1000, 5.0))
    assert hint(before, before, 1.0) is None
    later = after(1010, cuMemcpyDtoH_v2=(1010, 5.5))
    assert hint(before, later, 1.0) is None
    later = after(1100, cuMemcpyDtoH_v2=(1100, 5.5))
    assert "100 copies" in (hint(before, later, 1.0) or "")


@pytest.mark.parametrize(
    ("counters", "wall"),
    [
        (after(cuCtxSynchronize=(49, 9.0)), 10.0),  # few
        (after(cuCtxSynchronize=(500, 0.05)), 0.2),  # quick
        (after(cuCtxSynchronize=(500, 0.5)), 60.0),  # a small part of the time
        (
            after(cuCtxSynchronize=(100, 1.0), cuEventQuery=(100, 1.0), cuStreamQuery=(100, 1.0)),
            4.0,
        ),  # no one call
    ],
)
def test_there_is_no_hint_without_need(counters: Counters, wall: float) -> None:
    assert hint(NOTHING, counters, wall) is None


def test_the_hint_stands_below_the_cells_figures() -> None:
    figures = Figures.between(NOTHING, after(900, cuMemcpyDtoH_v2=(900, 3.0)), 4.0)
    assert figures.hint is not None
    first, second = text_line("0.2 GPU", figures, "").split("\n")
    assert "waits for the GPU 900 (3.00 s)" in first
    assert second == figures.hint
    assert "at most 16 bytes" in html_line("0.2 GPU", figures, "")
    assert "\n" not in text_line("0.2 GPU", Figures.between(NOTHING, NOTHING, 1.0), "")
