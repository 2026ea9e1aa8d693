"""``gpupool pool simulate``: other devices, quotas and projects change what happens as they would in the pool itself."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from gpupool.cli.main import app
from gpupool.ledger.ledger import Ledger
from gpupool.model import events
from gpupool.model.clock import Clock
from gpupool.pool.lifecycle.shell import PoolShell
from gpupool.simulation import replay_trace
from gpupool.simulation.replay_history import read_history
from gpupool.simulation.replay_run import replay_timers
from gpupool.simulation.replay_trace import BadTraceError
from typer.testing import CliRunner

from benchmarks import replay, replay_plot
from tests.support.pool_world import offered

ASKS = (
    "at,user,project,share,count,seconds",
    "0,ann,research,1,1,3600",
    "10,ann,research,1,1,3600",
    "20,bob,teaching,1,1,600",
)


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    path = tmp_path / "requests.csv"
    path.write_text("\n".join(ASKS) + "\n")
    return path


def simulated(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["pool", "simulate", *arguments, "--json"])
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout))


def test_more_devices_shorten_the_wait(requests: Path) -> None:
    two, three = (simulated(str(requests), "--devices", number) for number in ("2", "3"))
    assert three["wait_longest_s"] == 0
    assert two["wait_longest_s"] > 0
    assert three["allocated_gpus"] == pytest.approx(two["allocated_gpus"]) == pytest.approx(1.5)


def test_a_project_gets_what_it_deserves_after_the_notice_and_whoever_gave_way_goes_on_later(
    requests: Path,
) -> None:
    figures = simulated(str(requests), "--devices", "2", "--project", "research=1", "--project", "teaching=1")
    # bob is entitled to a device: ann's second one is 10 s old, and safe for a minute; then it has 30 s.
    assert 0 < figures["groups"]["teaching"]["wait_longest_s"] <= 150
    assert figures["groups"]["research"]["taken_back"] == 1
    assert figures["refused"] == {}
    protected = simulated(
        str(requests), "--devices", "2", "--project", "research=2", "--project", "teaching=0"
    )
    assert protected["groups"]["teaching"]["wait_longest_s"] > 3000
    assert protected["groups"]["research"]["taken_back"] == 0


def test_who_computes_moves_for_a_request_that_fits_nowhere_only_if_any_may(tmp_path: Path) -> None:
    file = tmp_path / "requests.csv"
    # After 100 s two devices have 0.3 taken each, and a whole one is asked.
    rows = ["0,0.7,100", "0,0.7,100", "1,0.3,4000", "1,0.3,4000", "200,1,600"]
    file.write_text("\n".join(("at,share,seconds", *rows)) + "\n")
    longest = {}
    for choice in ("idle", "any", "off"):
        figures = simulated(
            str(file), "--devices", "2", "--policy", "spread", "--device-memory", "8", "--consolidate", choice
        )
        longest[choice] = (round(figures["wait_longest_s"], -2), figures["consolidate"])
    assert longest == {"idle": (3800, "idle"), "any": (0, "any"), "off": (3800, "off")}


def test_a_quota_makes_its_users_wait_and_a_limit_of_a_project_too(requests: Path) -> None:
    quota = simulated(str(requests), "--devices", "3", "--quota", "ann=1")
    assert quota["groups"]["research"]["wait_longest_s"] == 3590
    assert quota["groups"]["teaching"]["wait_longest_s"] == 0
    limit = simulated(
        str(requests), "--devices", "3", "--project", "research=1,limit=1", "--project", "teaching=1"
    )
    assert limit["groups"]["research"]["wait_longest_s"] == 3590


def test_who_asks_for_more_than_a_quota_is_refused_with_the_numbers(requests: Path) -> None:
    figures = simulated(str(requests), "--devices", "3", "--quota", "*=0.5")
    assert figures["refused"] == {"quota": 3}
    assert "0.50" in figures["explanations"]["quota"]


def test_patience_ends_a_wait(requests: Path) -> None:
    figures = simulated(str(requests), "--devices", "1", "--patience", "5m", "--quota", "nobody=1")
    assert figures["refused"] == {"timeout": 2}


def test_the_report_names_every_project(requests: Path) -> None:
    done = CliRunner().invoke(app, ["pool", "simulate", str(requests), "--devices", "2"])
    assert done.exit_code == 0
    assert "3 requests within 20 s on 2 devices of 1 nodes" in done.stdout
    assert "projects made for this: research, teaching" in done.stdout


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--project", "research"),
        ("--project", "re search=1"),
        ("--project", "research=1,colour=2"),
        ("--project", "research=1,weight=2,weight=3"),
        ("--project", "research=lots"),
        ("--quota", "alice"),
        ("--quota", "alice=-1"),
        ("--patience", "soon"),
        ("--policy", "fair"),
        ("--devices", "0"),
    ],
)
def test_wrong_options_are_named(requests: Path, option: str, value: str) -> None:
    done = CliRunner().invoke(app, ["pool", "simulate", str(requests), option, value])
    assert done.exit_code == 2, done.output


def test_a_file_that_is_missing_or_no_trace_is_one_sentence(tmp_path: Path) -> None:
    missing = CliRunner().invoke(app, ["pool", "simulate", str(tmp_path / "none.csv")])
    assert missing.exit_code == 1
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    done = CliRunner().invoke(app, ["pool", "simulate", str(empty)])
    assert done.exit_code == 1
    assert isinstance(done.exception, SystemExit)


def past_of_a_pool(path: Path) -> None:
    """A ledger in which ann held two devices for 100 s, and bob waited 60 s for half a device and still holds it."""
    with Ledger(path, Clock.start()) as ledger:
        shell = PoolShell(ledger, Clock.start(), replay_timers())
        now = shell.clock.now()
        connection, _ = shell.open_stream("node1")

        def asked(at: float, user: str, milli: int, count: int) -> None:
            shell.apply(events.Requested(now + at, user, f"{user}-1", milli, None, count, wait=None))

        def started(at: float, user: str) -> str:
            lease = next(lease for lease in shell.state.leases.values() if lease.user == user)
            session = lease.session_id
            shell.apply(events.WorkerStarted(now + at, "node1", connection, session, 1, "node1:1"))
            return lease.id

        shell.apply(events.NodeHello(now, "node1", connection, "run-1", (offered(0), offered(1))))
        asked(0, "ann", 1000, 2)
        lease = started(0, "ann")
        session = shell.state.leases[lease].session_id
        asked(40, "bob", 500, 1)
        shell.apply(events.Renewed(now + 99, (lease,)))
        shell.apply(events.Released(now + 100, lease, "exit", close_session=True))
        shell.apply(events.WorkerExited(now + 100, "node1", connection, session, 0, ""))
        started(100, "bob")
        bobs = next(lease for lease in shell.state.leases.values() if lease.user == "bob")
        shell.apply(events.Released(now + 130, bobs.id, "exit", close_session=True))
        shell.apply(events.WorkerExited(now + 130, "node1", connection, bobs.session_id, 0, ""))


def test_the_past_of_a_pool_is_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "pool.sqlite"
    past_of_a_pool(path)
    past = read_history(path)
    rows = [(t.user, round(t.at), round(t.seconds), t.milli, t.count) for t in past.trace.tasks]
    assert rows == [("ann", 0, 100, 1000, 2), ("bob", 40, 30, 500, 1)]
    assert [(node.name, len(node.devices)) for node in past.nodes] == [("node1", 2)]
    assert past.still_held == 0
    # As it was, then with a device more.
    assert simulated(str(path))["groups"]["default"]["wait_longest_s"] == pytest.approx(60, abs=1)
    assert simulated(str(path), "--devices", "3")["wait_longest_s"] == 0


def test_a_ledger_in_which_nobody_has_held_anything_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pool.sqlite"
    Ledger(path, Clock.start()).close()
    with pytest.raises(BadTraceError, match="nobody has held a share yet"):
        read_history(path)


def test_the_picture_is_drawn_from_the_figures(
    requests: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = replay.measure([1, 2], pods=requests, series=True)
    source = tmp_path / "figures.json"
    source.write_text(json.dumps(figures))
    assert replay_plot.main([str(source)]) == 0
    picture = ElementTree.fromstring(capsys.readouterr().out)
    texts = [element.text or "" for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert any(text.startswith("1 devices") for text in texts)
    colours = {element.get("stroke") for element in picture.iter("{http://www.w3.org/2000/svg}polyline")}
    assert {"#1f77b4", "#e08214"} <= colours
    assert replay_trace.read(requests).end == 20


def test_labels_of_pools_beside_each_other_do_not_overlap() -> None:
    runs = [
        {"devices": devices, "mode": "shares", "waited_percent": 50.0, "quantiles": [(90, 60)],
         "series": {"devices_in_use": [1.0] * 24, "begin_s": 0}}
        for devices in (32, 36, 40, 48)
    ]  # fmt: skip
    picture = ElementTree.fromstring(replay_plot.picture(runs))
    lines: dict[float, list[tuple[float, float, str]]] = {}
    for text in picture.iter("{http://www.w3.org/2000/svg}text"):
        # As wide as most letters are, at least.
        width = len(text.text or "") * 0.55 * float(text.get("font-size", 12))
        left = (
            float(text.get("x", 0))
            - {"start": 0.0, "middle": 0.5, "end": 1.0}[text.get("text-anchor", "")] * width
        )
        lines.setdefault(float(text.get("y", 0)), []).append((left, left + width, text.text or ""))
    for texts in lines.values():
        for (_, end, first), (begin, _, second) in itertools.pairwise(sorted(texts)):
            assert end <= begin, f"{first!r} overlaps {second!r}"
