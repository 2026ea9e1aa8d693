"""pytest plugin (`-p tests.support.rerun_reasons`): why a test was run again.

What passes the second time is mended by nobody unless it was seen to fail.
"""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The failure of each test that was run again, behind all others."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"failed and run again: {report.nodeid}", sep="-")
        terminalreporter.write_line(report.longreprtext)
