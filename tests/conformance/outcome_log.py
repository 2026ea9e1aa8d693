"""pytest plugin of the conformance suites: a log of outcomes that survives a crash.

Each outcome is appended to the file that CONFORMANCE_LOG names as soon as it is known, so that a test that takes the
process with it loses only itself.
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _append({"event": "collected", "tests": [item.nodeid for item in items]})


def pytest_runtest_logstart(nodeid: str) -> None:
    _append({"event": "started", "test": nodeid})


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        detail = ""
        outcome: str = report.outcome
        if outcome == "failed":
            detail = str(report.longrepr)[-2000:]
        elif outcome == "skipped":
            # (file, line, reason); of an expected failure only the reason.
            detail = report.wasxfail if hasattr(report, "wasxfail") else str(report.longrepr[-1])  # type: ignore[index]
            if hasattr(report, "wasxfail"):
                outcome = "xfailed"
        _append({"event": "outcome", "test": report.nodeid, "outcome": outcome, "detail": detail})
