"""How clients of MPS end, and how many there may be: a program stands in for NVIDIA's, and workers are scripted."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gpupool.engines import mps_clients
from gpupool.engines.local import LocalEngine
from gpupool.engines.mps import MpsDaemon, MpsUnusableError
from gpupool.engines.mps_clients import end_client, most_clients
from gpupool.engines.records import DeviceGrant, EngineError, StartedWorker, WorkerExited, WorkerSpec
from gpupool.node.clock import boottime_ns
from gpupool.node.driver import probe

from tests.support.patience import BUSY

SCRIPTED_WORKER = (sys.executable, str(Path(__file__).parents[1] / "support" / "scripted_worker.py"))
#: Two servers; clients of the second one are in a file. It writes down what it is told, and which pipes it would use.
CONTROL = """#!/bin/sh
read -r command server client
echo "$command $server $client" >>{folder}/told
echo "$CUDA_MPS_PIPE_DIRECTORY" >{folder}/pipes
case "$command" in
  get_server_list) echo 900; echo 901 ;;
  get_client_list) if [ "$server" = 901 ]; then cat {folder}/clients; fi ;;
  terminate_client) {answer} ;;
esac
"""


class Control:
    """The control program of the machine, and what it was told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.daemon = MpsDaemon(folder / "pipe", 4711)
        self.answers("exit 0")
        (folder / "clients").touch()
        (folder / "told").touch()

    def answers(self, script: str) -> None:
        """What it does when it is told to end a client."""
        program = self.folder / "nvidia-cuda-mps-control"
        program.write_text(CONTROL.format(folder=self.folder, answer=script))
        program.chmod(0o700)

    def clients(self, *pids: int) -> None:
        (self.folder / "clients").write_text("".join(f"{pid}\n" for pid in pids))

    @property
    def told(self) -> list[str]:
        return [line.strip() for line in (self.folder / "told").read_text().splitlines()]


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Control:
    folder = tmp_path / "control"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    # As a machine with much to do has it: the limit is for one that hangs.
    monkeypatch.setattr(mps_clients, "END_SECONDS", 60.0 * BUSY)
    return Control(folder)


async def test_the_server_that_has_the_client_is_told_to_end_it(control: Control) -> None:
    control.clients(41, 42)
    await end_client(control.daemon, 42)
    assert control.told == [
        "get_server_list",
        "get_client_list 900",
        "get_client_list 901",
        "terminate_client 901 42",
    ]
    assert (control.folder / "pipes").read_text().strip() == str(control.daemon.pipes)


async def test_a_process_that_is_no_client_is_left_alone(control: Control) -> None:
    control.clients(41)
    control.answers("exit 1")
    await end_client(control.daemon, 42)
    assert not any(line.startswith("terminate_client") for line in control.told)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("exit 1", "terminate_client 901 42: status 1"),
        ("echo no daemon; exit 1", "no daemon"),
        ("echo CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_INVALID_VALUE"),
    ],
)
async def test_a_client_that_was_not_ended_is_an_error(control: Control, answer: str, why: str) -> None:
    control.clients(42)
    control.answers(answer)
    with pytest.raises(MpsUnusableError, match=why):
        await end_client(control.daemon, 42)


async def test_success_may_be_said(control: Control) -> None:
    control.clients(42)
    control.answers("echo CUDA_SUCCESS")
    await end_client(control.daemon, 42)


async def test_a_daemon_that_hangs_is_not_waited_for(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mps_clients, "END_SECONDS", 0.2)
    (control.folder / "nvidia-cuda-mps-control").write_text("#!/bin/sh\nexec sleep 600\n")
    with pytest.raises(MpsUnusableError, match=r"did not answer within 0\.2 s"):
        await end_client(control.daemon, 42)


async def test_a_machine_without_the_program_says_so(
    tmp_path: Path, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MpsUnusableError, match="nvidia-cuda-mps-control cannot be run"):
        await end_client(control.daemon, 42)


@pytest.mark.parametrize(("cuda", "most"), [(12040, 48), (13000, 48), (13010, 60), (13020, 60)])
def test_how_many_clients_a_device_has(cuda: int, most: int) -> None:
    assert most_clients(cuda) == most


class Log:
    """In the place of the engine's."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warning(self, event: str, **_more: object) -> None:
        self.warnings.append(event)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log()
    monkeypatch.setattr("gpupool.engines.local.logger", made)
    return made


@pytest.fixture
async def engine(tmp_path: Path, control: Control) -> AsyncIterator[LocalEngine]:
    async def inventory():  # type: ignore[no-untyped-def]
        return (await probe("/dev/null", SCRIPTED_WORKER, {"GPUPOOL_SOFTGPU_DEVICES": "2"})).inventory()

    made = LocalEngine(
        run_directory=tmp_path / "workers",
        worker_command=SCRIPTED_WORKER,
        driver="/dev/null",
        inventory=inventory,
        environment=control.daemon.environment(),
        mps_daemon=control.daemon,
        most_mps_clients=2,
    )
    try:
        yield made
    finally:
        for number in range(4):
            await made.stop(session_of(number), 0.1, at_once=True)
        await made.close()


def session_of(number: int) -> str:
    return f"{number:032x}"


async def started(engine: LocalEngine, number: int, ordinal: int = 0) -> StartedWorker:
    placement = await engine.reserve((DeviceGrant(ordinal, "", 200, 512),))
    deadline = boottime_ns() + 600 * 10**9
    return await engine.start(
        placement, WorkerSpec(session_of(number), 1, placement.devices, "ab" * 32, deadline)
    )


async def exit_of(engine: LocalEngine) -> WorkerExited:
    async with asyncio.timeout(30.0 * BUSY):
        async for event in engine.watch():
            return event
    raise AssertionError("watch() ended")


@pytest.mark.parametrize("at_once", [False, True])
async def test_the_work_of_a_client_has_left_the_device_before_the_worker_is_asked_or_forced_to_end(
    engine: LocalEngine, control: Control, log: Log, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    monkeypatch.setenv("SCRIPTED_WORKER", "deaf")
    monkeypatch.setattr("gpupool.engines.local.TERMINATE_SECONDS", 0.3)
    worker = await started(engine, 0)
    pid = int(worker.state["pid"])
    control.clients(pid)
    control.answers(f"if kill -0 {pid}; then echo alive >>{control.folder}/told; fi")
    when_asked: list[list[str]] = []

    async def ask() -> None:
        when_asked.append(control.told)

    await engine.stop(session_of(0), 0.1, ask, at_once=at_once)
    assert control.told[-2:] == [f"terminate_client 901 {pid}", "alive"]
    assert when_asked == [control.told]
    assert (await exit_of(engine)).exit_status == -signal.SIGKILL
    assert log.warnings == []


async def test_a_worker_ends_also_where_its_work_could_not_be_ended_before(
    engine: LocalEngine, control: Control, log: Log
) -> None:
    worker = await started(engine, 0)
    control.clients(int(worker.state["pid"]))
    control.answers("exit 1")
    await engine.stop(session_of(0), 0.1)
    assert (await exit_of(engine)).session == session_of(0)
    assert len(log.warnings) == 1


async def test_a_device_has_no_more_sessions_than_mps_serves(engine: LocalEngine) -> None:
    for number in (0, 1):
        await started(engine, number)
    with pytest.raises(EngineError, match="device 0 has 2 sessions, and MPS serves no more than 2"):
        await started(engine, 2)
    await started(engine, 3, ordinal=1)
    await engine.stop(session_of(0), 0.1)
    await started(engine, 2)
