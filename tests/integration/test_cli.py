"""The command line against a real pool and node: results, exit codes, signals, nothing left."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.cli.main import app
from typer.testing import CliRunner

from tests.support.pool_node import SCALE, SCRIPTED_WORKER, PoolAndNode, native_worker_is_built
from tests.support.stack import wait_until

SHOW = 'cat "$GPUPOOL_SESSION_FILE"'
#: What Rich would read as markup, and fall over.
NOTES = "my notes[draft] [/tmp/x]"


@pytest.fixture(scope="module")
def stack() -> Iterator[PoolAndNode]:
    with PoolAndNode("--quota", "limited=0.3") as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_is_left(stack: PoolAndNode) -> Iterator[None]:
    yield
    try:
        stack.wait_free()
        clients = stack.home / "run" / "clients"
        assert not clients.exists() or list(clients.iterdir()) == []
    finally:
        stack.close_sessions()  # what a test that failed has left is not there when it is run again


def test_list_gpus_says_what_is_free(stack: PoolAndNode) -> None:
    device = stack.listed()[0]
    assert {
        "id": "n1/0",
        "free_milli": 1000,
        "usable_mib": 7936,
        "healthy": True,
        "shares": [],
    }.items() <= device.items()
    assert "n1/0" in stack.gpupool("gpu", "list").stdout


def test_a_reservation_outlives_its_command_until_it_is_released(stack: PoolAndNode) -> None:
    made = stack.gpupool("lease", "request", "-m", "2560", "--label", NOTES)
    lease = made.stdout.strip()
    assert made.returncode == 0
    assert "2560 MiB" in made.stderr
    (share,) = stack.devices()[0]["shares"] or stack.devices()[1]["shares"]
    assert (share["lease_id"], share["mib"], share["label"]) == (lease, 2560, NOTES)
    for command in (("smi",), ("lease", "list")):
        assert NOTES in stack.gpupool(*command).stdout
    assert json.loads(stack.gpupool("lease", "list", "--json").stdout)["leases"][0]["reservation"] is True
    for _ in range(2):
        assert stack.gpupool("lease", "release", lease).returncode == 0
    assert stack.all_free()
    assert json.loads(stack.gpupool("lease", "list", "--json").stdout) == {"leases": []}


def test_a_share_is_resized_and_its_session_listed(stack: PoolAndNode) -> None:
    lease = stack.gpupool("lease", "request", "-p", "0.2", "--strict", "--label", NOTES).stdout.strip()
    made = stack.gpupool("lease", "resize", lease, "-p", "0.35")
    assert (made.returncode, made.stdout.startswith(f"{lease} now holds 0.35 (")) == (0, True)
    refused = stack.gpupool("lease", "resize", lease, "-m", "1")
    assert (refused.returncode, "77 MiB are in use" in refused.stderr) == (1, True), refused.stderr
    (listed,) = json.loads(stack.gpupool("session", "list", "--json").stdout)["sessions"]
    assert (listed["memory_place"], listed["park_obstacle"], listed["move_obstacle"]) == (
        "device",
        "",
        "other",
    )
    assert (listed["enforcement"], listed["strict"]) == ("soft", True)
    shown = stack.gpupool("session", "list")
    assert "soft, strict" in shown.stdout
    assert "can only go on in the node where it is" in shown.stderr
    assert stack.gpupool("lease", "release", lease).returncode == 0


def test_request_json_shows_no_secret(stack: PoolAndNode) -> None:
    made = json.loads(stack.gpupool("lease", "request", "-p", "20%", "-n", "2", "--json").stdout)
    assert [share["milli"] for share in made["shares"]] == [200, 200]
    assert "worker_token" not in made
    assert stack.gpupool("lease", "release", made["lease_id"], "--json").returncode == 0


def test_run_gives_a_share_for_as_long_as_the_command_runs(stack: PoolAndNode) -> None:
    done = stack.gpupool(
        "run", "-p", "0.2", "--", "sh", "-c", f'{SHOW}; stat -c %a "$GPUPOOL_SESSION_FILE"; env'
    )
    assert done.returncode == 0, done.stderr
    assert "state attached\n" in done.stdout
    assert "software 1\n" in done.stdout
    assert "\n600\n" in done.stdout
    assert f"LD_LIBRARY_PATH={stack.home}/native/client" in done.stdout
    assert "CUPY_COMPILE_WITH_PTX=1" in done.stdout
    assert stack.all_free()


@pytest.mark.parametrize(
    ("script", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("true", 0)]
)
def test_run_ends_as_its_command_ended(stack: PoolAndNode, script: str, code: int) -> None:
    assert stack.gpupool("run", "-p", "0.2", "sh", "-c", script).returncode == code
    assert stack.all_free()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("run", "-p", "0.2", "--", "no-such-program"), 127, "not found"),
        (("run", "-p", "1.7", "--", "true"), 2, "1.7"),
        (("run", "-p", "banana", "--", "true"), 2, "banana"),
        (("run", "-m", "-5", "--", "true"), 2, "-5"),
        (("run", "-m", "900GiB", "--", "true"), 2, "921600"),
        (("run", "--", "true"), 2, "-p"),
        (("run", "-p", "0.1", "-m", "100", "--", "true"), 2, "-m"),
        (("run", "-p", "0.1", "--wait", "soon", "--", "true"), 2, "soon"),
        (("run", "-p", "0.1", "-n", "0", "--", "true"), 2, "'0'"),
        (("run", "-p", "0.1", "-n", "many", "--", "true"), 2, "many"),
        (("run", "-p", "0.2", "-n", "3", "--", "true"), None, "3"),
        (("lease", "request", "-p", "0.4", "--user", "limited"), 77, "quota"),
        (("pool", "serve", "--quota", "nonsense"), 2, "nonsense"),
        (("frobnicate",), 2, "frobnicate"),
    ],
)
def test_wrong_requests_have_their_code_and_name_the_value(
    stack: PoolAndNode, arguments: tuple[str, ...], code: int | None, says: str
) -> None:
    done = stack.gpupool(*arguments)
    assert done.returncode == code if code is not None else done.returncode not in (0, 1)
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_pool_is_75_at_once_or_after_the_wait(stack: PoolAndNode) -> None:
    lease = stack.gpupool("lease", "request", "-p", "1", "-n", "2").stdout.strip()
    try:
        full = stack.gpupool("run", "-p", "0.5", "--", "true")
        assert full.returncode == 75
        assert "0.5" in full.stderr
        started = time.monotonic()
        waited = stack.gpupool("run", "-p", "0.5", "--wait", "1", "--", "true")
        assert waited.returncode == 75
        assert time.monotonic() - started > 1
        assert "waiting at place 1" in waited.stderr
    finally:
        stack.gpupool("lease", "release", lease)


def test_a_command_that_waits_runs_when_a_share_is_free(stack: PoolAndNode) -> None:
    lease = stack.gpupool("lease", "request", "-p", "1", "-n", "2").stdout.strip()
    waiting = start(stack, "run", "-p", "0.5", "--wait", "30", "--", "echo", "ran")
    stack.wait(stack.queue_length, 10, "the queue")
    smi = stack.gpupool("smi").stdout
    assert " echo " in smi and "ran" not in smi, "its arguments are nobody else's business"
    assert json.loads(stack.gpupool("pool", "queue", "--json").stdout)["queue"][0]["place"] == 1
    stack.gpupool("lease", "release", lease)
    output, _ = waiting.communicate(timeout=30)
    assert (waiting.returncode, output) == (0, "ran\n")


@pytest.mark.skipif(not native_worker_is_built(), reason="native parts not built")
def test_a_program_on_the_software_gpu_ends_with_the_pipe_that_it_writes_to() -> None:
    command = [sys.executable, "-m", "gpupool.cli.main", "softgpu", "--", "cat", "/proc/self/status"]
    status = dict(
        line.split(":", 1)
        for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    )
    ignored = int(status["SigIgn"], 16)
    assert not ignored & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1))


def test_a_signal_in_the_queue_leaves_it(stack: PoolAndNode) -> None:
    lease = stack.gpupool("lease", "request", "-p", "1", "-n", "2").stdout.strip()
    for number in (signal.SIGINT, signal.SIGTERM):
        waiting = start(stack, "run", "-p", "0.5", "--wait", "forever", "--", "true")
        stack.wait(stack.queue_length, 10, "the queue")
        waiting.send_signal(number)
        assert waiting.wait(10) == 128 + number
        stack.wait(lambda: stack.queue_length() == 0, 10, "the empty queue")
    stack.gpupool("lease", "release", lease)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_reach_the_command_and_the_share_is_given_back(
    stack: PoolAndNode, number: signal.Signals
) -> None:
    script = "trap 'echo got it; exit 5' TERM INT USR1; echo ready; while :; do sleep 0.05; done"
    running = start(stack, "run", "-p", "0.2", "--", "sh", "-c", script)
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    running.send_signal(number)
    assert running.stdout.readline() == "got it\n"
    assert running.wait(10) == 5
    assert stack.all_free()


def test_a_command_under_nohup_outlives_the_hang_up(stack: PoolAndNode, tmp_path: Path) -> None:
    told = tmp_path / "told"
    script = f"echo ready; until [ -e {told} ]; do sleep 0.05; done; echo went on"
    running = start(stack, "run", "-p", "0.2", "--", "sh", "-c", script, before=("nohup",))
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    os.killpg(running.pid, signal.SIGHUP)
    told.touch()
    assert running.stdout.readline() == "went on\n"
    assert running.wait(10) == 0


def test_a_killed_run_loses_its_share_by_itself(stack: PoolAndNode) -> None:
    running = start(stack, "run", "-p", "0.2", "--", "sh", "-c", "echo $$; exec sleep 60")
    assert running.stdout is not None
    child = int(running.stdout.readline())
    try:
        running.kill()
        running.wait()
        assert stack.wait_free() > 25 * SCALE - 6 * SCALE
        clients = stack.home / "run" / "clients"
        (left,) = clients.iterdir()
        stack.gpupool("run", "-p", "0.1", "--", "true")
        assert (left / "session").is_file(), "the command lives, and reads it"
    finally:
        os.kill(child, signal.SIGKILL)
        stack.close_sessions()

    def removed() -> bool:
        stack.gpupool("run", "-p", "0.1", "--", "true")
        return not left.exists()

    wait_until(removed, 10, "the next run to remove what was left")


def test_a_deadline_takes_the_share_back_and_says_so(stack: PoolAndNode) -> None:
    done = stack.gpupool("run", "-p", "0.2", "--for", "1", "--", "sh", "-c", f"sleep 4; {SHOW}")
    assert done.returncode == 0
    assert "its time (--for) is over" in done.stderr
    assert "state closed\n" in done.stdout
    assert "its time (--for) is over" in done.stdout
    assert "token" not in done.stdout


def test_a_killed_worker_ends_the_share_and_says_so(stack: PoolAndNode) -> None:
    stack.wait(lambda: not stack.worker_pids(), 10, "earlier workers to end")
    running = start(stack, "run", "-p", "0.2", "--", "sh", "-c", f"echo ready; sleep 4; {SHOW}")
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    (pid,) = stack.worker_pids()
    os.kill(pid, signal.SIGKILL)
    output, errors = running.communicate(timeout=20)
    assert "took this program's GPU share back" in errors
    assert "state closed\n" in output


def test_health_lists_checks(stack: PoolAndNode) -> None:
    done = stack.gpupool("health", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["ok"]) == (0, True)
    assert all(check["status"] in ("ok", "warn") for check in report["checks"])


def test_without_a_pool_every_command_says_so_with_69(tmp_path: Path, stack: PoolAndNode) -> None:
    nowhere = f"unix:{tmp_path}/none.sock"
    for command in (
        ("gpu", "list", "--json"), ("health",), ("lease", "release", "x"), ("lease", "request", "-p", "0.2"),
        ("run", "-p", "0.2", "--wait", "forever", "--pool", nowhere, "--", "true"),
    ):  # fmt: skip
        arguments = command if "--pool" in command else (*command, "--pool", nowhere)
        done = stack.gpupool(*arguments)
        assert done.returncode == 69, command
        assert nowhere in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_over_tcp_every_caller_needs_a_live_token(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    with PoolAndNode("--listen", address, gpus=1) as stack:
        token = tmp_path / "ann.token"
        made = json.loads(stack.gpupool("token", "create", "--user", "ann", "--json").stdout)
        token.write_text(made["token"])
        token.chmod(0o600)
        remote = ("gpu", "list", "--json", "--pool", address)
        refused = stack.gpupool(*remote)
        assert refused.returncode == 77
        assert "token" in refused.stderr
        assert stack.gpupool(*remote, "--token-file", str(token)).returncode == 0
        mine = stack.gpupool("lease", "request", "-p", "0.2", "--pool", address, "--token-file", str(token))
        assert mine.returncode == 0, mine.stderr
        other = stack.gpupool(
            "lease", "request", "-p", "0.2", "--user", "bob", "--pool", address, "--token-file", str(token)
        )
        assert other.returncode == 77
        node_arguments = (
            "node", "start", "--name", "n2", "--driver", "/dev/null", "--worker", str(SCRIPTED_WORKER), "--pool", address,
            "--heartbeat-seconds", str(5 * SCALE), "--token-file",
        )  # fmt: skip
        not_a_node = stack.gpupool(*node_arguments, str(token))
        assert not_a_node.returncode == 1
        assert "refuses this node" in not_a_node.stderr
        node_token = tmp_path / "n2.token"
        node_token.touch(0o600)
        make_token = ("token", "create", "--user", "n2", "--role", "node", "--json")
        first, later = (json.loads(stack.gpupool(*make_token).stdout) for _ in range(2))
        node_token.write_text(first["token"])
        second = start(stack, *node_arguments, str(node_token))
        stack.wait(lambda: "n2/0" in [device["id"] for device in stack.healthy()], 20, "the node over TCP")
        # Replaced, file first: the stream ends and the next has the new token.
        node_token.write_text(later["token"])
        assert stack.gpupool("token", "revoke", first["id"]).returncode == 0
        stack.wait(lambda: "has been revoked" in stack.log("pool"), 10, "the end of the old stream")
        time.sleep(2)
        assert second.poll() is None
        assert "n2/0" in [device["id"] for device in stack.healthy()]
        assert stack.gpupool("token", "revoke", later["id"]).returncode == 0
        assert second.wait(20) == 1
        token.chmod(0o644)
        assert "chmod 600" in stack.gpupool(*remote, "--token-file", str(token)).stderr
        token.chmod(0o600)
        for where in ((), ("--pool", stack.endpoint)):
            listed = stack.gpupool("token", "list", "--json", *where)
            assert made["id"] in [token["id"] for token in json.loads(listed.stdout)["tokens"]]
            assert made["token"] not in listed.stdout
        assert stack.gpupool("token", "list", *remote[3:], "--token-file", str(token)).returncode == 77
        third = json.loads(stack.gpupool(*make_token).stdout)["id"]
        for code in (0, 1):
            assert stack.gpupool("token", "revoke", third, "--pool", stack.endpoint).returncode == code
        assert stack.gpupool("token", "revoke", made["id"]).returncode == 0
        assert stack.gpupool("token", "revoke", made["id"]).returncode == 1
        unknown = stack.gpupool(*remote, "--token-file", str(token))
        assert unknown.returncode == 77
        assert "does not know this token" in unknown.stderr
        assert "does not know" not in refused.stderr
        assert made["token"] not in stack.log("pool")
        assert stack.gpupool("lease", "release", mine.stdout.strip()).returncode == 0


def test_help_has_examples_and_exit_codes() -> None:
    for command in (
        "pool serve",
        "node start",
        "run",
        "lease request",
        "lease release",
        "gpu list",
        "smi",
        "health",
    ):
        text = CliRunner().invoke(app, [*command.split(), "--help"], prog_name="gpupool").stdout
        assert "69" in text, command
        if command != "health":
            assert f"Examples:\n    gpupool {command}" in text or "Examples:\n    watch" in text, command


def start(stack: PoolAndNode, *arguments: str, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*before, *stack.command(*arguments)],
        env=stack.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
