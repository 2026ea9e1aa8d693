"""pytest plugin for runs of numba-cuda's own tests: what its classes expect, and the log of outcomes.

Loaded by `-p tests.conformance.numba_plugin`.
"""

from __future__ import annotations

import pytest

pytest_plugins = ("tests.conformance.outcome_log",)


@pytest.fixture(scope="class")
def initialize_from_pytest_config(request: pytest.FixtureRequest) -> None:
    """numba-cuda's test classes ask for this fixture; it says whether to dump failed file checks."""
    if request.cls is not None:
        request.cls._dump_failed_filechecks = False
