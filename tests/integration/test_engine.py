"""What every engine must do; each engine is one parameter. Processes are real, their work is scripted."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest
from gpupool.client.native import native_directory
from gpupool.client.worker_address import WorkerAddress
from gpupool.engines.local import LocalEngine
from gpupool.engines.records import (
    OTHER_PROTOCOL_STATUS,
    WORKER_PROTOCOL,
    DeviceGrant,
    EngineError,
    Placement,
    StaleEpochError,
    StartedWorker,
    WorkerExited,
    WorkerSpec,
)
from gpupool.node.clock import boottime_ns
from gpupool.node.control import ControlChannel
from gpupool.node.driver import probe

from tests.support.pool_node import native_worker_is_built

SCRIPTED_WORKER = (sys.executable, str(Path(__file__).parents[1] / "support" / "scripted_worker.py"))
SESSION = "0123456789abcdef0123456789abcdef"
TOKEN = "ab" * 32
DEVICE = DeviceGrant(0, "", 200, 1587)


class Bench:
    """Makes engines over the same run directory, as restarts of an agent would."""

    def __init__(self, directory: Path, worker: tuple[str, ...], driver: str) -> None:
        self.directory = directory
        self.worker = worker
        self.driver = driver
        self.engines: list[LocalEngine] = []

    def engine(self, ready_seconds: float = 20.0) -> LocalEngine:
        async def inventory():  # type: ignore[no-untyped-def]
            return (await probe(self.driver, self.worker, {"GPUPOOL_SOFTGPU_DEVICES": "2"})).inventory()

        engine = LocalEngine(
            run_directory=self.directory / "workers",
            worker_command=self.worker,
            driver=self.driver,
            inventory=inventory,
            environment={"GPUPOOL_SOFTGPU_DEVICES": "2"},
            ready_seconds=ready_seconds,
        )
        self.engines.append(engine)
        return engine


WORKERS = [
    pytest.param("scripted"),
    pytest.param(
        "real", marks=pytest.mark.skipif(not native_worker_is_built(), reason="native worker not built")
    ),
]


@pytest.fixture(params=WORKERS)
async def bench(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    """The local engine with the worker that a test can script, and with the real one."""
    native = native_directory()
    if request.param == "real":
        made = Bench(
            tmp_path, (str(native / "bin" / "gpupool-worker"),), str(native / "softgpu" / "libcuda.so.1")
        )
    else:
        made = Bench(tmp_path, SCRIPTED_WORKER, "/dev/null")
    async for running in _bench(made):
        yield running


@pytest.fixture
async def scripted(tmp_path: Path) -> AsyncIterator[Bench]:
    async for running in _bench(Bench(tmp_path, SCRIPTED_WORKER, "/dev/null")):
        yield running


async def _bench(made: Bench) -> AsyncIterator[Bench]:
    yield made
    for engine in made.engines:
        await engine.close()
    for process in processes(made):
        process.kill()


def processes(bench: Bench) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        inside = str(process.info["cwd"] or "").startswith(str(bench.directory))
        if inside and "--control" in (process.info["cmdline"] or []):
            found.append(process)
    return found


def spec(epoch: int = 1, session: str = SESSION) -> WorkerSpec:
    return WorkerSpec(session, epoch, (DEVICE,), TOKEN, boottime_ns() + 30 * 10**9)


async def start(engine: LocalEngine, epoch: int = 1, session: str = SESSION) -> StartedWorker:
    placement = await engine.reserve((DEVICE,))
    assert isinstance(placement, Placement)
    return await engine.start(placement, spec(epoch, session))


async def next_exit(engine: LocalEngine) -> WorkerExited:
    async with asyncio.timeout(10):
        async for event in engine.watch():
            if isinstance(event, WorkerExited):
                return event
    raise AssertionError("watch() ended")


def pid_of(worker: StartedWorker) -> int:
    return int(worker.state["pid"])


async def test_the_inventory_names_devices_by_ordinal_and_the_drivers_own_id(bench: Bench) -> None:
    devices = await bench.engine().inventory()
    assert [device.ordinal for device in devices] == [0, 1]
    assert len({device.uuid for device in devices}) == 2
    assert all(device.total_mib == 8192 and device.healthy for device in devices)


async def test_a_device_that_is_not_there_is_never_placed(bench: Bench) -> None:
    engine = bench.engine()
    with pytest.raises(EngineError, match="no device 7"):
        await engine.reserve((DeviceGrant(7, "", 100, 100),))
    with pytest.raises(EngineError, match="8192 MiB, not 9000 MiB"):
        await engine.reserve((DeviceGrant(0, "", 1000, 9000),))


async def test_a_started_worker_answers_on_its_control_socket(bench: Bench) -> None:
    worker = await start(bench.engine())
    said = []
    channel = await ControlChannel.connect(worker.control, said.append)
    try:
        await channel.stats()
        assert said[0].epoch == 1
    finally:
        await channel.close()
    address = WorkerAddress.parse(worker.address)
    _, writer = await asyncio.open_connection(address.host, address.port)
    writer.close()
    if not address.local:
        return  # an engine whose workers are elsewhere
    _, writer = await asyncio.open_unix_connection(address.local)
    writer.close()


async def test_the_token_is_on_no_command_line_in_no_environment_and_in_no_file(bench: Bench) -> None:
    worker = await start(bench.engine())
    process = psutil.Process(pid_of(worker))
    assert TOKEN not in " ".join(process.cmdline())
    assert TOKEN not in " ".join(process.environ().values())
    for path in bench.directory.rglob("*"):
        if path.is_file():
            assert TOKEN.encode() not in path.read_bytes(), path
        if path.is_dir() and path.name == SESSION:
            assert path.stat().st_mode & 0o077 == 0


async def test_kill_9_is_told_once_with_its_signal(bench: Bench) -> None:
    engine = bench.engine()
    worker = await start(engine)
    os.kill(pid_of(worker), signal.SIGKILL)
    event = await next_exit(engine)
    assert (event.session, event.exit_status) == (SESSION, -signal.SIGKILL)
    assert "SIGKILL" in event.reason


async def test_stop_is_idempotent_and_ignores_who_it_does_not_know(bench: Bench) -> None:
    engine = bench.engine()
    worker = await start(engine)
    await engine.stop("f" * 32, 0.1)
    await engine.stop(SESSION, 0.1)
    assert not psutil.pid_exists(pid_of(worker))
    await engine.stop(SESSION, 0.1)
    assert (await next_exit(engine)).exit_status in (0, -signal.SIGTERM)


async def test_a_polite_stop_comes_first(bench: Bench) -> None:
    engine = bench.engine()
    worker = await start(engine)

    async def ask() -> None:
        channel = await ControlChannel.connect(worker.control, lambda notice: None)
        try:
            await channel.stop()
        finally:
            await channel.close()

    await engine.stop(SESSION, 5.0, ask)
    assert (await next_exit(engine)).exit_status == 0


async def test_a_worker_that_ignores_everything_is_killed(
    scripted: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = scripted
    monkeypatch.setenv("SCRIPTED_WORKER", "deaf")
    monkeypatch.setattr("gpupool.engines.local.TERMINATE_SECONDS", 0.3)
    engine = bench.engine()
    await start(engine)
    await engine.stop(SESSION, 0.1)
    assert (await next_exit(engine)).exit_status == -signal.SIGKILL


async def test_at_once_is_without_a_request_to_terminate(
    scripted: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIPTED_WORKER", "deaf")
    monkeypatch.setattr("gpupool.engines.local.TERMINATE_SECONDS", 600.0)
    engine = scripted.engine()
    await start(engine)
    await engine.stop(SESSION, 0.1, at_once=True)
    assert (await next_exit(engine)).exit_status == -signal.SIGKILL


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("fail", "the scripted device is broken"),
        ("die-before-record", "did not start"),
        ("silent", "not ready"),
    ],
)
async def test_a_failed_start_says_why_and_leaves_no_process(
    scripted: Bench, monkeypatch: pytest.MonkeyPatch, script: str, says: str
) -> None:
    bench = scripted
    monkeypatch.setenv("SCRIPTED_WORKER", script)
    engine = bench.engine(ready_seconds=1.0 if script == "silent" else 20.0)
    with pytest.raises(EngineError, match=says):
        await start(engine)
    assert processes(bench) == []
    monkeypatch.setenv("SCRIPTED_WORKER", "")
    await start(engine)


async def test_an_engine_that_closes_during_a_start_leaves_no_process(
    scripted: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that run live on. Of one that is only starting, nobody would know."""
    monkeypatch.setenv("SCRIPTED_WORKER", "silent")
    engine = scripted.engine()
    starting = asyncio.create_task(start(engine))
    state = scripted.directory / "workers" / SESSION / "state.json"
    async with asyncio.timeout(20):
        while not state.exists() or not json.loads(state.read_text())["pid"]:
            await asyncio.sleep(0.02)
    await engine.close()
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    async with asyncio.timeout(20):
        while any(process.status() != psutil.STATUS_ZOMBIE for process in processes(scripted)):
            await asyncio.sleep(0.02)


