"""Commands of those who look after a pool, against a real one: shapes of their JSON, what people read, what is refused."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from gpupool.cli.main import app
from typer.testing import CliRunner

from tests.support.pool_node import PoolAndNode

NODE = ("--label", "zone=a", "--node-pool", "fast")


@pytest.fixture(scope="module")
def stack() -> Iterator[PoolAndNode]:
    with PoolAndNode(node_arguments=NODE) as running:
        yield running


@pytest.fixture
def gpupool(stack: PoolAndNode, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a command in this process: a new one for each takes a second."""
    for name in ("GPUPOOL_HOME", "GPUPOOL_NATIVE_DIR"):
        monkeypatch.setenv(name, stack.environment[name])
    monkeypatch.delenv("GPUPOOL_ENDPOINT", raising=False)

    def run(*arguments: str, code: int = 0) -> Any:
        result = CliRunner().invoke(app, list(arguments), prog_name="gpupool")
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        return result

    return run


@pytest.fixture
def lease(stack: PoolAndNode, gpupool: Any) -> Iterator[str]:
    made = gpupool(
        "lease", "request", "-p", "0.3", "--filter", "label.zone=a", "--node-pool", "fast", "--label", "mine"
    )
    name = made.stdout.strip()
    yield name
    gpupool("lease", "release", name)


KEYS = {
    (
        "gpu list",
        "devices",
    ): "busy drained driver free_mib free_milli health_reason healthy id labels movable_mib name node "
    "node_pool ordinal parked_mib shares sharing software total_mib usable_mib used_bytes uuid",
    (
        "lease list",
        "leases",
    ): "ends_unix epoch granted_unix holder id kernel kind label notice priority project protected reason "
    "reservation session_id shares state user work work_seconds",
    (
        "session list",
        "sessions",
    ): "device_ids enforcement holder id isolated label lease_id memory_activity memory_place "
    "move_obstacle node nodes notice park_obstacle project reason state strict usage user",
    (
        "node list",
        "nodes",
    ): "address connected devices drain_reason drained labels leases lost name node_pool "
    "park_memory_free_mib park_memory_mib sharing silent_seconds",
    (
        "project list",
        "projects",
    ): "alerts allocated_milli decayed_gpu_seconds deserved_milli fair_share_milli limit_milli "
    "members min_run_seconds path priority protected_milli real_deserved_milli waiting_milli weight",
    (
        "report usage --from 1h",
        "rows",
    ): "capacity_milli_gpu_ms deserved_milli_gpu_ms from_unix leases mib_ms milli_gpu_ms project to_unix user "
    "waiting_milli_gpu_ms",
    ("health --no-network", "checks"): "detail hint name status",
    ("node logs n1", "lines"): "at_unix level text",
    ("node netperf --seconds 0.05", "nodes"): "address measured node problem",
}
SHAPES = {
    "gpu list": "devices",
    "smi": "devices leases queue sessions",
    "lease list": "leases",
    "session list": "sessions",
    "pool queue": "left_out queue",
    "node list": "nodes",
    "health --no-network": "checks ok version",
    "project list": "capacity_milli projects warnings",
    "quota list": "limits",
    "explain": "answers",
    "node logs n1": "lines node",
    "node netperf --seconds 0.05": "advised nodes",
    "version": "version",
    "pool stats": "cancelled capacity_milli capacity_milli_ms ended free_milli from_unix granted held_mean_seconds "
    "held_milli leases milli_ms oldest_wait_seconds parked_sessions queued refused to_unix wait_longest_seconds "
    "wait_p50_seconds wait_p99_seconds waiting_milli waiting_milli_ms waiting_requests",
    "report usage --from 1h": "by from_unix pool rows to_unix",
}


@pytest.mark.parametrize("command", SHAPES)
def test_json_keeps_its_shape(gpupool: Any, lease: str, command: str) -> None:
    shown = json.loads(gpupool(*command.split(), "--json").stdout)
    assert sorted(shown) == SHAPES[command].split()
    for key, value in shown.items():
        expected = KEYS.get((command, key))
        if expected is not None:
            assert sorted(value[0]) == expected.split(), key


