"""pytest plugin for runs of numba-cuda's own tests: what its classes expect, and a log that survives a crash.

Loaded by `-p tests.conformance.numba_plugin`. Each outcome is appended to the file that
CONFORMANCE_LOG names as soon as it is known, so that a test that takes the process with it loses
only itself.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest


def _append(record: dict[str, Any]) -> None:
    with Path(os.environ["CONFORMANCE_LOG"]).open("a") as log:
        log.write(json.dumps(record) + "\n")


@pytest.fixture(scope="class")
def initialize_from_pytest_config(request: pytest.FixtureRequest) -> None:
    """numba-cuda's test classes ask for this fixture; it says whether to dump failed file checks."""
    if request.cls is not None:
        request.cls._dump_failed_filechecks = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _append({"event": "collected", "tests": [item.nodeid for item in items]})


def pytest_runtest_logstart(nodeid: str) -> None:
    _append({"event": "started", "test": nodeid})


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        detail = ""
        if report.outcome == "failed":
            detail = str(report.longrepr)[-2000:]
        _append({"event": "outcome", "test": report.nodeid, "outcome": report.outcome, "detail": detail})