async def test_a_second_start_of_a_session_is_refused_while_it_runs(bench: Bench) -> None:
    engine = bench.engine()
    await start(engine, epoch=3)
    for epoch in (2, 3, 4):
        with pytest.raises(StaleEpochError, match="has a worker already"):
            await start(engine, epoch=epoch)
    assert len(processes(bench)) == 1


async def test_a_session_that_was_elsewhere_comes_back_to_an_engine_that_still_knows_its_end(
    bench: Bench,
) -> None:
    engine = bench.engine()
    await start(engine, epoch=3)
    await engine.stop(SESSION, 1.0)
    with pytest.raises(StaleEpochError, match="has a worker already"):
        await start(engine, epoch=3)
    await start(engine, epoch=5)
    assert len(processes(bench)) == 1


async def test_a_restarted_engine_adopts_the_living_and_never_starts_them_twice(bench: Bench) -> None:
    first = bench.engine()
    worker = await start(first, epoch=5)
    await first.record(SESSION, 6, (DeviceGrant(0, worker.devices[0].uuid, 300, 2380),))
    await first.close()
    second = bench.engine()
    (adopted,) = await second.list_owned()
    assert (pid_of(adopted), adopted.address, adopted.epoch) == (pid_of(worker), worker.address, 6)
    assert adopted.devices[0].milli == 300
    with pytest.raises(StaleEpochError):
        await start(second, epoch=7)
    await second.stop(SESSION, 0.1)
    assert (await next_exit(second)).session == SESSION
    assert processes(bench) == []


