"""The page that says what of each math library is carried is the one that its tables make."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_that_of_the_tables() -> None:
    made = subprocess.run(
        [sys.executable, ROOT / "src/libraries/library_coverage.py"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert (ROOT / "docs/math-libraries-coverage.md").read_text() == made
