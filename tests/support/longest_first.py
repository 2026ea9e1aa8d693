"""pytest plugin (`-p tests.support.longest_first`): begins with the files that take the longest, and says which do.

Each file runs in one process (`--dist loadfile`). If a long one comes last, the other processes have nothing to do meanwhile.
The order of files on pytest's command line says nothing where their folder is named too.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path(__file__).parents[2]
_LONGEST: Final = (
    "tests/property/test_session_machine.py",
    "tests/integration/test_ways_to_die.py",
    "tests/integration/test_providers_kubernetes.py",
    "tests/integration/test_pool_node_client.py",
    "tests/integration/test_jupyter_idle.py",
    "tests/integration/test_standby.py",
    "tests/documentation/test_commands.py",
    "tests/integration/test_worker_long_kernels.py",
    "tests/integration/test_endless_kernels.py",
    "tests/integration/test_idle_release.py",
    "tests/integration/test_told_once.py",
    "tests/integration/test_time_limit.py",
    "tests/integration/test_borrowing_pool.py",
    "tests/integration/test_jupyter_wrong_settings.py",
    "tests/integration/test_broken_connections.py",
    "tests/libraries/test_rnn.py",
    "tests/integration/test_cli.py",
    "tests/integration/test_interrupted_waits.py",
    "tests/integration/test_taken_back_program.py",
    "tests/integration/test_run_cuda.py",
    "tests/integration/test_image_cache.py",
    "tests/integration/test_pool_auth.py",
    "tests/integration/test_many_requests.py",
    "tests/integration/test_engine_crash_points.py",
    "ui-tests/test_idle.py",
    "ui-tests/test_sidebar.py",
)
_SHOWN: Final = 20


def pytest_configure() -> None:
    if gone := [name for name in _LONGEST if not (_ROOT / name).is_file()]:
        raise pytest.UsageError(f"{__file__} names files that are not there: {', '.join(gone)}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {_ROOT / name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How long the longest files took, beside the others."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    longest = sorted(seconds.items(), key=lambda one: -one[1])[:_SHOWN]
    terminalreporter.section("the longest files", sep="-")
    for name, lasted in longest:
        terminalreporter.write_line(f"{lasted:7.1f} s  {name}")
