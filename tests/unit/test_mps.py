"""MPS: which daemon workers are clients of, and what they are told. Pipes and processes are made here; no GPU is needed."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.engines import mps
from gpupool.engines.mps import MpsDaemon, MpsUnusableError, find_daemon, partition, pipes_folder, without_mps
from gpupool.node.agent_settings import AgentError, AgentSettings
from gpupool.node.service import NodeOptions, _mps_daemon, run_node

PID = "4711"
ME = os.geteuid()


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """As /proc, with a control daemon in it."""
    process = tmp_path / "proc" / PID
    process.mkdir(parents=True)
    (process / "comm").write_text("nvidia-cuda-mps\n")
    return tmp_path / "proc"


@pytest.fixture
def pipes(tmp_path: Path) -> Iterator[Path]:
    """What a control daemon makes at its start."""
    folder = tmp_path / "pipes"
    folder.mkdir()
    (folder / "nvidia-cuda-mps-control.pid").write_text(PID)
    with socket.socket(socket.AF_UNIX) as control:
        control.bind(str(folder / "control"))
        yield folder


def test_a_daemon_that_runs_for_this_user_is_found(pipes: Path, proc: Path) -> None:
    daemon = find_daemon(pipes, proc=proc)
    assert daemon == MpsDaemon(pipes, int(PID))
    assert daemon.environment() == {"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}


def test_its_control_may_be_a_named_pipe(pipes: Path, proc: Path) -> None:
    (pipes / "control").unlink()
    os.mkfifo(pipes / "control")
    assert find_daemon(pipes, proc=proc).pid == int(PID)


def test_nobody_elses_daemon_is_trusted(pipes: Path, proc: Path) -> None:
    if ME == 0:
        os.chown(pipes / "control", 12345, -1)
    with pytest.raises(MpsUnusableError, match="belongs to another user"):
        find_daemon(pipes, uid=ME if ME == 0 else ME + 1, proc=proc)


@pytest.mark.parametrize(
    ("break_it", "why"),
    [
        (lambda pipes, proc: (pipes / "control").unlink(), "no MPS control daemon"),
        (lambda pipes, proc: (pipes / "nvidia-cuda-mps-control.pid").unlink(), "no MPS control daemon"),
        (lambda pipes, proc: (pipes / "nvidia-cuda-mps-control.pid").write_text("../1"), "names no process"),
        (
            lambda pipes, proc: (pipes / "nvidia-cuda-mps-control.pid").write_text("99"),
            "does not run any more",
        ),
        (lambda pipes, proc: (proc / PID / "comm").write_text("bash"), "is no MPS control daemon"),
        (
            lambda pipes, proc: ((pipes / "control").unlink(), (pipes / "control").touch()),
            "is not the folder",
        ),
        (
            lambda pipes, proc: (
                (pipes / "nvidia-cuda-mps-control.pid").unlink(),
                os.mkfifo(pipes / "nvidia-cuda-mps-control.pid"),
            ),
            "names no process",
        ),
        (
            lambda pipes, proc: (
                (pipes / "nvidia-cuda-mps-control.pid").unlink(),
                (pipes / "nvidia-cuda-mps-control.pid").symlink_to("/dev/zero"),
            ),
            "no MPS control daemon",
        ),
    ],
)
def test_what_is_left_of_a_daemon_is_none(pipes: Path, proc: Path, break_it: object, why: str) -> None:
    assert callable(break_it)
    break_it(pipes, proc)
    with pytest.raises(MpsUnusableError, match=why):
        find_daemon(pipes, proc=proc)


def test_where_the_daemon_is_looked_for() -> None:
    assert pipes_folder({}) == Path("/tmp/nvidia-mps")
    assert pipes_folder({"CUDA_MPS_PIPE_DIRECTORY": "/run/mps"}) == Path("/run/mps")


def test_by_default_workers_are_clients_of_no_daemon(tmp_path: Path) -> None:
    assert _mps_daemon("off", software=False) is None
    [(name, place)] = without_mps(tmp_path).items()
    assert name == "CUDA_MPS_PIPE_DIRECTORY"
    assert not Path(place).exists()


def test_a_missing_daemon_matters_where_it_is_required(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path / "nowhere"))
    assert _mps_daemon("auto", software=False) is None
    with pytest.raises(AgentError, match=r"--mps require: no MPS control daemon at .*nowhere"):
        _mps_daemon("require", software=False)
    with pytest.raises(AgentError, match="software GPUs have no MPS"):
        _mps_daemon("require", software=True)


async def test_a_daemon_is_of_no_use_to_software_gpus_that_only_the_driver_can_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPUPOOL_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(mps, "find_daemon", lambda pipes: MpsDaemon(pipes, int(PID)))
    worker = str(Path(__file__).parents[1] / "support" / "scripted_worker.py")
    options = NodeOptions(
        AgentSettings(node="n"), driver="/dev/null", worker_command=(worker,), mps="require"
    )
    with pytest.raises(AgentError, match="software GPUs have no MPS"):
        await run_node(options)


@pytest.mark.parametrize(("milli", "percent"), [(1, "1"), (99, "9"), (250, "25"), (999, "99"), (1000, "100")])
def test_a_hard_cap_rounds_no_share_up(milli: int, percent: str) -> None:
    assert partition(milli) == {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": percent}


def test_a_worker_is_told_what_keeps_it_to_its_share() -> None:
    assert mps.start_record(strict=True) == b"mps partition\n"
    assert mps.start_record(strict=False) == b"mps beside\n"
