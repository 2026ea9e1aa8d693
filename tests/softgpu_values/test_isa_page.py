"""The page that says which instructions run is what the engine does."""

from __future__ import annotations

import pytest

from tests.softgpu_values.device import LIBRARY, device
from tests.softgpu_values.isa import PAGE, instructions, make_page, runs

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="the native parts are not built (make build)")


def test_the_page_is_true() -> None:
    assert PAGE.read_text(encoding="utf-8") == make_page(device()), (
        "python -m tests.softgpu_values.isa makes it anew"
    )


def test_what_does_not_run_has_a_note_that_says_why() -> None:
    silent = [
        instruction.names
        for instruction in instructions()
        if not instruction.note and not all(runs(device(), statement) for statement in instruction.statements)
    ]
    assert silent == []
