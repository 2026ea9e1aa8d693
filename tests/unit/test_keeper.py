"""The process beside a program that holds its share: what it hears, and how it ends. There is no pool."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.client import keeper
from gpupool.client.keeper import Keeper
from gpupool.client.session_file import PROCESS_VARIABLE, SESSION_FILE_VARIABLE

from tests.support.patience import BUSY


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keeper]:
    monkeypatch.setattr(keeper, "CLOSE_SECONDS", 5 * BUSY)
    for name in (SESSION_FILE_VARIABLE, PROCESS_VARIABLE, "TRITON_LIBCUDA_PATH"):
        monkeypatch.setenv(name, "")  # the keeper's start sets it
    monkeypatch.setenv("GPUPOOL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GPUPOOL_ENDPOINT", f"unix:{tmp_path}/pool.sock")
    held = Keeper()
    yield held
    held.close()


def test_it_ends_with_the_program_while_a_child_holds_its_pipe(kept: Keeper) -> None:
    kept.start()
    process = kept._process
    assert process is not None
    assert process.stdin is not None
    with subprocess.Popen(["sleep", "600"], pass_fds=[process.stdin.fileno()]) as child:
        try:
            kept.close()
            assert process.poll() == 0
            assert child.poll() is None
        finally:
            child.kill()


def test_what_an_environment_prints_in_each_interpreter_is_skipped(
    kept: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('Welcome!')\nprint(7)\nprint('{}', flush=True)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    kept.start()
    assert kept.call("status")["state"] == "none"
