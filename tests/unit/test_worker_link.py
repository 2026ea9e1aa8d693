"""What the agent tells a worker whose memory is parked and resumed; the worker's answers are the test's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from gpupool.engines.local import LocalEngine
from gpupool.engines.records import DeviceGrant, Placement, StartedWorker, WorkerExited, WorkerSpec
from gpupool.engines.worker_start import RESUME_SECONDS, start_record
from gpupool.node.agent import Agent
from gpupool.node.agent_settings import AgentSettings
from gpupool.node.busy_meter import BusyMeter
from gpupool.node.clock import boottime_ns
from gpupool.node.connection import Connection
from gpupool.node.control import ANSWER_SECONDS, MOVE_SECONDS, REVOKE_SECONDS, ControlError
from gpupool.node.health import DeviceHealth
from gpupool.node.health_watch import HealthWatch
from gpupool.node.instructions import Instructions
from gpupool.node.messages import worker_report
from gpupool.node.park_budget import default_park_memory_mib, machine_memory_mib
from gpupool.node.session_images import SessionImages
from gpupool.node.worker_link import WorkerLink
from gpupool.pool.model.timers import Timers
from gpupool.proto import pool_pb2

from tests.support.patience import BUSY

FIRST, SECOND = DeviceGrant(0, "a" * 32, 500, 400), DeviceGrant(1, "b" * 32, 500, 400)


@dataclass
class Worker:
    """Answers `stats` by its place, `lease` by what is scripted, everything else by ok."""

    place: str = "device"
    state: str = "parked"
    before_lease: str = ""
    leases: list[str] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    #: It dies when it is told this.
    dies_at: str = ""
    #: Added to its `stats`.
    figures: str = ""
    connections: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while line := (await reader.readline()).decode().strip():
            self.heard.append(line)
            verb = line.split()[0]
            if verb == self.dies_at:
                writer.close()
                return
            if verb == "stats":
                answer = f"stats epoch=1 state={self.state} mem=0:7340032:7340032 place={self.place} park=ok move=ok"
                answer += self.figures
            elif verb == "lease" and self.before_lease:
                answer = f"{self.before_lease}\nok epoch=2 bytes=0"
            elif verb == "lease" and self.leases:
                answer = self.leases.pop(0)
            else:
                answer = "ok epoch=1 bytes=7340032"
            if verb == "park":
                self.place = "host"
            writer.write(answer.encode() + b"\n")

    @property
    def told(self) -> list[str]:
        return [line for line in self.heard if line != "stats"]


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[Worker]:
    made = Worker()
    server = await asyncio.start_unix_server(made.serve, str(tmp_path / "control.sock"))
    yield made
    server.close()


@pytest.fixture
async def link(worker: Worker, tmp_path: Path) -> AsyncIterator[WorkerLink]:
    started = StartedWorker("5e", 1, "127.0.0.1:1", tmp_path / "control.sock", {}, (FIRST,))
    made = WorkerLink(started, 5.0)
    made.revoked = True
    yield made
    await made.close()


async def test_a_connection_that_broke_is_opened_again_though_nothing_is_to_be_told(
    worker: Worker, link: WorkerLink
) -> None:
    """A parked worker that nobody is connected to ends after ten minutes."""
    worker.dies_at = "park"
    with pytest.raises(ControlError):
        await link.park(1)
    worker.dies_at = ""
    assert worker.connections == 1
    async with asyncio.timeout(10 * BUSY):
        while worker.connections == 1:
            link.stay_connected()
            await asyncio.sleep(0.01)
    for _ in range(3):
        link.stay_connected()
        await asyncio.sleep(0.01)
    assert worker.connections == 2


async def test_what_a_session_keeps_is_known_when_its_lease_is_over(worker: Worker, link: WorkerLink) -> None:
    assert (await link.revoke(1)).ok
    assert link.stats.memory_used == (7 << 20,)


async def test_memory_in_the_host_is_resumed_onto_the_devices_of_the_lease(
    worker: Worker, link: WorkerLink
) -> None:
    assert (await link.park(1)).bytes == 7 << 20
    assert link.stats.place == "host"
    assert (await link.apply(2, lambda: 99, (SECOND,))).ok
    assert worker.told[-1] == f"lease epoch=2 deadline_ns=99 share=0:500:400 device=0:{'b' * 32}"
    assert (link.devices, link.stats.place, link.epoch) == ((SECOND,), "device", 2)


async def test_its_devices_are_named_though_they_seem_the_same(worker: Worker, link: WorkerLink) -> None:
    """An agent that was killed may have noted devices that its worker never heard of."""
    worker.place = "host"
    await link.apply(2, lambda: 99, (FIRST,))
    assert worker.told[-1].endswith(f"device=0:{'a' * 32}")


async def test_a_new_lease_is_not_reported_with_the_fence_of_the_one_before(
    worker: Worker, link: WorkerLink
) -> None:
    worker.state = "fenced"
    await link.refresh()
    assert worker_report(link).state == "fenced"
    worker.before_lease = "fenced epoch=1"

    assert (await link.apply(2, lambda: 99, (FIRST,))).ok

    report = worker_report(link)
    assert (report.epoch, report.state) == (2, "attached")


async def test_resident_memory_goes_nowhere_else(worker: Worker, link: WorkerLink) -> None:
    assert (await link.apply(2, lambda: 99, (SECOND,))).message == "resident"
    assert worker.told == []
    assert link.devices == (FIRST,)


async def test_what_came_back_too_late_for_its_deadline_gets_another_one(
    worker: Worker, link: WorkerLink
) -> None:
    worker.place = "host"
    worker.leases = ["refused epoch=2 reason=late", "ok epoch=2"]
    deadlines = iter((50, 60))
    assert (await link.apply(2, lambda: next(deadlines), (SECOND,))).ok
    assert worker.told == [
        f"lease epoch=2 deadline_ns=50 share=0:500:400 device=0:{'b' * 32}",
        "lease epoch=2 deadline_ns=60 share=0:500:400",
    ]


async def test_what_cannot_be_resumed_stays_in_the_host(worker: Worker, link: WorkerLink) -> None:
    worker.place = "host"
    worker.leases = ["refused epoch=2 reason=resume-failed"]
    assert (await link.apply(2, lambda: 99, (SECOND,))).message == "resume-failed"
    assert (link.devices, link.stats.place, link.revoked) == ((FIRST,), "host", True)


async def test_a_lease_that_cannot_be_stored_is_refused_and_the_pool_hears_it(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def record(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(node.engine, "record", record, raising=False)
    async with asyncio.timeout(10.0 * BUSY):
        await node.obey("lease", pool_pb2.ApplyLease(session_id="5e", epoch=2))
    (told,) = node.told
    assert (told.applied.request, told.applied.ok, told.applied.answered) == (7, False, False)
    assert "No space left" in told.applied.message


@pytest.mark.parametrize("answers", [True, False])
async def test_the_pool_hears_whether_it_was_the_worker_that_said_no(
    node: Node, worker: Worker, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    async def record(*_: object) -> None:
        pass

    monkeypatch.setattr(node.engine, "record", record, raising=False)
    worker.place = "host"
    worker.leases = ["refused epoch=2 reason=resume-failed"]
    worker.dies_at = "" if answers else "lease"
    async with asyncio.timeout(10.0 * BUSY):
        await node.obey("lease", pool_pb2.ApplyLease(session_id="5e", epoch=2))
    (told,) = node.told
    assert (told.applied.request, told.applied.ok, told.applied.answered) == (7, False, answers)


async def test_work_under_way_is_no_idleness(
    worker: Worker, link: WorkerLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is a long kernel that has just ended: it was submitted long ago."""
    now = boottime_ns()
    clock = [now]
    monkeypatch.setattr("gpupool.node.worker_link.boottime_ns", lambda: clock[0])

    async def hear(seconds: float, figures: str) -> float:
        clock[0] = now + int(seconds * 1e9)
        worker.figures = figures
        await link.refresh()
        return link.idle_seconds

    submitted = f" last_submit_ns={now}"
    assert await hear(60, submitted + " device_ns=60000000000 work=running kernel=k work_ms=60000") == 0.0
    assert await hear(61, submitted + " device_ns=61000000000 work=draining kernel=k work_ms=61000") == 0.0
    assert await hear(62, submitted + " device_ns=62000000000 work=none") == 0.0
    assert await hear(65, submitted + " device_ns=62000000000 work=none") == 3.0
    assert await hear(66, submitted + " device_ns=62000000000 work=stopped kernel=k work_ms=62000") == 4.0
    report = worker_report(link).usage
    assert (report.work, report.kernel, report.work_seconds) == ("stopped", "k", 62.0)


