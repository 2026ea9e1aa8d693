"""The kernel's small parts: arguments, figures, the server's address, the kernel command."""

from __future__ import annotations

import errno
import http.server
import os
import socket
import socketserver
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpupool.amounts import amount
from gpupool.client.runtime import Counters, WorkerCounters
from gpupool.client.types import Usage
from gpupool.likeness import nearest
from gpupool.request.gpu_request import GpuRequest
from gpupool.shares import Share

from jupyter_gpupool.kernel.arguments import parse_auto, parse_cell
from jupyter_gpupool.kernel.command import KERNEL_EXTENSION, is_ipykernel, with_magics
from jupyter_gpupool.kernel.errors import GpuError, GpuUsageError
from jupyter_gpupool.kernel.figures import Figures, html_line, text_line
from jupyter_gpupool.kernel.magics import GpuMagics
from jupyter_gpupool.kernel.server import Server
from jupyter_gpupool.server.kernels.server_address import local_server_url
from jupyter_gpupool.server.session.usage_history import SAMPLES, UsageHistory
from jupyter_gpupool.server.watching.busy import OpenRequests

# --- arguments ------------------------------------------------------------------------------------


def asked(share: str = "", **more: Any) -> GpuRequest:
    return GpuRequest(Share.parse(share) if share else None, **more)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", asked()),
        ("0.2", asked("0.2")),
        ("20%", asked("20%")),
        ("2.5GiB -n 2", asked("2.5GiB", count=2)),
        ("2.5 GiB -n 2", asked("2.5GiB", count=2)),
        ("-n 2 0.5", asked("0.5", count=2)),
        ("0.5 -n 2 --nodes any", asked("0.5", count=2, nodes="any")),
        ("0.2 --wait 30 --hold --for 60", asked("0.2", wait_seconds=30.0, hold=True, duration_seconds=60.0)),
        ("0.2 --strict", asked("0.2", strict=True)),
        ("0.2 --wait -1", asked("0.2", wait_seconds=-1.0)),
        ("0.2 --wait=0", asked("0.2", wait_seconds=0.0)),
        ("0.2 --wait 10m --for 2h", asked("0.2", wait_seconds=600.0, duration_seconds=7200.0)),
        ("0.2 --wait forever", asked("0.2", wait_seconds=-1.0)),
        ("--exclusive", asked("1")),
        ("100% --exclusive -n 2", asked("1", count=2)),
        ("0.2 --type H100", asked("0.2", filters=("name=*H100*",))),
        (
            "0.2 --filter node=n1 --type 'H100|A100 SXM' --type L*",
            asked("0.2", filters=("name=*H100*|*A100 SXM*", "name=L*", "node=n1")),
        ),
        ("0.2  # a comment", asked("0.2")),
        (
            "1 --project a/b --kind preemptible --priority 60 --filter 'name=*H100*' --node-pool x --node-pool y",
            asked(
                "1",
                project="a/b",
                kind="preemptible",
                priority=60,
                filters=("name=*H100*",),
                pools=("x", "y"),
            ),
        ),
    ],
)
def test_what_a_line_asks_for(line: str, expected: GpuRequest) -> None:
    assert parse_cell(line) == expected


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("1.7", "1.7"),
        ("banana", "banana"),
        ("0", "'0'"),
        ("-0.2", "-0.2"),
        ("0.2 0.3", "0.3"),
        ("0.2 -n", "-n"),
        ("0.2 -n 1.5", "1.5"),
        ("0.2 -n 999999999999", "999999999999"),
        ("0.2 -n ²", "²"),
        ("0.2 -n 2 --nodes all", "'all'"),
        ("0.2 --wait nan", "nan"),
        ("0.2 --wait -2", "-2"),
        ("0.2 --for inf", "inf"),
        ("0.2 --for 367d", "367d"),
        ("0.2 --for forever", "forever"),
        ("0.2 --wait 5 minutes", "minutes"),
        ("0.2 --exclusive", "0.2"),
        ("2GiB --exclusive", "2GiB"),
        ("0.2 --type ''", "''"),
        ("0.2 --type 'H100|'", "H100|"),
        ("0.2 --type a=b", "a=b"),
        ("0.2 --hol", "Did you mean --hold?"),
        ("0,2", "did you mean 0.2?"),
        ("20 GB", "did you mean 20GiB?"),
        ("0.2 --project a//b", "a//b"),
        ("0.2 --kind urgent", "urgent"),
        ("0.2 --priority 0", "'0'"),
        ("0.2 --priority high", "high"),
        ("0.2 --filter fast", "fast"),
        ("0.2 --node-pool 'a b'", "a b"),
        ("0.2 --fro 3", "Did you mean --for?"),
        ("'0.2", "'0.2"),
        ("9" * 100, "999"),
    ],
)
def test_errors_name_the_word_that_is_wrong(line: str, named: str) -> None:
    with pytest.raises(GpuUsageError) as error:
        parse_cell(line)
    assert named in str(error.value)
    assert "\n" not in str(error.value)