def test_a_nodes_label_pool_and_driver_are_shown(gpupool: Any) -> None:
    (node,) = json.loads(gpupool("node", "list", "--json").stdout)["nodes"]
    assert (node["labels"], node["node_pool"], node["sharing"]) == ({"zone": "a"}, "fast", "isolated")
    device = json.loads(gpupool("gpu", "list", "--json").stdout)["devices"][0]
    assert (device["labels"], device["node_pool"]) == ({"zone": "a"}, "fast")
    for text in ("zone=a", "fast", "ready"):
        assert text in gpupool("node", "list").stdout


def test_health_asks_the_nodes_and_measures_the_network(gpupool: Any) -> None:
    checks = {check["name"]: check for check in json.loads(gpupool("health", "--json").stdout)["checks"]}
    for name in ("ledger", "ledger disk", "nodes", "drained nodes", "devices", "drivers", "clocks", "versions",
                 "disk", "park memory", "MPS", "device health", "address", "version here", "clock here"):  # fmt: skip
        assert checks[name]["status"] in ("ok", "warn"), checks[name]
    assert re.search(r"n1: \d+ µs .*Gbit/s to it", checks["network"]["detail"]), checks["network"]
    assert all(check["hint"] for check in checks.values() if check["status"] != "ok")


def test_a_nodes_log_is_read_from_afar_and_has_no_secret(gpupool: Any, lease: str) -> None:
    text = gpupool("node", "logs", "n1").stdout
    assert "started a worker" in text
    (session,) = [s["id"] for s in json.loads(gpupool("session", "list", "--json").stdout)["sessions"]]
    ours = gpupool("node", "logs", "n1", "--session", session[:8]).stdout
    assert "started a worker" in ours
    assert "room for parked sessions" not in ours
    assert not re.search(r"\b[0-9a-f]{64}\b", text)


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("lease release nope", 1, "no lease 'nope'"),
        ("node logs n9", 1, "no node 'n9'; it knows n1"),
        ("session close nope", 1, "gpupool session list"),
        ("node logs n1 --lines 0", 2, "0"),
        ("node logs n1 --session zzz", 1, "zzz"),
        ("report history client 0123456789ab", 1, "gpupool report history --by client"),
        ("pool audit --session 0123456789ab", 1, "gpupool report history --by client"),
        ("node netperf n9", 1, "n9"),
        ("node drain n9", 1, "n9"),
        ("node drain n1 --undo --evict", 2, "--undo"),
        ("explain nothing", 1, "nothing"),
        ("explain l1 -p 0.2", 2, "either"),
        ("explain --project research", 2, "need its size"),
        ("project show nope", 2, "nope"),
        ("project set x --deserved many", 2, "many"),
        ("project set x --deserved 1.0001", 2, "1.0001"),
        ("quota set ann", 2, "nothing to set"),
        ("quota set ann --gpu-hours x", 2, "x"),
        ("lease request -p 0.1 --filter colour=red", 2, "colour=red"),
        ("lease request -p 0.1 --priority 0", 2, "0"),
        ("lease request -p 0.1 --kind urgent", 2, "urgent"),
        ("smi --watch 0.001", 2, "0.001"),
        ("completion tcsh", 2, "tcsh"),
        ("node start --label zone", 2, "zone"),
        ("node start --sharing some", 2, "some"),
    ],
)
def test_what_is_wrong_is_named(gpupool: Any, command: str, code: int, says: str) -> None:
    assert says in gpupool(*command.split(), code=code).output


def test_a_project_is_made_changed_listed_and_removed(gpupool: Any) -> None:
    gpupool("project", "set", "research", "--deserved", "1")
    gpupool("project", "set", "research/vision", "--deserved", "0.5", "--weight", "3", "--member", "ann")
    changed = json.loads(gpupool("project", "set", "research/vision", "--limit", "1.5", "--json").stdout)
    assert (changed["deserved_milli"], changed["limit_milli"], changed["weight"]) == (500, 1500, 3)
    assert changed["members"] == ["ann"]
    listed = gpupool("project", "list")
    assert "  vision" in listed.stdout
    assert "ann" in gpupool("project", "show", "research/vision").stdout
    rest = json.loads(
        gpupool("project", "set", "research/vision", "--limit", "none", "--deserved", "rest", "--json").stdout
    )
    assert (rest["deserved_milli"], rest["limit_milli"], rest["real_deserved_milli"]) == (None, None, 1000)
    for path in ("research/vision", "research"):
        assert json.loads(gpupool("project", "remove", path, "--json").stdout)["existed"] is True
    assert "no project research" in gpupool("project", "remove", "research").output


