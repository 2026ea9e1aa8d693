"""The check for machines with a GPU, as far as it can be tried without one: what counts as equal, what failures say, and what
is left of the time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gpupool.client.native import NATIVE_VARIABLE

from benchmarks import park_session, worker_process
from benchmarks.park_session import Client
from benchmarks.worker_process import WorkerError
from tests.gpu_check import beside, comparisons
from tests.gpu_check.check import ORDER, carry_out, put_away, why_no_pool
from tests.gpu_check.comparisons import FRAMEWORKS, PROGRAMS, Program
from tests.gpu_check.parking import PARTS
from tests.gpu_check.programs_run import Found, ratios, run, same
from tests.gpu_check.report import Report, lines
from tests.gpu_check.time_left import NO_TIME, LeftOut, TimeLeft
from tests.gpu_check.ways import end_all, wait_for_node
from tests.support.gpu_check_ways import ReadyWay, bench_of


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


@pytest.fixture
def report(tmp_path: Path) -> Report:
    return Report(tmp_path / "report.json", {"commit": "a"})


def parts_in(folder: Path) -> Found:
    found: Found = json.loads((folder / "report.json").read_text())["parts"]
    return found


def nothing_kept(_name: str) -> list[str]:
    return []


class TestParts:
    def test_every_program_is_one(self) -> None:
        there = {path.stem for path in comparisons.HERE.glob("*/*.py")} - {"models", "beside"}
        named = {program.name for program in (*PROGRAMS, *FRAMEWORKS)}
        assert there == named
        of_their_own = {"beside", *beside.PARTS, "long_kernels"}
        assert {*named, *of_their_own, *(f"parking.{name}" for name in PARTS)} == {*ORDER}
        assert len(ORDER) == len({*ORDER})

    def test_one_that_cannot_begin_hides_no_other(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: Report
    ) -> None:
        (tmp_path / "programs").mkdir()
        for name in ("one", "two"):
            (tmp_path / "programs" / f"{name}.py").write_text("print('{\"result\": 1}')\n")
        monkeypatch.setattr(comparisons, "HERE", tmp_path)
        bench = bench_of(ReadyWay(KeyError("port")), tmp_path)
        needs: dict[str, tuple[str, ...]] = {"one": (), "two": (), "three": ("no_such.package",)}
        failed: list[str] = []

        def put(name: str) -> list[str]:
            failed.append(name)
            return ["worker.log"]

        def part(name: str) -> Callable[[], Found]:
            return lambda: comparisons.compare(Program(name, needs[name]), bench)

        carry_out({name: part(name) for name in needs}, report, bench.time, put)
        found = parts_in(tmp_path)
        assert not found["one"]["ok"]
        assert found["one"]["said"] == "KeyError: 'port'"
        assert found["one"]["logs"] == ["worker.log"]
        assert found["two"]["same"]
        assert found["three"]["left_out"] == "this Python has no no_such.package"
        assert report.failed == failed == ["one"]

    def test_none_begins_when_a_second_is_left(self, tmp_path: Path, report: Report) -> None:
        def begins() -> Found:
            raise AssertionError("it begins")

        carry_out({"one": begins}, report, TimeLeft(1.0), nothing_kept)
        assert parts_in(tmp_path) == {"one": {"left_out": NO_TIME}}
        assert report.failed == []

    def test_one_that_the_end_of_the_time_has_ended_is_no_failure(
        self, tmp_path: Path, report: Report, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tests.gpu_check.check.LEAST", 0.0)
        left = TimeLeft(0.1)

        def late() -> Found:
            while left.left() > 0:
                time.sleep(0.01)
            return {"ok": False, "said": "not done"}

        carry_out({"one": late}, report, left, nothing_kept)
        assert parts_in(tmp_path)["one"]["left_out"] == NO_TIME
        with pytest.raises(LeftOut):
            left.of(5.0)

    def test_both_sides_compile_into_folders_of_their_own(self, tmp_path: Path) -> None:
        local, remote = comparisons.caches(tmp_path / "local"), comparisons.caches(tmp_path / "remote")
        assert len({*local.values(), *remote.values()}) == 2 * len(local) == 10


class TestTheReport:
    def test_keeps_the_parts_of_earlier_runs_of_the_same(self, tmp_path: Path) -> None:
        Report(tmp_path / "report.json", {"commit": "a"}).record("one", {"ok": True})
        Report(tmp_path / "report.json", {"commit": "a"}).record("two", {"left_out": "no MPS"})
        assert set(parts_in(tmp_path)) == {"one", "two"}
        Report(tmp_path / "report.json", {"commit": "b"}).record("three", {"ok": False})
        assert set(parts_in(tmp_path)) == {"three"}

    def test_shows_both_results_of_a_difference(self) -> None:
        part: Found = {"ok": False, "same": False, "limit": "", "ratios": {}}
        part |= {"local": {"result": 1, "seconds": 1}, "remote": {"error": "it ended", "seconds": 2}}
        said = "\n".join(lines("one", part))
        assert "FAILED" in said
        assert "it ended" in said
        assert '"local": 1' in said

    def test_names_what_failed_on_both_sides(self) -> None:
        side: Found = {"result": {}, "problems": {"LSTM": "RuntimeError: no"}, "seconds": 1}
        part: Found = {"ok": True, "same": True, "limit": "", "ratios": {}, "local": side, "remote": side}
        said = list(lines("layers", part))
        assert sum("LSTM" in line and "RuntimeError: no" in line for line in said) == 2

    def test_says_of_what_is_only_a_report_that_it_is_one(self) -> None:
        (rates,) = [program for program in FRAMEWORKS if program.name == "rates"]
        part: Found = {"ok": True, "same": True, "limit": "", "note": rates.note, "ratios": {"steps/s": 0.2}}
        side: Found = {"result": [], "seconds": 1}
        (said,) = lines("rates", part | {"local": side, "remote": side})
        assert "a report, right at any ratio: local 1 s" in said
        assert "steps/s x0.2" in said

    def test_logs_are_kept_when_homes_go(self, tmp_path: Path) -> None:
        homes = tmp_path / "homes"
        (homes / "pool1" / "workers").mkdir(parents=True)
        (homes / "pool1" / "workers" / "worker.log").write_text("the driver said no")
        way = ReadyWay()
        kept = put_away(way, homes, tmp_path / "logs" / "one")
        assert [Path(path).read_text() for path in kept] == ["the driver said no"]
        assert way.stops == 1
        assert not homes.exists()


def test_a_pool_that_cannot_be_imported_says_why(tmp_path: Path) -> None:
    (tmp_path / "grpc_health").mkdir()
    (tmp_path / "grpc_health" / "__init__.py").write_text("raise ImportError('no wheel of it')\n")
    path = os.pathsep.join((str(tmp_path), *(entry for entry in sys.path if entry)))
    assert "no wheel of it" in why_no_pool({**os.environ, "PYTHONPATH": path}, 600.0)
    assert why_no_pool(os.environ, 0.0)


class TestWaitingForTheNode:
    @staticmethod
    def pool(folder: Path, nodes: str) -> list[str]:
        """A `gpupool` whose nodes are these."""
        program = folder / "gpupool.py"
        program.write_text(f"import json\nprint(json.dumps({{'nodes': {nodes}}}))\n")
        return [sys.executable, str(program)]

    @pytest.fixture
    def service(self, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
        (tmp_path / "services.log").write_text("the name is not valid\n")
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, process_group=0)
        yield process
        end_all([process])
        assert process.returncode is not None

    @pytest.mark.parametrize("nodes", ["[]", "[{'connected': False}]"])
    def test_none_is_an_error(self, nodes: str, tmp_path: Path, service: subprocess.Popen[bytes]) -> None:
        gpupool = self.pool(tmp_path, nodes)
        with pytest.raises(RuntimeError, match="no node was connected in 1 s"):
            wait_for_node(gpupool, os.environ, [service], tmp_path / "services.log", 1.0)

    def test_one_that_is_connected_is_enough(self, tmp_path: Path, service: subprocess.Popen[bytes]) -> None:
        gpupool = self.pool(tmp_path, "[{'connected': False}, {'connected': True}]")
        wait_for_node(gpupool, os.environ, [service], tmp_path / "services.log", 60.0)

    def test_a_service_that_ended_is_told_with_its_log(
        self, tmp_path: Path, service: subprocess.Popen[bytes]
    ) -> None:
        service.kill()
        service.wait()
        with pytest.raises(RuntimeError, match="ended: the name is not valid"):
            wait_for_node(self.pool(tmp_path, "[]"), os.environ, [service], tmp_path / "services.log", 600.0)