def test_two_options_are_not_alike_for_their_dashes() -> None:
    assert not nearest("--hold", ["--for", "--nodes", "--node-pool"])
    assert nearest("--nods", ["--for", "--nodes"]) == "--nodes"


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("atach 0.2", "Did you mean %gpu attach?"),
        ("detatch", "Did you mean %gpu detach?"),
        ("stats", "Did you mean %gpu status?"),
        ("release", "Did you mean %gpu detach?"),
        ("Free", "Did you mean %gpu detach?"),
        ("ls", "Did you mean %gpu list?"),
        ("0.2", "Did you mean %%gpu 0.2 as the first line of the cell?"),
    ],
)
def test_a_word_that_is_no_command_of_the_magic_proposes_one(line: str, meant: str) -> None:
    with pytest.raises(GpuUsageError) as error:
        GpuMagics(None, SimpleNamespace()).gpu(line)  # type: ignore[arg-type]
    assert meant in str(error.value)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["on"], asked()),
        (["on", "0.2", "-n", "2", "--wait", "5"], asked("0.2", count=2, wait_seconds=5.0)),
        (["on", "0.2", "--strict"], asked("0.2", strict=True)),
        (["off"], None),
    ],
)
def test_what_auto_is_switched_to(words: list[str], expected: GpuRequest | None) -> None:
    assert parse_auto(words) == expected


@pytest.mark.parametrize("words", [[], ["0.2"], ["on", "--hold"], ["on", "--for", "3"], ["off", "0.2"]])
def test_auto_says_how_it_is_written(words: list[str]) -> None:
    with pytest.raises(GpuUsageError, match="%gpu auto"):
        parse_auto(words)


def test_an_error_is_shown_as_one_line() -> None:
    assert GpuError("The pool is full.")._render_traceback_() == ["GpuError: The pool is full."]


# --- figures ----------------------------------------------------------------------------------------


def counters(n: int, worker: bool = True) -> Counters:
    return Counters(
        calls=10 * n,
        asks=n,
        ask_seconds=0.001 * n,
        bytes_to_device=1024 * n,
        bytes_from_device=512 * n,
        worker=WorkerCounters(0.5 * n, n, (0,), (1024 * 1024 * n,)) if worker else None,
    )


def test_a_cell_is_charged_the_difference_of_two_readings() -> None:
    figures = Figures.between(counters(1), counters(3), wall_seconds=2.0)
    assert figures == Figures(2.0, 1.0, 20, 2, pytest.approx(0.002), 2048, 1024, 3 * 1024 * 1024)


def test_without_the_workers_counters_the_line_says_less_instead_of_zeros() -> None:
    line = text_line("0.2 GPU", Figures.between(counters(1, False), counters(2, False), 1.0), "")
    assert "device time" not in line
    assert "peak memory" not in line
    assert "wall time 1.00 s" in line


def test_the_first_cells_worker_began_at_zero() -> None:
    assert Figures.between(counters(0, False), counters(2), 1.0).device_seconds == 1.0


def test_a_worker_that_was_there_and_did_not_answer_has_counted_nobody_knows_how_much() -> None:
    figures = Figures.between(Counters(state="attached"), counters(2), 1.0)
    assert (figures.device_seconds, figures.memory_peak_bytes) == (None, None)


def test_html_is_escaped() -> None:
    assert "<script>" not in html_line("<script>", None, "<script>")


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (200 * 2**20, "200 MiB"),
        (2**50, "1024 TiB"),
    ],
)
def test_amounts(number: int, text: str) -> None:
    assert amount(number) == text


# --- busyness -----------------------------------------------------------------------------------------