def test_how_busy_a_session_is_counts_the_last_seconds() -> None:
    meter, second = BusyMeter(), 1_000_000_000
    assert meter.busy(0) == 0.0
    for at in range(10):
        meter.add(at * second, at * second // 2)
    assert meter.busy(9 * second) == 0.5
    for at in range(10, 16):
        meter.add(at * second, 4_500_000_000)
    assert meter.busy(15 * second) == 0.0
    meter.add(16 * second, 7_000_000_000)
    assert meter.busy(16 * second) == 0.5
    assert meter.busy(22 * second) == 0.0, "a worker that says nothing any more"


def test_a_revocation_has_more_time_than_other_commands() -> None:
    timers = Timers()
    assert timers.drain + 2.0 < REVOKE_SECONDS
    assert ANSWER_SECONDS < REVOKE_SECONDS < timers.fence


def test_a_start_record_says_where_the_session_comes_from_and_that_its_share_is_a_cap() -> None:
    spec = WorkerSpec(
        "5e",
        2,
        (SECOND,),
        "ab" * 32,
        99,
        move_key="cd" * 32,
        strict=True,
        image_source="127.0.0.1:7 local=/a/b",
    )
    lines = start_record(spec, (SECOND,)).decode().splitlines()
    assert "strict 1" in lines
    assert f"move_key {'cd' * 32}" in lines
    assert "image_from 127.0.0.1:7 local=/a/b" in lines
    assert "drain_ms 4000" in lines
    assert spec.resumes
    resumed = WorkerSpec("5e", 2, (SECOND,), "ab" * 32, 99, image=Path("/images/5e"))
    assert b"\nimage /images/5e\n" in start_record(resumed, (SECOND,))


def test_an_image_counts_when_it_is_whole(tmp_path: Path) -> None:
    images = SessionImages(tmp_path)
    (images.begin("5e") / "chunk").write_bytes(b"x" * 10)
    assert (images.sessions(), images.folder("5e")) == (frozenset(), None)
    images.finish("5e")
    assert images.begin("77").parent == tmp_path
    again = SessionImages(tmp_path)
    assert again.sessions() == {"5e"}
    assert (tmp_path / "5e" / "chunk").read_bytes() == b"x" * 10
    assert [path.name for path in tmp_path.iterdir()] == ["5e"], "what was not finished is gone"
    again.remove("5e")
    again.remove("5e")
    assert not again.sessions()
    with pytest.raises(ValueError, match="is no session"):
        images.begin("../5e")


def test_the_agent_gives_up_before_the_pool_does() -> None:
    """Else the pool would plan with a session that the agent moves all the same."""
    timers, agent = Timers(), AgentSettings(node="n", endpoint="")
    assert MOVE_SECONDS + agent.stop_grace_seconds + agent.answer_seconds < timers.park
    assert max(MOVE_SECONDS, RESUME_SECONDS) < timers.transfer


async def test_an_image_that_a_worker_did_not_finish_leaves_nothing_behind(
    worker: Worker, link: WorkerLink, tmp_path: Path
) -> None:
    images = SessionImages(tmp_path / "sessions")
    instructions = Instructions(
        node="n",
        engine=None,  # type: ignore[arg-type]  # none is asked: the worker goes on
        send=lambda message: None,
        answer_seconds=5.0,
        stop_grace_seconds=5.0,
        images=images,
    )
    instructions.links["5e"] = link
    worker.dies_at = "export"
    connection = Connection()
    order = pool_pb2.ToNode(request=7, park=pool_pb2.ParkMemory(session_id="5e", epoch=1, place="image"))
    await instructions.obey(connection, "park", order)
    answer = connection.outgoing.get_nowait().memory_parked
    assert (answer.request, answer.ok, answer.place) == (7, False, "image")
    assert "closed its control connection" in answer.message
    assert worker.told == [f"export folder={tmp_path}/sessions/5e.part"]
    assert not list((tmp_path / "sessions").iterdir())


class Engine:
    """One worker, which ends when it is told so, or when the test says so."""

    def __init__(self) -> None:
        self.ended: asyncio.Queue[WorkerExited] = asyncio.Queue()
        self.runs = True
        self.forgotten = False
        self.disk_full = False

    def end(self, status: int) -> None:
        if self.runs:
            self.ended.put_nowait(WorkerExited("5e", status, "it has ended"))
        self.runs = False

    async def watch(self) -> AsyncIterator[WorkerExited]:
        while True:
            yield await self.ended.get()

    async def stop(self, session: str, grace: float, ask: object = None, *, at_once: bool = False) -> None:
        self.end(-9 if at_once else 0)

    async def forget(self, session: str) -> None:
        self.forgotten = True

    async def record(self, session: str, epoch: int, devices: Sequence[DeviceGrant]) -> None:
        if self.disk_full:
            raise OSError("no space left on the device")


class Images(SessionImages):
    """Calls ``during`` while an image is being finished, which then fails if ``fails``."""

    during: Callable[[], object] = staticmethod(lambda: None)
    fails = False

    def finish(self, session: str) -> None:
        self.during()
        if self.fails:
            raise OSError("no space left on the device")
        super().finish(session)


@dataclass
class Node:
    """An agent with one session, whose connection to the pool is the test's."""

    agent: Agent
    engine: Engine
    images: Images
    connection: Connection

    def obey(self, kind: str, instruction: object) -> Coroutine[object, object, None]:
        message = pool_pb2.ToNode(request=7, **{kind: instruction})
        return self.agent._instructions.obey(self.connection, kind, message)

    async def writes_its_image(self) -> None:
        park = pool_pb2.ParkMemory(session_id="5e", epoch=1, place="image")
        async with asyncio.timeout(2.0 * BUSY):
            await self.obey("park", park)

    @property
    def told(self) -> list[Any]:
        messages = []
        while not self.connection.outgoing.empty():
            messages.append(self.connection.outgoing.get_nowait())
        return messages


@pytest.fixture
async def node(link: WorkerLink, tmp_path: Path) -> AsyncIterator[Node]:
    engine, images, nothing = Engine(), Images(tmp_path / "sessions"), HealthWatch(DeviceHealth())
    settings = AgentSettings(node="n", endpoint="127.0.0.1:1", images=images)
    agent = Agent(settings, cast("LocalEngine", engine), nothing)
    agent._instructions.links["5e"] = link
    agent._pool._connection = Connection()
    watching = asyncio.create_task(agent._watch())
    yield Node(agent, engine, images, agent._pool._connection)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


def seen(node: Node, end: Callable[[], object]) -> Callable[[], None]:
    """Called in another thread: ends the worker, and waits until the agent has seen that."""
    loop = asyncio.get_running_loop()

    async def ends() -> None:
        end()
        while not node.engine.forgotten and not node.agent._instructions.ends:
            await asyncio.sleep(0.001)

    return lambda: asyncio.run_coroutine_threadsafe(ends(), loop).result(5.0 * BUSY)


async def test_a_session_whose_worker_ends_while_its_image_is_made_whole_is_on_disk(node: Node) -> None:
    node.images.during = seen(node, lambda: node.engine.end(-11))
    await node.writes_its_image()
    (answer,) = node.told
    assert answer.memory_parked.ok
    assert node.agent._instructions.images() == {"5e"}
    assert not node.agent._instructions.ends


async def test_a_session_whose_worker_ends_while_its_image_fails_has_ended(node: Node) -> None:
    node.images.during = seen(node, lambda: node.engine.end(-11))
    node.images.fails = True
    await node.writes_its_image()
    end, answer = node.told
    assert (end.exited.session_id, end.exited.exit_status) == ("5e", -11)
    assert not answer.memory_parked.ok
    assert not node.images.sessions()


async def test_a_reset_leaves_no_image_that_was_just_being_made_whole(node: Node) -> None:
    resets: list[asyncio.Task[None]] = []

    def reset() -> None:
        stop = pool_pb2.StopWorker(session_id="5e", reason="reset")
        resets.append(asyncio.create_task(node.obey("stop", stop)))  # type: ignore[arg-type]

    node.images.during = seen(node, reset)
    await node.writes_its_image()
    await resets[0]
    assert [message.WhichOneof("message") for message in node.told] == ["memory_parked", "exited"]
    assert not node.images.sessions()


@pytest.mark.parametrize(
    ("dies_at", "says", "disk_full", "expected"),
    [
        ("", "ok epoch=1", False, (True, True, False)),
        ("", "refused epoch=1 reason=in-use used_mib=9", False, (False, True, False)),
        ("lease", "", False, (False, False, True)),
        ("", "nonsense", False, (False, False, True)),
        ("", "", True, (False, False, False)),
    ],
)
async def test_only_a_worker_that_was_told_a_size_and_said_nothing_may_have_it(
    node: Node, worker: Worker, link: WorkerLink, dies_at: str, says: str, disk_full: bool, expected: object
) -> None:
    link.revoked = False
    worker.dies_at, worker.leases, node.engine.disk_full = dies_at, [says], disk_full
    await node.obey("lease", pool_pb2.ApplyLease(session_id="5e", epoch=1, fence_seconds=25.0))
    (message,) = node.told
    assert (message.applied.ok, message.applied.answered, message.applied.unsure) == expected


class SlowEngine:
    """Starts the worker that the test plays."""

    def __init__(self, control: Path) -> None:
        self._control = control

    async def reserve(self, grants: Sequence[DeviceGrant]) -> Placement:
        return Placement((FIRST,))

    async def start(self, placement: Placement, spec: WorkerSpec) -> StartedWorker:
        return StartedWorker(spec.session, spec.epoch, "127.0.0.1:1", self._control, {}, placement.devices)


async def test_a_worker_that_has_started_has_the_deadline_of_now_before_it_is_looked_at(
    worker: Worker, tmp_path: Path
) -> None:
    sent: list[Any] = []
    instructions = Instructions(
        node="n",
        engine=SlowEngine(tmp_path / "control.sock"),  # type: ignore[arg-type]
        send=sent.append,
        answer_seconds=5.0,
        stop_grace_seconds=5.0,
    )
    start = pool_pb2.StartWorker(session_id="5e", epoch=1, fence_seconds=25)
    await instructions.obey(Connection(base_ns=3), "start", pool_pb2.ToNode(request=7, start=start))
    assert worker.heard == ["lease epoch=1 deadline_ns=25000000003", "stats"]
    assert [message.WhichOneof("message") for message in sent] == ["started"]
    await instructions.links["5e"].close()


def test_a_quarter_of_the_machine_is_for_parked_sessions() -> None:
    assert 0 < default_park_memory_mib() <= machine_memory_mib() // 4
