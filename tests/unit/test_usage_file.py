"""The figures that the holder of a share leaves for monitors."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpupool.client.types import Usage
from gpupool.client.usage_file import UsageFile

SECOND = 10**9


def lines(path: Path) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in path.read_text().splitlines())


@pytest.fixture
def usage(tmp_path: Path) -> UsageFile:
    return UsageFile(tmp_path / "session")


def test_it_lies_beside_the_session_file_for_its_owner_only(usage: UsageFile, tmp_path: Path) -> None:
    usage.write(Usage(memory_used=(1024, 2048)), 5 * SECOND)
    assert usage.path == tmp_path / "session.usage"
    assert usage.path.stat().st_mode & 0o777 == 0o600
    assert lines(usage.path) == {
        "version": "1", "time_ns": "5000000000", "busy_permille": "0", "memory_used": "1024,2048",
    }  # fmt: skip


def test_busy_is_of_each_device(usage: UsageFile) -> None:
    usage.write(Usage(busy=0.3, memory_used=(0,)))
    assert lines(usage.path)["busy_permille"] == "300"
    usage.write(Usage(busy=0.3, memory_used=(0, 0)))
    assert lines(usage.path)["busy_permille"] == "150"


def test_a_report_that_the_pool_repeats_grows_old(usage: UsageFile) -> None:
    usage.write(Usage(busy=0.5, idle_seconds=1.0), 10 * SECOND)
    usage.write(Usage(busy=0.5, idle_seconds=1.0), 11 * SECOND)
    found = lines(usage.path)
    assert (found["time_ns"], found["busy_permille"]) == (str(10 * SECOND), "500")
    usage.remove()
    usage.write(Usage(busy=0.5, idle_seconds=1.0), 12 * SECOND)
    assert lines(usage.path)["time_ns"] == str(12 * SECOND)


@pytest.mark.parametrize(("busy", "expected"), [(1.2, "1000"), (-0.5, "0")])
def test_busy_stays_between_none_and_all(usage: UsageFile, busy: float, expected: str) -> None:
    usage.write(Usage(busy=busy))
    assert lines(usage.path)["busy_permille"] == expected


def test_removing_takes_the_mark_of_the_process_too(usage: UsageFile, tmp_path: Path) -> None:
    usage.write(Usage())
    (tmp_path / "session.process").write_text("1 1\n")
    (tmp_path / "session").write_text("x")
    usage.remove()
    usage.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["session"]