def test_only_execute_requests_count_and_each_for_itself() -> None:
    requests = OpenRequests()
    cell, slider = {"msg_type": "execute_request", "msg_id": "1"}, {"msg_type": "comm_msg", "msg_id": "2"}
    other = {"msg_type": "execute_request", "msg_id": "3"}
    requests.status(cell, "busy", 1.0)
    requests.status(slider, "busy", 2.0)
    requests.status(slider, "idle", 3.0)
    assert requests.busy
    requests.status(other, "busy", 4.0)
    requests.status(cell, "idle", 5.0)
    assert (requests.busy, requests.last_ended_at) == (True, 5.0)
    requests.status(other, "idle", 6.0)
    assert (requests.busy, requests.last_ended_at) == (False, 6.0)
    requests.status({"msg_type": "execute_request", "msg_id": "from before"}, "idle", 9.0)
    assert requests.last_ended_at == 6.0


# --- use over time --------------------------------------------------------------------------------------


def test_rates_come_from_counters() -> None:
    history = UsageHistory()
    history.add(Usage(device_seconds=1.0, bytes_to_device=100), 10.0)
    assert history.since(0) == []
    history.add(Usage(device_seconds=1.5, bytes_to_device=300, memory_used=(11,)), 12.0)
    [sample] = history.since(0)
    assert (sample.t, sample.utilization, sample.memory_bytes, sample.to_device_bps) == (
        12.0,
        0.25,
        11,
        100.0,
    )
    assert history.since(12.0) == []


def test_a_share_of_several_devices_is_busy_as_they_are_on_average() -> None:
    history = UsageHistory()
    for second, device_seconds in enumerate((0.0, 2.0, 3.0)):
        history.add(Usage(device_seconds=device_seconds, memory_used=(5, 6)), float(second))
    assert [sample.utilization for sample in history.since(0)] == [1.0, 0.5]


def test_reports_every_five_seconds_show_the_mean_and_no_peaks() -> None:
    history = UsageHistory()
    for second in range(31):
        history.add(Usage(device_seconds=2.0 * (second // 5)), float(second))
    assert [round(sample.utilization, 6) for sample in history.since(10)] == [0.4] * 20


def test_use_that_ends_falls_to_zero_when_the_next_report_is_overdue() -> None:
    history = UsageHistory()
    for second in range(10):
        history.add(Usage(device_seconds=0.5 * min(second, 5)), float(second))
    assert [round(sample.utilization, 6) for sample in history.since(3)] == [0.5, 0.5, 0.5, 0.0, 0.0, 0.0]
    history.add(Usage(device_seconds=2.9), 60.0)
    assert round(history.utilization, 6) == 0.4


def test_a_new_worker_starts_from_zero_without_negative_rates() -> None:
    history = UsageHistory()
    history.add(Usage(device_seconds=9.0), 1.0)
    history.add(Usage(device_seconds=0.1), 2.0)
    history.add(Usage(device_seconds=0.3), 3.0)
    assert [round(sample.utilization, 6) for sample in history.since(0)] == [0.2]


def test_history_is_bounded() -> None:
    history = UsageHistory()
    for second in range(2 * SAMPLES):
        history.add(Usage(device_seconds=0.5 * second), float(second))
    assert len(history.since(0)) == SAMPLES


# --- addresses and commands ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "url"),
    [
        ({"ip": "127.0.0.1"}, "http://127.0.0.1:8888/"),
        ({"ip": "0.0.0.0"}, "http://127.0.0.1:8888/"),
        ({"ip": ""}, "http://127.0.0.1:8888/"),
        ({"ip": "localhost"}, "http://127.0.0.1:8888/"),
        ({"ip": "::"}, "http://[::1]:8888/"),
        ({"ip": "fe80::1"}, "http://[fe80::1]:8888/"),
        ({"ip": "10.0.0.5", "base_url": "/user/ann/"}, "http://10.0.0.5:8888/user/ann/"),
        ({"ip": "10.0.0.5", "certfile": "/x.pem"}, "https://10.0.0.5:8888/"),
        ({"sock": "/run/j.sock", "base_url": "/a/"}, "http+unix://%2Frun%2Fj.sock/a/"),
    ],
)
def test_where_a_kernel_finds_its_server(server: dict[str, str], url: str) -> None:
    defaults = {"ip": "localhost", "port": 8888, "base_url": "/", "certfile": "", "sock": ""}
    assert local_server_url(SimpleNamespace(**{**defaults, **server})) == url


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["python", "-m", "ipykernel_launcher", "-f", "x"], True),
        (["python", "-Xfrozen_modules=off", "-m", "ipykernel", "-f", "x"], True),
        (["ir", "-f", "x"], False),
        (["xpython", "-m", "something", "-f", "ipykernel"], False),
        ([], False),
    ],
)
def test_which_kernels_take_the_argument(command: list[str], expected: bool) -> None:
    assert is_ipykernel(command) is expected


