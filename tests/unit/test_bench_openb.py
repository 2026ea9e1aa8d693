"""``gpupool bench openb``: the published results of other policies come out, ours is better, and every file is checked."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from gpupool.cli.main import app
from gpupool.scheduler.placement import POLICIES, Cluster, Demand, DeviceSpec, NodeSpec, policy_named
from typer.testing import CliRunner

from benchmarks import openb, openb_trace
from benchmarks.openb_bound import bound_percent

#: One order of arrivals lies so far beside the ten published ones at most, in percent.
ONE_SEED = 0.35
PUBLISHED = {
    "random": "01-Random",
    "dot_product": "02-DotProd",
    "gpu_packing": "04-GpuPacking",
    "best_fit": "05-BestFit",
    "fgd": "06-FGD",
}


def trace() -> Path:
    try:
        return openb_trace.folder()
    except openb_trace.NoTraceError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("policy", PUBLISHED)
def test_a_policy_from_the_literature_fills_as_much_as_its_authors_published(policy: str) -> None:
    with (trace() / "expected_allocation_default.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["sc_policy"] == PUBLISHED[policy]]
    published = [float(row["alloc_at_130"]) for row in rows]
    figures = openb.measure(policy, seeds=[44], node_order=44)
    assert min(published) - ONE_SEED <= figures["allocation_percent"] <= max(published) + ONE_SEED


def test_the_default_policy_fills_more_than_any_of_them_and_moves_nothing() -> None:
    trace()
    figures = openb.measure(seeds=[44])
    assert figures["policy"] == "shadow_price"
    assert openb.ALLOCATION <= figures["allocation_percent"] <= figures["bound_percent"]
    assert figures["moved_percent"] == 0
    assert set(figures["per_seed"]) == {"44"}
    assert "missed" not in openb.report(figures | {"decisions_per_s": 10_000.0, "p99_ms": 1.0})


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, Path]:
    """Four devices, and tasks that are worth 3.2 of them."""
    nodes = ["sn,cpu_milli,memory_mib,gpu,model", "n1,16000,65536,2,T4", "n0,16000,65536,2,A10"]
    pods = [
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec",
        "p1,1000,1024,1,600,",
        "p2,1000,1024,1,600,A10|T4",
    ]
    pods += ["p3,1000,1024,2,1000,A10", "p4,4000,1024,0,0,"]
    return write(tmp_path / "nodes.csv", nodes), write(tmp_path / "pods.csv", pods)


def test_other_traces_can_be_named(small: tuple[Path, Path]) -> None:
    arguments = ["bench", "openb", "--json", "--seeds", "1,3-4", "--policy", "best_fit", "--through-pool"]
    done = CliRunner().invoke(app, [*arguments, "--nodes", str(small[0]), "--pods", str(small[1])])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert set(figures["per_seed"]) == {"1", "3", "4"}
    keys = {
        "allocation_percent",
        "decisions_per_s",
        "p99_ms",
        "bound_percent",
        "distance_percent",
        "moved_percent",
    }
    assert keys <= set(figures)
    assert (figures["nodes"], figures["devices"]) == (2, 4)
    pool = figures["pool"]
    assert pool["granted"] > 0
    assert 0 < pool["granted_p99_ms"] <= pool["granted_longest_ms"]
    assert 60 <= pool["allocation_percent"] <= 100


def test_demands_are_read_with_models_and_without_devices(small: tuple[Path, Path]) -> None:
    either, a10 = frozenset({"A10", "T4"}), frozenset({"A10"})
    assert openb_trace.read_pods(small[1])[1:] == [
        Demand(600, cpu_milli=1000, memory_mib=1024, models=either),
        Demand(1000, count=2, cpu_milli=1000, memory_mib=1024, models=a10),
        Demand(count=0, cpu_milli=4000, memory_mib=1024),
    ]


def test_arrivals_repeat_themselves_and_end_below_130_percent() -> None:
    pods = [Demand(470), Demand(1000, count=2), Demand(count=0)]
    first = openb_trace.arrivals(pods, 40_000, 5)
    assert first == openb_trace.arrivals(pods, 40_000, 5)
    assert sorted(first[:3], key=pods.index) == pods
    assert 48_000 < sum(demand.total_milli for demand in first) <= 53_000


def test_another_order_of_nodes_has_the_same_nodes(small: tuple[Path, Path]) -> None:
    plain, shuffled = openb_trace.read_nodes(small[0]), openb_trace.read_nodes(small[0], order=2)
    assert [node.id for node in plain] == ["000000-n1", "000001-n0"]
    assert {(node.id[7:], node.devices) for node in plain} == {
        (node.id[7:], node.devices) for node in shuffled
    }


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (["sn,cpu_milli,memory_mib,gpu"], "has no column model"),
        (["sn,cpu_milli,memory_mib,gpu,model"], "lists no nodes"),
        (["sn,cpu_milli,memory_mib,gpu,model", "n,1,1,-2,T4"], "gpu is '-2', not a whole number"),
        (["sn,cpu_milli,memory_mib,gpu,model", "n,,1,1,T4"], "cpu_milli is '', not a whole number"),
        (["sn,cpu_milli,memory_mib,gpu,model", "n"], "gpu is None, not a whole number"),
    ],
)
def test_a_file_that_is_no_list_of_nodes_is_refused_in_a_sentence(
    tmp_path: Path, lines: list[str], complaint: str
) -> None:
    with pytest.raises(openb_trace.NoTraceError, match=complaint):
        openb_trace.read_nodes(write(tmp_path / "nodes.csv", lines))


def test_a_task_that_asks_for_more_than_a_device_is_refused_in_a_sentence(tmp_path: Path) -> None:
    lines = ["name,cpu_milli,memory_mib,num_gpu,gpu_milli", "p1,0,0,1,1001"]
    with pytest.raises(openb_trace.NoTraceError, match=r"p1: 1001 milli-GPU is not within 1\.\.1000"):
        openb_trace.read_pods(write(tmp_path / "pods.csv", lines))


@pytest.mark.parametrize("seeds", ["", "x", "5-", "9-8", "0-1000"])
def test_seeds_that_are_no_numbers_are_refused(seeds: str) -> None:
    done = CliRunner().invoke(app, ["bench", "openb", "--seeds", seeds])
    assert done.exit_code == 2


def test_help_names_every_policy() -> None:
    text = " ".join(
        CliRunner().invoke(app, ["bench", "openb", "--help"], env={"COLUMNS": "400"}).output.split()
    )
    assert ", ".join(POLICIES) in text


def test_a_folder_without_the_trace_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(openb_trace.FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(openb_trace.NoTraceError, match=f"no openb trace in {tmp_path}"):
        openb_trace.folder()


def test_the_bound_admits_what_fits_once_all_shares_are_packed_anew() -> None:
    # 600 and 400 share a device whichever came first; a second 600 beside the whole device has no room.
    demands = [
        Demand(600),
        Demand(400),
        Demand(1000),
        Demand(600),
        Demand(400),
        Demand(count=0, cpu_milli=1),
    ]
    assert bound_percent(demands, 2) == pytest.approx(100.0)
    assert bound_percent([Demand(810), Demand(810), Demand(160), Demand(500)], 2) == pytest.approx(89.0)


def test_moves_are_counted_and_kept_within_what_is_allowed() -> None:
    # Spread out, they leave 300, 500 and 600. The 400 can go to the 500, and the last has a device.
    demands = [Demand(700), Demand(500), Demand(400), Demand(700)]
    cluster = Cluster(
        [NodeSpec("a", (DeviceSpec(),)), NodeSpec("b", (DeviceSpec(),)), NodeSpec("c", (DeviceSpec(),))]
    )
    still = openb.run(cluster, policy_named("spread"), demands)
    assert (still.allocated, still.moved) == (pytest.approx(100 * 1600 / 3000), 0)
    for percent, moved in ((100.0, 1), (20.0, 0)):
        cluster = Cluster(cluster.nodes)
        done = openb.run(cluster, policy_named("spread"), demands, percent)
        assert done.moved == moved
        assert done.allocated == pytest.approx(100 * (1600 + 700 * moved) / 3000)
