"""``gpupool bench replay``: waits and occupancy are those that one works out by hand, and every file is checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpupool.cli.main import app
from gpupool.simulation import replay_figures, replay_trace
from gpupool.simulation.replay_meter import Meter
from gpupool.simulation.replay_nodes import nodes_of
from gpupool.simulation.replay_run import Replay, Rules
from gpupool.simulation.replay_trace import BadTraceError, Task
from hypothesis import given, settings
from hypothesis import strategies as some
from typer.testing import CliRunner

from benchmarks import replay

OPENB = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def replayed(tasks: list[Task], devices: int = 1, rules: Rules | None = None, end: float = 400.0) -> Replay:
    done = Replay(nodes_of(devices, 8, 16384), tasks, rules or Rules(), Meter(0.0, end, bin_seconds=100.0))
    done.run()
    return done


def test_a_task_waits_until_the_one_before_it_is_done() -> None:
    done = replayed([Task("a", 0, 100, 600), Task("b", 10, 100, 600), Task("c", 20, 50, 400)])
    waited = {fate.task.name: fate.waited for fate in done.fates}
    # c fits beside a, but b is before it and keeps what is free of the only device.
    assert waited == {"a": 0.0, "b": 90.0, "c": 80.0}


def test_a_moment_that_rounding_puts_before_the_next_look_does_not_stop_the_time() -> None:
    begun = 130851.83256443981
    assert (begun + 600.0) - begun < 600.0
    done = replayed([Task("a", begun, 5000, 1000), Task("b", begun, 5, 1000)], rules=Rules(tick=600.0))
    assert [fate.waited for fate in done.fates] == [0.0, pytest.approx(5000.0)]


def test_parts_of_a_device_run_beside_each_other_and_whole_devices_do_not() -> None:
    tasks = [Task("a", 0, 100, 500), Task("b", 0, 100, 500)]
    assert [fate.waited for fate in replayed(tasks).fates] == [0.0, 0.0]
    assert [fate.waited for fate in replayed([task.as_whole() for task in tasks]).fates] == [0.0, 100.0]


def test_occupancy_is_the_area_under_what_is_held() -> None:
    done = replayed(
        [Task("a", 0, 100, 600), Task("b", 50, 100, 300), Task("c", 300, 500, 1000, count=2)], devices=2
    )
    figures = replay_figures.occupancy(done.meter, 2)
    # 600 for 100 s, 300 for 100 s; two whole devices are begun at 300, when nobody waits any more: the replay ends.
    assert figures["allocated_gpus"] == pytest.approx((600 * 100 + 300 * 100) / 1000 / 400)
    assert figures["devices_in_use"] == pytest.approx(150 / 400)


def test_of_a_gang_all_devices_count() -> None:
    tasks = [Task("a", 0, 100, 1000, count=2), Task("b", 0, 100, 1000, count=2), Task("c", 350, 1, 1000)]
    done = replayed(tasks, devices=2)
    assert [fate.waited for fate in done.fates] == [0.0, 100.0, 0.0]
    assert done.meter.mean_devices() == pytest.approx(2 * 200 / 400)


def test_who_will_not_wait_for_ever_is_counted_as_refused() -> None:
    tasks = [Task("a", 0, 1000, 1000), Task("b", 10, 1000, 1000)]
    done = replayed(tasks, rules=Rules(patience=60.0))
    assert [fate.refused for fate in done.fates] == ["", "timeout"]
    assert replay_figures.waits(done.fates)["refused"] == {"timeout": 1}


@settings(max_examples=25, deadline=None)
@given(
    some.lists(
        some.tuples(
            some.integers(0, 300), some.integers(0, 200), some.sampled_from([100, 250, 500, 810, 1000]), some.integers(1, 2)
        ),
        min_size=1,
        max_size=12,
    )
)  # fmt: skip
def test_everybody_gets_a_turn_nothing_is_held_twice_and_a_replay_repeats(
    rows: list[tuple[int, int, int, int]],
) -> None:
    tasks = [
        Task(f"t{number}", at, seconds, milli, count)
        for number, (at, seconds, milli, count) in enumerate(sorted(rows))
    ]
    first, second = (replayed(tasks, devices=2, end=10_000.0) for _ in range(2))
    assert [fate.waited for fate in first.fates] == [fate.waited for fate in second.fates]
    assert all(fate.waited is not None and fate.waited >= 0 for fate in first.fates)
    assert all(held[0] <= 2000 * 100 + 1e-6 and held[1] <= 2 * 100 + 1e-6 for held in first.meter.bins)
    lengths = sum(task.seconds * (task.milli or 0) * task.count for task in tasks)
    assert sum(held[0] for held in first.meter.bins) <= lengths + 1e-6


def test_the_demand_is_what_would_be_held_if_nobody_waited() -> None:
    tasks = [Task("a", 0, 100, 500), Task("b", 50, 100, 1000, count=2)]
    assert replay_figures.demand(tasks, 0, 200, whole=False) == pytest.approx((50 + 200) / 200)
    assert replay_figures.demand(tasks, 0, 200, whole=True) == pytest.approx((100 + 200) / 200)


def test_percentiles_are_values_that_occurred() -> None:
    assert replay_figures.percentile([1, 2, 3, 4], 50) == 2
    assert replay_figures.percentile([1, 2, 3, 4], 51) == 3
    assert replay_figures.percentile([1, 2, 3, 4], 100) == 4
    assert replay_figures.percentile([7], 0) == 7
    assert replay_figures.percentile([], 99) == 0


def test_of_the_openb_trace_those_tasks_are_left_out_that_say_nothing_about_a_pool(tmp_path: Path) -> None:
    file = write(
        tmp_path / "pods.csv",
        OPENB,
        "one,1000,0,1,460,,LS,Running,100,400,110",
        "cpu,1000,0,0,0,,LS,Running,100,400,110",
        "never,1000,0,1,1000,,BE,Pending,100,400,",
        "two,1000,0,2,1000,,BE,Succeeded,50,80,60",
    )
    trace = replay_trace.read(file)
    assert [(t.name, t.at, t.seconds, t.milli, t.count, t.user) for t in trace.tasks] == [
        ("two", 50, 20, 1000, 2, "be"),
        ("one", 100, 290, 460, 1, "ls"),
    ]
    assert trace.left_out == {"without a GPU": 1, "never ran": 1}
    assert (
        replay_trace.fitting(trace, largest_node=1, devices=4).left_out["more than 1 devices on a node"] == 1
    )


def test_a_trace_of_ones_own_needs_three_columns(tmp_path: Path) -> None:
    file = write(tmp_path / "my.csv", "at,share,seconds,user,count", "5,20%,60,ann,", "0,2GiB,10,,2")
    tasks = replay_trace.read(file).tasks
    assert [(t.at, t.milli, t.mib, t.count, t.user) for t in tasks] == [
        (0, None, 2048, 2, "user"),
        (5, 200, None, 1, "ann"),
    ]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("x,0.5,60", "line 2: at is 'x'"),
        ("0,1.5,60", "'1.5' is more than one whole GPU"),
        ("0,0.5,-1", "seconds is '-1'"),
        ("0,0.5,nan", "seconds is 'nan'"),
        ("0,0.5,", "seconds is ''"),
        ("0,,1", "is not a share"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, says: str) -> None:
    file = write(tmp_path / "my.csv", "at,share,seconds", line)
    with pytest.raises(BadTraceError, match=says.replace("(", "\\(")):
        replay_trace.read(file)


def test_a_file_that_is_no_trace_is_refused_with_its_columns(tmp_path: Path) -> None:
    with pytest.raises(BadTraceError, match="has the columns a, b; a trace has at, share, seconds"):
        replay_trace.read(write(tmp_path / "x.csv", "a,b", "1,2"))
    with pytest.raises(BadTraceError, match="lists no task"):
        replay_trace.read(write(tmp_path / "y.csv", "at,share,seconds"))


def test_the_command_prints_figures_for_each_size_and_mode(tmp_path: Path) -> None:
    file = write(
        tmp_path / "my.csv", "at,share,seconds", *(f"{number},0.5,50" for number in range(0, 100, 10))
    )
    arguments = ["bench", "replay", "--devices", "1,2", "--pods", str(file), "--json", "--series"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert [(row["devices"], row["mode"]) for row in figures["runs"]] == [
        (1, "shares"), (1, "whole"), (2, "shares"), (2, "whole")
    ]  # fmt: skip
    by = {(row["devices"], row["mode"]): row for row in figures["runs"]}
    assert by[1, "whole"]["wait_longest_s"] == 360
    assert by[1, "shares"]["wait_longest_s"] < by[1, "whole"]["wait_longest_s"]
    assert by[2, "shares"]["wait_longest_s"] <= by[1, "shares"]["wait_longest_s"]
    assert by[1, "whole"]["quantiles"][-1] == [100, 360]
    assert figures["asked_gpus"]["whole"] == 2 * figures["asked_gpus"]["shares"]
    text = replay.report(figures)
    assert "6.0 min" in text


@pytest.mark.parametrize("wrong", [["--mode", "halves"], ["--devices", "0"], ["--devices", "many"]])
def test_wrong_options_are_named(wrong: list[str]) -> None:
    done = CliRunner().invoke(app, ["bench", "replay", *wrong])
    assert done.exit_code == 2
    assert wrong[1] in done.output