async def test_a_kernel_whose_interpreter_lacks_the_package_is_started_unchanged(tmp_path: Path) -> None:
    elsewhere = tmp_path / "python"
    elsewhere.write_text("#!/bin/sh\nexit 1\n")
    elsewhere.chmod(0o755)
    for command in (
        [str(elsewhere), "-m", "ipykernel_launcher", "-f", "x"],
        ["/none/such/python", "-m", "ipykernel_launcher", "-f", "x"],
        ["ir", "-f", "x"],
    ):
        assert await with_magics(command, {}) == command
    own = [sys.executable, "-m", "ipykernel_launcher", "-f", "x"]
    extended = await with_magics(own, {"PYTHONPATH": "elsewhere"})
    assert extended[:-1] == own or extended == own
    assert KERNEL_EXTENSION in (await with_magics(own, dict(__import__("os").environ)))[-1]


async def test_an_environment_that_gets_the_package_later_has_the_magics_then(tmp_path: Path) -> None:
    interpreter, installed = tmp_path / "python", tmp_path / "installed"
    interpreter.write_text(f"#!/bin/sh\ntest -e {installed}\n")
    interpreter.chmod(0o700)
    command = [str(interpreter), "-m", "ipykernel_launcher"]
    assert await with_magics(command, {}) == command
    installed.touch()
    assert KERNEL_EXTENSION in (await with_magics(command, {}))[-1]


# --- calls to the server -----------------------------------------------------------------------------------


class Answering(http.server.BaseHTTPRequestHandler):
    """Answers with what its server holds."""

    def do_GET(self) -> None:
        status, body = self.server.answer  # type: ignore[attr-defined]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def answering() -> Iterator[socketserver.TCPServer]:
    with socketserver.TCPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def server_at(port: int, folder: Path) -> Server:
    (folder / "capability").write_text("secret")
    return Server(f"http://127.0.0.1:{port}/base/", "kernel", folder / "capability")


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (409, b'{"message": "Full: 3 of 8 free.", "reason": "full"}', "Full: 3 of 8 free."),
        (403, b'{"message": "No."}', "Restart the kernel"),
        (502, b"<html>proxy</html>", "something unexpected (HTTP 502)"),
        (200, b"[]", "something unexpected (HTTP 200)"),
        (200, b"", "something unexpected"),
        (200, b"\xff\xfe", "something unexpected"),
    ],
)
def test_answers_become_one_sentence(
    answering: socketserver.TCPServer, tmp_path: Path, status: int, body: bytes, said: str
) -> None:
    answering.answer = (status, body)  # type: ignore[attr-defined]
    server = server_at(answering.server_address[1], tmp_path)
    with pytest.raises(GpuError) as error:
        server.call("GET", "self/status")
    assert said in str(error.value)
    assert "secret" not in str(error.value)
    if body:
        with pytest.raises(GpuError):
            list(server.stream("self/attach", {}, 5))


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(GpuError, match="does not answer"):
        server_at(port, tmp_path).call("GET", "self/status")


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)), "has ended"),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), os.strerror(errno.EMFILE)),
        (UnicodeDecodeError("ascii", b"\xff", 0, 1, "no"), "is no text"),
    ],
)
def test_only_a_capability_that_is_gone_says_that_the_server_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, said: str
) -> None:
    def fails(*_: object) -> str:
        raise failure

    server = server_at(1, tmp_path)
    monkeypatch.setattr(Path, "read_text", fails)
    with pytest.raises(GpuError) as error:
        server.call("GET", "self/status")
    gone = isinstance(failure, FileNotFoundError)
    assert said in str(error.value)
    assert ("has ended" in str(error.value), str(tmp_path) in str(error.value)) == (gone, not gone)
    assert error.value.reason == "server-down", "a scope stays owed to the server"


def test_an_environment_without_a_server_says_what_to_do() -> None:
    with pytest.raises(GpuError, match="not started by a Jupyter server"):
        Server.from_environment({"GPUPOOL_KERNEL_ID": "x"})