def test_each_project_stands_under_its_parent(gpupool: Any) -> None:
    paths = ("a/b", "research/vision", "research-x", "research/vision/faces")
    for path in paths:
        gpupool("project", "set", path, "--deserved", "0")
    lines = gpupool("project", "list").stdout.splitlines()
    tree = ["a", "  b", "default", "research", "  vision", "    faces", "research-x"]
    assert [line[:10].rstrip() for line in lines[1 : 1 + len(tree)]] == tree
    for path in sorted(paths, reverse=True):
        assert f"removed {path}" in gpupool("project", "remove", path).stdout


def test_limits_of_the_pools_options_are_listed_and_marked(stack: PoolAndNode, gpupool: Any) -> None:
    with PoolAndNode("--quota", "*=0.3", "--quota", "ann=0.2", gpus=1) as other:
        at = ("--pool", other.endpoint)
        seen = json.loads(gpupool("quota", "list", "--json", *at).stdout)["limits"]
        assert [(x["user"], x["milli"], x["configured"]) for x in seen] == [
            ("*", 300, True),
            ("ann", 200, True),
        ]
        assert "serve --quota" in gpupool("quota", "list", *at).stdout
        gpupool("quota", "set", "ann", "--gpus", "0.5", *at)
        seen = json.loads(gpupool("quota", "list", "--json", *at).stdout)["limits"]
        assert [(x["user"], x["milli"], x["configured"]) for x in seen] == [
            ("*", 300, True),
            ("ann", 500, False),
        ]
        assert "removed" in gpupool("quota", "remove", "ann", *at).stdout


def test_a_reservation_whose_time_is_over_leaves_no_session(stack: PoolAndNode, gpupool: Any) -> None:
    name = gpupool("lease", "request", "-p", "0.2", "--for", "1").stdout.strip()
    stack.wait(stack.all_free, 20, "the deadline")
    assert json.loads(gpupool("session", "list", "--json").stdout)["sessions"] == []
    assert gpupool("lease", "release", name).stdout == ""


