"""`%gpu list`: what it says of a queue that it was not told in full."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpupool.kernel.tables import pool_html, pool_lines


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"queue_left_out": 0}, None),
        ({}, None),  # a server of before does not say
        ({"queue_left_out": 41}, "queue: 41 more"),
        ({"queue_left_out": None}, "the queue is not known now"),
    ],
)
def test_what_the_list_of_the_queue_lacks_is_said(known: dict[str, Any], said: str | None) -> None:
    pool = {"ok": True, "devices": [], "lenders": [], "queue": [], **known}
    lines = list(pool_lines(pool))
    assert lines[1:] == ([said] if said else [])
    assert said is None or said in pool_html(pool)
