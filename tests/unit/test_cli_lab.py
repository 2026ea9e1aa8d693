"""JupyterLab outlasts the pool that was started for it: which is started again, but not without end."""

from __future__ import annotations

import itertools
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from gpupool.cli.top import lab
from gpupool.embedded.loopback import answers
from gpupool.embedded.options import EmbeddedOptions


class Lifeline:
    """Of a keeper that has ended."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The lifelines of the pools that were started, each of which ends at once."""
    made: list[Any] = []

    def ends(_: object) -> None:
        raise typer.Exit(1)

    def joined(*_: object) -> Any:
        made.append(Lifeline())
        return made[-1]

    monkeypatch.setattr(lab.up, "report", ends)
    monkeypatch.setattr(lab.up, "joined", joined)
    return made


def ends_every(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab.time, "monotonic", itertools.count(1000.0, seconds).__next__)


def hears(pool: Any, times: int) -> None:
    for _ in range(times):
        if pool.lifeline is not None:
            pool.hear(pool.lifeline)


def test_a_pool_that_ends_again_and_again_within_a_minute_is_not_started_any_more(
    tmp_path: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends_every(10.0, monkeypatch)
    pool = lab._Pool(tmp_path, EmbeddedOptions())
    pool.start()
    hears(pool, 10)
    assert (len(started), pool.lifeline) == (lab._MOST_ENDS, None)
    assert all(one.closed for one in started)


def test_one_that_ends_now_and_then_is_started_each_time(
    tmp_path: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends_every(lab._ENDS_SECONDS, monkeypatch)
    pool = lab._Pool(tmp_path, EmbeddedOptions())
    pool.start()
    hears(pool, 10)
    assert len(started) == 11
    assert pool.lifeline is started[-1]


def test_one_that_cannot_be_started_leaves_jupyterlab_without_a_pool(
    tmp_path: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = lab._Pool(tmp_path, EmbeddedOptions())
    pool.start()

    def full(*_: object) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lab.up, "joined", full)
    hears(pool, 1)
    assert pool.lifeline is None
    assert "No space left on device" in capsys.readouterr().err


def test_jupyterlab_uses_the_pool_that_was_started_whatever_its_settings_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def popen(command: list[str], **_: object) -> Any:
        commands.append(command)
        return None

    monkeypatch.setattr(lab.subprocess, "Popen", popen)
    lab._start(tmp_path, tmp_path, 8888, "token", {"pool_endpoint": "unix:/p", "hub_identity": False})
    assert {"--GpuPoolExtension.pool_endpoint=unix:/p", "--GpuPoolExtension.hub_identity=False"} <= set(
        commands[0]
    )


def test_a_full_disk_under_its_notes_ends_no_jupyterlab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, _: str) -> int:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_text", full)
    process: Any = SimpleNamespace(pid=1)
    lab._record(tmp_path, lab.Lab(process, tmp_path / "log", 0.0, 8888), None)
    assert "No space left on device" in capsys.readouterr().err


def test_it_is_asked_whether_it_answers_and_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ok(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Ok) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert answers(f"http://127.0.0.1:{server.server_port}/api")
        server.shutdown()