@pytest.mark.parametrize(
    "command",
    [
        "smi",
        "lease list",
        "session list",
        "gpu list",
        "pool queue",
        "node list",
        "project list",
        "report history",
    ],
)
def test_80_columns_are_enough_for_whole_ids(
    gpupool: Any, lease: str, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    (session,) = [s["id"][:12] for s in json.loads(gpupool("session", "list", "--json").stdout)["sessions"]]
    shown = re.sub(r"\x1b\[[0-9;]*m", "", gpupool(*command.split()).stdout)
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert "…" not in shown
    if command in ("smi", "session list"):
        (row,) = [line for line in shown.splitlines() if line.startswith(session)]
        assert "n1/0" in row or "n1/1" in row
        assert "root" in row
    if command == "lease list":
        assert any(line.startswith(lease) for line in shown.splitlines())


def test_a_session_is_found_by_what_lists_show_of_its_id(gpupool: Any, lease: str) -> None:
    (whole,) = [s["id"] for s in json.loads(gpupool("session", "list", "--json").stdout)["sessions"]]
    for command in ("pool audit --json --session", "report history client"):
        assert gpupool(*command.split(), whole[:12]).output.startswith(
            gpupool(*command.split(), whole).output[:40]
        )
    grants = [
        json.loads(line)
        for line in gpupool("pool", "audit", "--json", "--session", whole[:12]).output.splitlines()
    ]
    assert {line["session_id"] for line in grants} == {whole}


@pytest.mark.parametrize(("options", "cut"), [(("-n", "1"), True), (("--all",), False)])
def test_lines_of_a_time_that_are_not_all_say_so(
    gpupool: Any, lease: str, options: tuple[str, ...], cut: bool
) -> None:
    assert ("--all" in gpupool("pool", "audit", "--from", "1h", *options).stderr) is cut


def test_a_user_is_limited_and_told_so(gpupool: Any) -> None:
    gpupool("quota", "set", "*", "--gpus", "1.5", "--gpu-hours", "20", "--window", "12h")
    made = json.loads(gpupool("quota", "set", "ann", "--gpus", "0.2", "--largest", "0.1", "--json").stdout)
    # What is not named is as it was for everybody.
    assert (made["milli"], made["largest_milli"], made["gpu_seconds"]) == (200, 100, 72_000)
    refused = gpupool("lease", "request", "-p", "0.15", "--user", "ann", code=77)
    assert "0.1" in refused.output
    gpupool("quota", "set", "ann", "--largest", "none")
    assert "0.2" in gpupool("lease", "request", "-p", "0.3", "--user", "ann", code=77).output
    (everybody, ann) = json.loads(gpupool("quota", "list", "--json").stdout)["limits"]
    assert (everybody["user"], everybody["milli"], everybody["gpu_seconds"]) == ("*", 1500, 72_000)
    assert (ann["user"], ann["largest_milli"]) == ("ann", None)
    for user in ("ann", "*"):
        assert json.loads(gpupool("quota", "remove", user, "--json").stdout)["existed"] is True
    assert "No limits." in gpupool("quota", "list").stdout


def test_a_drained_node_takes_nothing_keeps_what_it_has_and_gives_it_up_when_told(
    stack: PoolAndNode, gpupool: Any, lease: str
) -> None:
    try:
        assert (
            "takes no new leases; its 1 go on"
            in gpupool("node", "drain", "n1", "--reason", "new fans").stdout
        )
        assert "new fans" in gpupool("lease", "request", "-p", "0.1", code=75).output
        (node,) = json.loads(gpupool("node", "list", "--json").stdout)["nodes"]
        assert (node["drained"], node["drain_reason"], node["leases"]) == (True, "new fans", 1)
        device = json.loads(gpupool("gpu", "list", "--json").stdout)["devices"][0]
        assert (device["drained"], device["healthy"]) == (True, False)
        assert "n1 (new fans)" in gpupool("health", "--no-network", code=1).stdout
        gpupool("node", "drain", "n1", "--evict")
        (warned,) = json.loads(gpupool("session", "list", "--json").stdout)["sessions"]
        assert (warned["state"], warned["notice"]["reason"]) == ("warned", "drain")
        assert "asked back in" in gpupool("smi").stdout
        stack.wait(stack.all_free, 20, "the lease to be taken back")
        assert "drained (new fans)" in gpupool("node", "list").stdout
    finally:
        gpupool("node", "drain", "n1", "--undo")
    stack.close_sessions()
    assert gpupool("lease", "request", "-p", "0.1", "--for", "1").exit_code == 0
    stack.wait(stack.all_free, 20, "the deadline")


def test_what_explain_advises_is_a_command_that_works(stack: PoolAndNode, gpupool: Any, lease: str) -> None:
    asked = ("-n", "2", "-p", "0.9", "--nodes", "one")
    (answer,) = json.loads(gpupool("explain", *asked, "--json").stdout)["answers"]
    assert sorted(answer) == ["about", "explanation", "granted", "id", "shares"]
    assert sorted(answer["explanation"]) == [
        "eta_seconds",
        "facts",
        "helps",
        "place",
        "project",
        "reason",
        "said",
        "sentence",
    ]
    assert (answer["about"], answer["granted"], answer["explanation"]["reason"]) == ("wish", False, "full")
    advice = [help_["arguments"] for help_ in answer["explanation"]["helps"] if help_["arguments"]]
    assert advice, answer
    assert f"gpupool lease request {advice[0]}" in gpupool("explain", *asked).stdout
    assert f"this would be granted now: {advice[0]}" in gpupool("lease", "request", *asked, code=75).output
    for arguments in advice:
        followed = gpupool("lease", "request", *shlex.split(arguments)).stdout.strip()
        gpupool("lease", "release", followed)
        stack.wait(
            lambda: len(json.loads(gpupool("lease", "list", "--json").stdout)["leases"]) == 1,
            10,
            "the release",
        )
    assert "it would be granted now" in gpupool("explain", "-p", "0.1").stdout
    assert f"lease {lease}" in gpupool("explain", lease[:6]).stdout
    assert "2 devices" in gpupool("explain", "-n", "3", "-p", "1", "--nodes", "one").stdout.replace(
        "(s)", "s"
    )


def test_watch_on_a_terminal_draws_in_place_and_ends_cleanly_at_ctrl_c(stack: PoolAndNode) -> None:
    ours, theirs = pty.openpty()
    watching = subprocess.Popen(
        stack.command("smi", "--watch", "0.3"), env=stack.environment, stdout=theirs, stderr=subprocess.PIPE
    )
    os.close(theirs)
    text = read_until(ours, lambda text: text.count("Ctrl-C ends") >= 3)
    watching.send_signal(signal.SIGINT)
    drain(ours)
    assert watching.wait(10) == 0
    assert watching.stderr is not None
    assert watching.stderr.read() == b""
    assert "\x1b[1A" in text or "\x1b[2K" in text, text  # it goes back up instead of scrolling


def test_watch_in_a_pipe_is_one_line_of_json_each_time(stack: PoolAndNode) -> None:
    watching = subprocess.Popen(
        stack.command("node", "list", "--watch", "0.2"),
        env=stack.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    for _ in range(3):
        assert json.loads(watching.stdout.readline())["nodes"][0]["name"] == "n1"
    watching.send_signal(signal.SIGINT)
    assert watching.wait(10) == 0


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("gpupool node drai", "drain"),
        ("gpupool node drain n", "n1"),
        ("gpupool lease request --filter lab", "label.zone=a"),
        ("gpupool lease request --filter mem", "memory>="),
        ("gpupool lease request --node-pool f", "fast"),
        ("gpupool lease request --project d", "default"),
        ("gpupool lease request --kind g", "guaranteed"),
    ],
)
def test_the_shell_completes_names_of_the_pool(gpupool: Any, line: str, offered: str) -> None:
    words = line.split()
    environment = {
        "_GPUPOOL_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1),
    }  # fmt: skip
    done = CliRunner(env=environment).invoke(app, [], prog_name="gpupool")
    assert offered in done.stdout.split(), done.output


