"""`gpupool pool simulate --borrow`: nodes come when somebody needs them, and go when nobody does, in virtual time."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from gpupool.cli.main import app
from gpupool.simulation.replay_growth import Elastic
from gpupool.simulation.replay_meter import Meter
from gpupool.simulation.replay_nodes import nodes_of
from gpupool.simulation.replay_run import Replay, Rules
from gpupool.simulation.replay_trace import Task
from typer.testing import CliRunner

from benchmarks.elasticity import Month, measure, report, tasks_of
from benchmarks.elasticity_plot import picture

LENT = Elastic(maximum=3, devices=1, mib=16384, idle=600.0, start=120.0, look=30.0)


def replayed(tasks: list[Task], own: int = 0, elastic: Elastic = LENT) -> Replay:
    meter = Meter(0.0, tasks[-1].at + 1.0, bin_seconds=100.0)
    done = Replay(nodes_of(own, 8, 16384), tasks, Rules(elastic=elastic), meter)
    done.run()
    return done


def asked(done: Replay) -> int:
    assert done.growth is not None
    return done.growth.asked


def waited(done: Replay) -> dict[str, float | None]:
    return {fate.task.name: fate.waited for fate in done.fates}


def test_who_finds_nothing_waits_for_a_node_and_shares_it() -> None:
    done = replayed([Task("a", 0, 100, 500), Task("b", 10, 100, 500)])
    # Seen at the look after 30 s, there 120 s later.
    assert waited(done) == {"a": 150.0, "b": 140.0}
    assert asked(done) == 1


def test_never_more_nodes_than_may_be_borrowed() -> None:
    done = replayed([Task(f"t{number}", 0, 50, 1000) for number in range(5)])
    assert asked(done) == 3
    assert sorted(waited(done).values()) == [150.0, 150.0, 150.0, 200.0, 200.0]


def test_own_nodes_come_first() -> None:
    done = replayed([Task("a", 0, 100, 1000), Task("b", 0, 100, 1000)], own=1)
    assert waited(done) == {"a": 0.0, "b": 100.0}


def test_a_node_that_nobody_needs_goes_back_and_another_comes() -> None:
    done = replayed([Task("a", 0, 100, 500), Task("b", 5000, 100, 500), Task("c", 9000, 1, 500)])
    assert asked(done) == 3
    assert done.growth is not None and len(done.machine.state.nodes) <= 1
    # Each from the look at 30 s until 250 s + 600 s of idleness, seen and then given back at later looks.
    for_each = (250 + 600 - 30) / 3600
    assert 2 * for_each <= done.meter.borrowed_hours() <= 2 * for_each + 0.2


def test_a_longer_patience_of_nodes_saves_waiting_and_costs_hours() -> None:
    tasks = [Task(f"t{number}", 2000.0 * number, 100, 500) for number in range(6)]
    short = replayed(tasks)
    long = replayed(tasks, elastic=Elastic(3, 1, 16384, idle=3000.0))
    assert asked(short) == 6 and asked(long) == 1
    assert list(waited(long).values()) == [150.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert long.meter.borrowed_hours() > 1.5 * short.meter.borrowed_hours()


def test_what_a_borrowed_node_cannot_serve_is_refused() -> None:
    done = replayed([Task("a", 0, 100, None, mib=20000), Task("b", 0, 1, 100)])
    assert [fate.refused for fate in done.fates] == ["bad-share", ""]


@pytest.mark.parametrize(("own", "elastic"), [(0, Elastic(2, 8, 16384)), (12, None)])
def test_without_words_the_same_is_decided(own: int, elastic: Elastic | None) -> None:
    tasks = tasks_of(Month(16, 0.75))

    def fates(says: bool) -> list[tuple[float | None, str, str]]:
        meter = Meter(0.0, tasks[-1].at + 1.0)
        done = Replay(nodes_of(own, 8, 16384), tasks, Rules(elastic=elastic, says=says), meter)
        done.run()
        return [(fate.waited, fate.session_id, fate.lease_id) for fate in done.fates]

    silent = fates(says=False)
    assert any(waited for waited, *_ in silent)
    assert silent == fates(says=True)


class TestTheCommand:
    @pytest.fixture
    def requests(self, tmp_path: Path) -> Path:
        path = tmp_path / "requests.csv"
        path.write_text("at,share,seconds\n0,0.5,600\n100,0.5,600\n7200,0.5,60\n")
        return path

    def test_says_what_was_borrowed(self, requests: Path) -> None:
        done = CliRunner().invoke(
            app, ["pool", "simulate", str(requests), "--borrow", "2", "--per-node", "1", "--json"]
        )
        assert done.exit_code == 0, done.output
        figures = json.loads(done.stdout)
        assert (figures["devices"], figures["borrowed_nodes"], figures["own_device_hours"]) == (2, 2, 0.0)
        assert 0.3 < figures["borrowed_device_hours"] < 0.6

    def test_for_people(self, requests: Path) -> None:
        done = CliRunner().invoke(
            app, ["pool", "simulate", str(requests), "--borrow", "2", "--per-node", "1"]
        )
        assert "on 2 nodes" in done.stdout

    def test_no_devices_at_all_are_refused(self, requests: Path) -> None:
        done = CliRunner().invoke(app, ["pool", "simulate", str(requests), "--devices", "0"])
        assert done.exit_code == 2


class TestTheBench:
    def test_a_month_is_the_same_each_time_and_has_its_rhythm(self) -> None:
        tasks = tasks_of(Month(40, 7.0, 3))
        assert tasks == tasks_of(Month(40, 7.0, 3)) != tasks_of(Month(40, 7.0, 4))
        by_day = Counter(int(task.at // 86400) for task in tasks)
        assert max(by_day[5], by_day[6]) < min(by_day[day] for day in range(5))

    def test_borrowing_is_compared_with_the_pool_that_is_as_good(self) -> None:
        figures = measure(Month(16, 1.0), sizes=(1.0, 0.5), idle=(1200.0,))
        whole, half, lent = figures["runs"]
        assert (whole["device_hours"], half["device_hours"]) == (16 * 24.0, 8 * 24.0)
        assert 0 < lent["device_hours"] < whole["device_hours"]
        assert lent["granted"] == whole["granted"] == figures["requests"]
        assert lent["as_good_as_devices"] in (None, 8, 16)
        assert "device hours" in report(figures)
        assert picture(figures).startswith("<svg")

    def test_several_pools_at_a_time_give_the_same_figures(self) -> None:
        month = Month(16, 0.5)
        one, two = (measure(month, sizes=(1.0,), idle=(1200.0,), jobs=jobs)["runs"] for jobs in (1, 2))
        for run in (*one, *two):
            del run["processor_s"]
        assert one == two