def rewrite(state: Path, **values: object) -> None:
    """What another version of the engine would have stored; None: nothing."""
    stored = json.loads(state.read_text()) | values
    state.write_text(
        json.dumps({key: value for key, value in stored.items() if value is not None or key == "exit_status"})
    )


@pytest.mark.parametrize(("stored", "known"), [(WORKER_PROTOCOL - 1, WORKER_PROTOCOL - 1), (None, 0)])
async def test_a_worker_of_another_version_is_known_as_such_and_its_end_says_so(
    scripted: Bench, stored: int | None, known: int
) -> None:
    first = scripted.engine()
    worker = await start(first)
    assert worker.protocol == WORKER_PROTOCOL
    await first.close()
    state = next(scripted.directory.rglob("state.json"))
    rewrite(state, protocol=stored)
    second = scripted.engine()
    (found,) = await second.list_owned()
    assert found.protocol == known
    await second.refuse(SESSION, OTHER_PROTOCOL_STATUS, "of another version")
    assert processes(scripted) == []
    event = await next_exit(second)
    assert (event.exit_status, event.reason) == (OTHER_PROTOCOL_STATUS, "of another version")
    # An agent that is killed before the pool has heard it tells the next one.
    await second.close()
    third = scripted.engine()
    assert await third.list_owned() == ()
    assert await next_exit(third) == event


async def test_a_worker_that_an_agent_refused_and_could_not_end_tells_its_own_end_later(
    scripted: Bench,
) -> None:
    first = scripted.engine()
    worker = await start(first)
    await first.close()
    rewrite(
        next(scripted.directory.rglob("state.json")),
        exit_status=OTHER_PROTOCOL_STATUS,
        reason="of another version",
    )
    second = scripted.engine()
    assert len(await second.list_owned()) == 1
    os.kill(pid_of(worker), signal.SIGKILL)
    event = await next_exit(second)
    assert (event.exit_status, "SIGKILL" in event.reason) == (-signal.SIGKILL, True)


async def test_an_end_that_nobody_saw_is_told_after_the_restart(bench: Bench) -> None:
    first = bench.engine()
    worker = await start(first)
    await first.close()
    os.kill(pid_of(worker), signal.SIGKILL)
    os.waitpid(pid_of(worker), 0)
    second = bench.engine()
    assert await second.list_owned() == ()
    assert (await next_exit(second)).session == SESSION
    await second.forget(SESSION)
    assert list((bench.directory / "workers").iterdir()) == []


async def test_an_end_is_told_again_until_it_is_forgotten(bench: Bench) -> None:
    first = bench.engine()
    worker = await start(first)
    os.kill(pid_of(worker), signal.SIGKILL)
    await next_exit(first)
    await first.close()
    second = bench.engine()
    await second.list_owned()
    event = await next_exit(second)
    assert (event.session, event.exit_status) == (SESSION, -signal.SIGKILL)


async def test_a_process_that_took_over_the_number_is_not_adopted_and_not_signalled(bench: Bench) -> None:
    first = bench.engine()
    worker = await start(first)
    await first.close()
    state = next(bench.directory.rglob("state.json"))
    bystander = psutil.Process(os.getpid())
    state.write_text(state.read_text().replace(f'"pid": {pid_of(worker)}', f'"pid": {bystander.pid}'))
    second = bench.engine()
    assert await second.list_owned() == ()
    await second.stop(SESSION, 0.1)
    assert bystander.is_running()
    os.kill(pid_of(worker), signal.SIGKILL)
    os.waitpid(pid_of(worker), 0)


Damage = Callable[[Path], object]


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_text(""),
        lambda path: path.write_text("{"),
        lambda path: path.write_text('{"session": "../..", "epoch": 1}'),
        lambda path: path.write_bytes(b"\xff" * 200_000),
        lambda path: path.unlink(),
    ],
    ids=["empty", "cut", "strange", "huge", "missing"],
)
async def test_a_damaged_state_file_stops_nobody(bench: Bench, damage: Damage) -> None:
    folder = bench.directory / "workers" / SESSION
    for made in (folder.parent, folder):
        made.mkdir(mode=0o700)  # as the engine makes them
    (folder / "state.json").write_text("")
    damage(folder / "state.json")
    engine = bench.engine()
    assert await engine.list_owned() == ()
    await start(engine)