def test_completion_says_nothing_when_there_is_no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPOOL_ENDPOINT", "unix:/nonexistent/pool.sock")
    line = {"_GPUPOOL_COMPLETE": "complete_bash", "COMP_WORDS": "gpupool node drain n", "COMP_CWORD": "3"}
    done = CliRunner(env=line).invoke(app, [], prog_name="gpupool")
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_program(shell: str) -> None:
    assert "_GPUPOOL_COMPLETE" in CliRunner().invoke(app, ["completion", shell]).stdout


def commands() -> Iterator[tuple[str, ...]]:
    import typer.main

    def walk(group: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from walk(command, (*path, name))
            else:
                yield (*path, name)

    yield from walk(typer.main.get_command(app), ())


@pytest.mark.parametrize("command", list(commands()), ids=" ".join)
def test_every_command_explains_itself(command: tuple[str, ...]) -> None:
    text = CliRunner().invoke(app, [*command, "--help"], prog_name="gpupool").stdout
    assert "Exit codes: 0 done" in text
    assert "Examples:" in text
    for line in text.splitlines():
        assert len(line) <= 130, line
    # A service, a program of the user's, and a script for a shell have no results of their own.
    # These run until they are told to end, or print what others read.
    spoken = ("pool serve", "node start", "run", "lab", "up", "examples", "completion")
    assert ("--json" in text) == (" ".join(command) not in spoken)
    if " ".join(command) in SHAPES and command != ("version",):
        assert "--watch" in text


def read_until(descriptor: int, done: Any, seconds: float = 20) -> str:
    text, deadline = "", time.monotonic() + seconds
    while not done(text):
        assert time.monotonic() < deadline, text
        if select.select([descriptor], [], [], 0.2)[0]:
            text += os.read(descriptor, 65536).decode(errors="replace")
    return text


def drain(descriptor: int) -> None:
    """A terminal that nobody reads makes who writes to it wait."""
    try:
        while select.select([descriptor], [], [], 1.0)[0] and os.read(descriptor, 65536):
            pass
    except OSError:
        pass
    os.close(descriptor)
