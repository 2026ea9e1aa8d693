"""A pool of one user whose GPUs are her own jobs of Slurm: nothing but a file is set up, and nothing is left of it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import psutil
import pytest
from gpupool.embedded.borrowing import borrowing
from gpupool.embedded.join import join
from gpupool.embedded.options import EmbeddedOptions

from tests.support import stand_in_slurm
from tests.support.patience import BUSY
from tests.support.stack import wait_until

GPUPOOL = (sys.executable, "-m", "gpupool.cli.main")
PROGRAM = (
    "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); n = ctypes.c_int()\n"
    "assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(n)) == 0\n"
    "print('devices', n.value)"
)
SECRET = "of-the-hub"


@pytest.fixture
def home() -> Iterator[Path]:
    # A short path: addresses of Unix sockets end at 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="gp-"))
    yield folder
    for group in stand_in_slurm.living(folder / "slurm").values():
        os.killpg(group, signal.SIGKILL)
    rmtree(folder, ignore_errors=True)


def _providers(home: Path) -> Path:
    programs = stand_in_slurm.install(home / "slurm")
    file = home / "providers.toml"
    file.write_text(
        f"""[lab]
kind = "slurm"
maximum = 2
idle = "1h"
advertise_host = "127.0.0.1"
programs = "{programs}"
node_options = ["--driver", "software"]
"""
    )
    return file


def _run(home: Path) -> str:
    wish = [*GPUPOOL, "run", "-p", "0.2", "--wait", "5m", "--", sys.executable, "-c", PROGRAM]
    environment = {**os.environ, "GPUPOOL_HOME": str(home)}
    done = subprocess.run(
        wish, env=environment, capture_output=True, text=True, timeout=120 * BUSY, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0 and "devices 1" in said, said
    return said


def _answers(home: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(home / "pool.sock")) == 0


def _agents(home: Path) -> list[psutil.Process]:
    groups = set(stand_in_slurm.living(home / "slurm").values())
    found = []
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if "node" in (process.info["cmdline"] or ()) and os.getpgid(process.pid) in groups:
                found.append(process)
    return found


def _keeper(home: Path) -> psutil.Process:
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            known = "gpupool.embedded" in (process.info["cmdline"] or ())
            if known and process.environ().get("GPUPOOL_HOME") == str(home):
                return process
    raise AssertionError("there is no keeper")


@pytest.mark.slow
def test_jobs_serve_dial_an_encrypted_port_know_no_secret_and_end_with_the_pool(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", SECRET)
    monkeypatch.setenv("SLURM_JOB_GPUS", "7")
    lifeline = join(home, borrowing(EmbeddedOptions(), _providers(home), home, "127.0.0.1"))
    assert lifeline is not None
    try:
        ready = lifeline.ready
        assert (ready.gpus, ready.providers, list(ready.pids)) == ((), ("lab",), ["the pool"])
        assert stand_in_slurm.living(home / "slurm") == {}
        assert "lab can bring one" in _run(home)
        (agent,) = _agents(home)
        words = agent.cmdline()
        assert words[words.index("--pool") + 1].startswith("tls:127.0.0.1:")
        token = Path(words[words.index("--token-file") + 1])
        assert token == home / "providers" / "lab" / "node.token" and token.stat().st_mode & 0o777 == 0o600
        known = agent.environ()
        assert SECRET not in known.values() and "SLURM_JOB_GPUS" not in known
        assert known["GPUPOOL_CA_FILE"] == str(home / "tls" / "pool.pem")
        _run(home)
        assert len(stand_in_slurm.living(home / "slurm")) == 1
    finally:
        lifeline.leave()
    wait_until(lambda: not stand_in_slurm.living(home / "slurm"), 60, "the job to end with the pool")


@pytest.mark.slow
def test_an_agent_that_cannot_start_says_why_to_whoever_waits(home: Path) -> None:
    file = _providers(home)
    file.write_text(file.read_text().replace('"software"]', '"nothing/libcuda.so.1"]'))
    lifeline = join(home, borrowing(EmbeddedOptions(), file, home, "127.0.0.1"))
    assert lifeline is not None
    environment = {**os.environ, "GPUPOOL_HOME": str(home)}
    wish = [*GPUPOOL, "run", "-p", "0.2", "--wait", "10m", "--", "true"]
    log = home / "run.txt"
    with log.open("wb") as output:
        waiting = subprocess.Popen(wish, env=environment, stdout=output, stderr=output)
    try:
        wait_until(lambda: "nothing/libcuda.so.1" in log.read_text(), 60, "the agent's words")
    finally:
        waiting.send_signal(signal.SIGINT)
        waiting.wait(30 * BUSY)
        lifeline.leave()


@pytest.mark.slow
def test_a_pool_that_is_killed_finds_its_jobs_and_nothing_is_left_if_its_keeper_is(home: Path) -> None:
    lifeline = join(home, borrowing(EmbeddedOptions(), _providers(home), home, "127.0.0.1"))
    assert lifeline is not None
    _run(home)
    before = stand_in_slurm.living(home / "slurm")
    first = lifeline.ready.pids["the pool"]
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: lifeline.told(1.0) is not None, 60, "the keeper to start it again")
    assert lifeline.ready.pids["the pool"] != first
    wait_until(lambda: _answers(home), 60, "the pool")
    # Its agent comes back to the same port.
    _run(home)
    assert stand_in_slurm.living(home / "slurm") == before
    _keeper(home).kill()
    lifeline.close()
    wait_until(lambda: not stand_in_slurm.living(home / "slurm"), 60, "the job to end with the pool")


@pytest.mark.slow
def test_the_job_of_a_pool_that_was_killed_with_its_keeper_serves_the_next(home: Path) -> None:
    file = _providers(home)
    lifeline = join(home, borrowing(EmbeddedOptions(), file, home, "127.0.0.1"))
    assert lifeline is not None
    _run(home)
    before = stand_in_slurm.living(home / "slurm")
    keeper, pool = _keeper(home), psutil.Process(lifeline.ready.pids["the pool"])
    for process in (keeper, pool):
        process.suspend()  # otherwise the first that dies gives the other time to end in order
    for process in (pool, keeper):
        process.kill()
    # While the pool dies its socket still accepts, and one without a keeper is taken for somebody else's.
    _, alive = psutil.wait_procs([pool, keeper], timeout=20 * BUSY)
    assert not alive
    lifeline.close()
    lifeline = join(home, borrowing(EmbeddedOptions(), file, home, "127.0.0.1"))
    assert lifeline is not None
    _run(home)
    assert stand_in_slurm.living(home / "slurm") == before
    lifeline.leave()
    # A process that was told to end takes a moment.
    wait_until(lambda: not stand_in_slurm.living(home / "slurm"), 20, "the end of the job")


@pytest.mark.slow
def test_an_agent_that_was_told_so_ends_when_the_pool_is_gone(home: Path) -> None:
    environment = {**os.environ, "GPUPOOL_HOME": str(home)}
    pool = subprocess.Popen([*GPUPOOL, "pool", "serve"], env=environment)
    wait_until(lambda: _answers(home), 60, "the pool")
    # Longer than the first connection takes on a busy machine.
    command = [*GPUPOOL, "node", "start", "--driver", "software", "--leave-after", "15s"]
    agent = subprocess.Popen([*command, "--heartbeat-seconds", "0.2"], env=environment)
    try:
        _run(home)
        assert agent.poll() is None
        pool.kill()
        pool.wait()
        assert agent.wait(60 * BUSY) == 0
    finally:
        for process in (agent, pool):
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_file_that_the_pool_refuses_is_told_in_lines_without_those_of_an_earlier_start(home: Path) -> None:
    file = home / "providers.toml"
    environment = {**os.environ, "GPUPOOL_HOME": str(home / "h")}
    for setting, reason in (
        ('gres = "shard"', "'shard' is a part of a GPU"),
        ('drain_before = "10s"', "at least 60 s"),
    ):
        file.write_text(f'[lab]\nkind = "slurm"\n{setting}\n')
        up = subprocess.run(
            [*GPUPOOL, "up", "--providers", file, "--listen", "127.0.0.1"],
            env=environment, capture_output=True, text=True, timeout=120 * BUSY, check=False,
        )  # fmt: skip
        said, *log = up.stderr.splitlines()
        assert up.returncode == 1 and str(home / "h" / "logs" / "pool.log") in said
        assert reason in log[-1] and not any("shard" in line for line in log if reason not in line), log
