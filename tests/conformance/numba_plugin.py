"""pytest plugin for runs of numba-cuda's own tests: what its classes expect, and the log of outcomes.

Loaded by `-p tests.conformance.numba_plugin`.
"""

from __future__ import annotations

import multiprocessing
import os

import pytest

pytest_plugins = ("tests.conformance.outcome_log",)


def pytest_configure() -> None:
    """A process that multiprocessing starts gets a share of its own."""
    if child := os.environ.get("CONFORMANCE_CHILD"):
        multiprocessing.set_executable(child)


@pytest.fixture(scope="class")
def initialize_from_pytest_config(request: pytest.FixtureRequest) -> None:
    """numba-cuda's test classes ask for this fixture; it says whether to dump failed file checks."""
    if request.cls is not None:
        request.cls._dump_failed_filechecks = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for module in {getattr(item, "module", None) for item in items}:
        if hasattr(module, "FUTURE_TIMEOUT"):
            # Four seconds are for a process that need not ask a pool for a share first.
            module.FUTURE_TIMEOUT = 60
