"""What the tests under sanitizers share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Empty, with a short path: addresses of Unix sockets end at 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="gps-") as name:
        yield Path(name)
