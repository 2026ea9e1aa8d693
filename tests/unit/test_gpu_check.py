"""The check for machines with a GPU, as far as it can be tried without one: what counts as equal, and what failures say."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.client.native import NATIVE_VARIABLE

from benchmarks import park_session, worker_process
from benchmarks.park_session import Client
from benchmarks.worker_process import WorkerError
from tests.gpu_check import frameworks_check
from tests.gpu_check.frameworks_check import ALL, PROGRAMS, Program
from tests.gpu_check.programs_run import ratios, run, same


@pytest.mark.parametrize(
    ("one", "other", "tolerance", "equal"),
    [
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.0]}, 0.0, True),
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.0001]}, 1e-3, True),
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.01]}, 1e-3, False),
        ({"a": 1.0}, {"b": 1.0}, 1.0, False),
        ([1.0], [1.0, 1.0], 1.0, False),
        (float("nan"), 1.0, 1.0, False),
        (True, 1, 1.0, False),
        ("x", "x", 0.0, True),
        (None, {"a": 1}, 1.0, False),
    ],
)
def test_what_is_equal(one: object, other: object, tolerance: float, equal: bool) -> None:
    assert same(one, other, tolerance) is equal


def test_ratios_are_of_figures_that_both_have() -> None:
    alone = {"figures": {"steps/s": 4.0, "only here": 1.0, "text": "x", "nothing": 0}}
    assert ratios(alone, {"figures": {"steps/s": 3.0, "text": "y", "nothing": 1}}) == {"steps/s": 0.75}
    assert ratios(alone, {"error": "it failed"}) == {}


def is_alive(pid: int) -> bool:
    """A zombie whose parent is gone for good is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class TestAProgram:
    def test_that_fails_says_why(self, tmp_path: Path) -> None:
        program = tmp_path / "program.py"
        program.write_text("raise SystemExit('no memory')\n")
        assert "no memory" in run(program, [], os.environ, log=tmp_path / "log")["error"]
        assert "no memory" in (tmp_path / "log").read_text()

    def test_that_prints_no_result_has_an_error(self, tmp_path: Path) -> None:
        program = tmp_path / "program.py"
        program.write_text("print('hello')\n")
        assert "status 0" in run(program, [], os.environ)["error"]

    def test_that_does_not_end_is_ended_with_what_it_started(self, tmp_path: Path) -> None:
        program = tmp_path / "program.py"
        program.write_text(
            "import pathlib, subprocess, sys, time\n"
            "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
            "pathlib.Path(sys.argv[1]).write_text(str(child.pid))\n"
            "print('it said this', file=sys.stderr, flush=True)\ntime.sleep(600)\n"
        )
        found = run(program, [], os.environ, str(tmp_path / "pid"), seconds=4.0, log=tmp_path / "log")
        assert "not done after 4 s" in found["error"]
        assert (tmp_path / "log").exists()
        if (tmp_path / "pid").exists():  # the machine may be too busy to start it in time
            pid = int((tmp_path / "pid").read_text())
            while is_alive(pid):  # killed, and not gone yet
                time.sleep(0.05)


@contextlib.contextmanager
def no_way(_share: str) -> Iterator[tuple[list[str], dict[str, str]]]:
    raise RuntimeError("the worker did not start")
    yield [], {}


def test_every_part_has_its_program() -> None:
    there = {path.stem for path in PROGRAMS.glob("*.py")} - {"models", "beside"}
    assert there == {program.name for program in ALL}


def test_a_part_that_cannot_begin_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.py").write_text("print('{\"result\": 1}')\n")
    monkeypatch.setattr(frameworks_check, "PROGRAMS", tmp_path)
    monkeypatch.setattr(frameworks_check, "ALL", (Program("one", ()), Program("none", ("no_such_package",))))
    found = frameworks_check.check(no_way, dict(os.environ), tmp_path, minutes=1.0, only="", pool=False)
    assert not found["one"]["ok"] and found["one"]["said"] == "the worker did not start"
    assert found["none"]["left_out"] == "this Python has no no_such_package"
    assert found["beside"]["left_out"] == "needs the pool"
    assert frameworks_check.failures(found) == 1
    assert len(list(frameworks_check.lines(found))) == 3


def test_nothing_begins_after_the_time(tmp_path: Path) -> None:
    found = frameworks_check.check(no_way, {}, tmp_path, minutes=-1.0, only="", pool=True)
    assert {part["left_out"] for part in found.values()} == {"no time is left"}


class TestAClient:
    def test_that_gives_no_answer_is_not_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(park_session, "ANSWER_SECONDS", 0.2)
        silent = "import sys, time; print('{}', flush=True); sys.stdin.readline(); sys.stdin.readline()"
        with (
            pytest.raises(WorkerError, match=r"no answer in 0\.2 s"),
            Client(os.environ, ["-c", silent]) as client,
        ):
            client.do("read")

    def test_that_ends_says_all_of_why(self) -> None:
        program = "import sys; print('first line\\nsecond line', file=sys.stderr)"
        with pytest.raises(WorkerError, match="first line\nsecond line"):
            Client(os.environ, ["-c", program])


def test_a_worker_keeps_the_folders_that_are_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NATIVE_VARIABLE, str(tmp_path))
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path / 'client'}:/usr/local/nvidia/lib64")
    monkeypatch.setenv("LD_PRELOAD", "libours.so")
    environment = worker_process._environment({"ADDED": "1"})
    assert environment["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib64"
    assert environment["ADDED"] == "1"
    assert "LD_PRELOAD" not in environment
