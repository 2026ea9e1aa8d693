"""`gpupool node logs --watch`: each line once."""

from __future__ import annotations

from gpupool.cli.node.logs import new_lines
from gpupool.client.types import LogLine
from hypothesis import given
from hypothesis import strategies as st


def agent(text: str, at: float = 1.0) -> LogLine:
    return LogLine(at, "info", text)


def worker(text: str, at: float = 1.0) -> LogLine:
    return LogLine(at, "worker", text)


def test_a_worker_line_is_not_new_because_its_file_is() -> None:
    before = [agent("a"), worker("one"), worker("two")]
    now = [agent("a"), agent("b"), worker("one", 9.0), worker("two", 9.0), worker("three", 9.0)]
    assert new_lines(before, now) == [agent("b"), worker("three", 9.0)]


def test_a_worker_that_has_ended_and_another_that_begins() -> None:
    assert new_lines([worker("one")], []) == []
    assert new_lines([], [worker("one")]) == [worker("one")]


@given(st.lists(st.sampled_from("abc"), max_size=30), st.integers(1, 10), st.data())
def test_nothing_is_lost_and_what_is_kept_is_not_repeated_beyond_what_looks_alike(
    texts: list[str], kept: int, data: st.DataObject
) -> None:
    """Both looks see the end of one log; lines that are all different come exactly once."""
    first = data.draw(st.integers(0, len(texts)))
    lines = [agent(f"{number} {text}") for number, text in enumerate(texts)]
    before, now = lines[:first][-kept:], lines[-kept:]
    assert new_lines(before, now) == [line for line in now if line not in before]
