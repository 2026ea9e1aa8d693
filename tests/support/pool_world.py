"""A world around the pool's machine: simulated nodes whose messages are delayed, cut and lost, a clock that a
test moves, and a real ledger that the pool is reopened from. It knows at every moment which simulated
workers would serve a client, and which compute, which is what the pool must never get wrong."""

from __future__ import annotations

import itertools
import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpupool.ledger.ledger import Ledger
from gpupool.model import events, instructions
from gpupool.model.clock import Clock
from gpupool.model.instructions import Instruction, Journal
from gpupool.model.state import LeaseRecord, ProjectRecord, SessionRecord, Usage
from gpupool.node.profile import DeviceProfile
from gpupool.pool.lifecycle.invariants import check_invariants
from gpupool.pool.lifecycle.machine import Machine
from gpupool.pool.lifecycle.machine_memory import lesson, remembered
from gpupool.pool.lifecycle.replay import run_context
from gpupool.pool.model.consolidation import Consolidation
from gpupool.pool.model.step import Ids, Step
from gpupool.pool.model.timers import Timers
from gpupool.scheduler.model import PlacedShare, Quota
from gpupool.shares import usable_mib

from tests.support.index_from_records import check_index
from tests.support.view_from_records import check_view


def counting_ids(prefix: str = "") -> Ids:
    """Names that tests can predict: sessions s1, s2, … and leases l1, l2, …"""
    sessions, leases = itertools.count(1), itertools.count(1)
    return Ids(
        session=lambda: f"{prefix}s{next(sessions)}",
        lease=lambda: f"{prefix}l{next(leases)}",
        token=lambda: "ab" * 32,
        requests=itertools.count(1),
    )


def offered(ordinal: int, total_mib: int = 8192, *, software: bool = True) -> events.OfferedDevice:
    name, uuid = "Software GPU (gpupool)", f"{ordinal:032x}"
    profile = DeviceProfile(ordinal, name, uuid, software, total_mib, "0000:00:00.0", {}).encode(13000)
    return events.OfferedDevice(ordinal, name, uuid, software, total_mib, profile)


@dataclass
class SimWorker:
    """A worker as the data plane sees it.

    `keeps`: what its session has allocated per device, MiB; `place`: where that lies; `devices`: where it lives.
    """

    session: str
    epoch: int
    shares: tuple[PlacedShare, ...]
    deadline: float
    revoked: bool = False
    keeps: tuple[int, ...] = ()
    place: str = "device"
    park_obstacle: str = ""
    move_obstacle: str = ""
    #: It does not take or give back leases any more (a kernel that never ends holds up the answer), though
    #: renewals still reach it; it goes on with its work until it is fenced.
    stuck: bool = False
    #: It does what a lease says, and its answer comes too late for the agent.
    late: bool = False
    #: When its program was last heard; None: it computes all the time.
    idle_since: float | None = None
    in_flight: bool = False
    #: Until when its kernel would run; infinite: for ever. How long it may go on after its lease.
    kernel_until: float = 0.0
    drain: float = 4.0
    revoked_at: float = 0.0
    #: Device time so far, as of `counted_at`.
    device_seconds: float = 0.0
    counted_at: float = 0.0

    def lease_over_at(self) -> float:
        return self.revoked_at if self.revoked else self.deadline

    def computes(self, now: float) -> bool:
        """Whether the device works for it, with a lease or in the grace after it."""
        return now < self.kernel_until and now < self.lease_over_at() + self.drain

    def runs(self, now: float, seconds: float = math.inf) -> None:
        """Its program starts a kernel."""
        self.count(now)
        self.kernel_until = now + seconds

    def count(self, now: float) -> None:
        """To be called before anything changes that says how long it computes."""
        until = min(now, self.kernel_until, self.lease_over_at() + self.drain)
        self.device_seconds += max(0.0, until - self.counted_at)
        self.counted_at = now

    def revoke(self, now: float) -> None:
        if not self.revoked:
            self.count(now)
            self.revoked, self.revoked_at = True, min(now, self.deadline)

    def work(self, now: float) -> str:
        if not self.computes(now):
            return ""
        return "running" if self.serves(now) else "draining"

    def serves(self, now: float) -> bool:
        return not self.revoked and now < self.deadline

    def allocate(self, fraction: float) -> None:
        """What the program does while it is attached."""
        self.keeps = tuple(int(share.mib * fraction) for share in self.shares)

    def resident(self, now: float) -> list[tuple[str, int]]:
        """(device, MiB) that it takes there: its share while it may serve, then what it keeps."""
        if self.serves(now):
            return [(share.device_id, share.mib) for share in self.shares]
        if self.place == "host":
            return []
        return [(share.device_id, mib) for share, mib in zip(self.shares, self.keeps, strict=True)]


@dataclass
class SimNode:
    """A node with its agent: the rules are those of `gpupool.node`, without its I/O."""

    name: str
    devices: tuple[events.OfferedDevice, ...]
    fence: float
    drain: float = 4.0
    workers: dict[str, SimWorker] = field(default_factory=dict)
    #: Workers that the agent has forgotten; they serve until their deadline all the same.
    orphans: list[SimWorker] = field(default_factory=list)
    run: int = 1
    connection: int | None = None
    base: float = 0.0
    number: int = 0
    sent_at: dict[int, float] = field(default_factory=dict)
    to_node: deque[Instruction] = field(default_factory=deque)
    to_pool: deque[events.Event] = field(default_factory=deque)
    park_memory_mib: int = 4096
    park_disk_mib: int = 0
    worker_ports: int = 0
    images: dict[str, tuple[int, ...]] = field(default_factory=dict)
    copying: deque[instructions.ParkMemory] = field(default_factory=deque)
    #: What a worker allocates as soon as it is attached.
    fraction: float = 0.25
    #: The network between nodes is broken: no worker can fetch a session.
    cut_off: bool = False
    #: Its driver can stop a kernel; else a worker whose kernel runs on after its lease ends itself.
    stops_kernels: bool = True
    #: Revocations that are answered when nothing computes any more.
    draining: list[instructions.RevokeLease] = field(default_factory=list)
    #: Ends of workers that the pool has not confirmed to have heard.
    ends: list[events.WorkerExited] = field(default_factory=list)
    others: Mapping[str, SimNode] = field(default_factory=dict)

    def cut(self) -> None:
        """The stream breaks; what was under way is lost."""
        self.connection = None
        self.to_node.clear()
        self.to_pool.clear()
        self.draining.clear()
        self.sent_at.clear()

    def reports(self, now: float) -> tuple[events.ReportedWorker, ...]:
        return tuple(self.report(worker, now) for worker in self.workers.values())

    def report(self, worker: SimWorker, now: float) -> events.ReportedWorker:
        worker.count(now)
        return events.ReportedWorker(
            worker.session,
            worker.epoch,
            "parked" if worker.revoked else "attached" if worker.serves(now) else "fenced",
            f"{self.name}:1",
            Usage(
                client_connected=True,
                memory_used=tuple(mib << 20 for mib in worker.keeps),
                idle_seconds=0.0 if worker.idle_since is None else max(0.0, now - worker.idle_since),
                in_flight=worker.in_flight,
                device_seconds=worker.device_seconds,
                work=worker.work(now),
                kernel="forever" if worker.computes(now) else "",
            ),
            place=worker.place,
            park_obstacle=worker.park_obstacle,
            move_obstacle=worker.move_obstacle,
            device_ids=tuple(share.device_id for share in worker.shares),
        )

    def hello(self, connection: int, now: float) -> events.NodeHello:
        self.cut()
        self.connection = connection
        self.base = now
        self.to_pool.extend(replace(end, connection=connection) for end in self.ends)
        return events.NodeHello(
            now, self.name, connection, f"run-{self.run}", self.devices, self.reports(now),
            park_memory_mib=self.park_memory_mib, park_disk_mib=self.park_disk_mib,
            worker_ports=self.worker_ports,
            images=frozenset(self.images),
        )  # fmt: skip

    def heartbeat(self, now: float) -> None:
        assert self.connection is not None
        self.number += 1
        self.sent_at[self.number] = now
        self.to_pool.append(
            events.NodeHeartbeat(now, self.name, self.connection, self.number, self.reports(now))
        )

    def obey(self, item: Instruction, now: float) -> None:
        """Executes one message of the pool; answers go into `to_pool`."""
        assert self.connection is not None
        me = (now, self.name, self.connection)
        match item:
            case instructions.AnswerHeartbeat():
                self.base = max(self.base, self.sent_at.pop(item.number, self.base))
                self.ends.clear()
                for lease in item.leases:
                    worker = self.workers.get(lease.session_id)
                    if worker is not None and worker.epoch == lease.epoch and worker.serves(now):
                        worker.count(now)
                        worker.deadline = max(worker.deadline, self.base + self.fence)
            case instructions.StartWorker():
                worker = self.workers.get(item.session_id)
                if worker is None:
                    keeps = self._session_to_start(item, now)
                    if keeps is None:
                        self.to_pool.append(
                            events.WorkerFailed(*me, item.session_id, item.epoch, "it could not be fetched")
                        )
                        return
                    worker = SimWorker(item.session_id, item.epoch, item.shares, self.base + self.fence)
                    worker.drain, worker.counted_at = self.drain, now
                    worker.keeps = keeps
                    self.workers[item.session_id] = worker
                elif worker.epoch != item.epoch:
                    text = "session has a worker already"
                    self.to_pool.append(events.WorkerFailed(*me, item.session_id, item.epoch, text))
                    return
                self.to_pool.append(events.WorkerStarted(*me, item.session_id, item.epoch, f"{self.name}:1"))
            case instructions.ApplyLease():
                worker = self.workers.get(item.session_id)
                # Only a higher epoch opens the gate of a worker that has fenced itself.
                ok = worker is not None and (
                    item.epoch > worker.epoch or (item.epoch == worker.epoch and now < worker.deadline)
                )
                ok = ok and not worker.stuck
                text, used = "" if ok else "refused", 0
                if worker is not None and ok:
                    same = [s.device_id for s in worker.shares] == [s.device_id for s in item.shares]
                    small = any(s.mib < m for s, m in zip(item.shares, worker.keeps, strict=True))
                    if small:
                        ok, text, used = False, "in-use", 1
                    elif not same and worker.place == "device":
                        ok, text = False, "resident"
                if worker is not None and ok:
                    worker.count(now)
                    new = item.epoch > worker.epoch
                    worker.epoch, worker.shares, worker.revoked = item.epoch, item.shares, False
                    worker.place = "device"
                    worker.deadline = self.base + self.fence
                    if new:
                        worker.allocate(self.fraction)
                report = self.report(worker, now) if worker is not None else None
                unsure = worker is not None and (worker.stuck or worker.late)
                if unsure:
                    ok, text, used = False, "no answer", 0
                self.to_pool.append(
                    events.LeaseApplied(
                        *me,
                        item.session_id,
                        item.epoch,
                        ok,
                        text,
                        item.request,
                        report,
                        used,
                        answered=worker is not None and not unsure,
                        unsure=unsure,
                    )
                )
            case instructions.RevokeLease():
                worker = self.workers.get(item.session_id)
                hears = worker is None or not worker.stuck
                if worker is not None and hears and item.epoch >= worker.epoch:
                    worker.epoch = item.epoch
                    worker.revoke(now)
                    if worker.computes(now):
                        self.draining.append(item)
                        return
                report = self.report(worker, now) if worker is not None else None
                self.to_pool.append(
                    events.LeaseApplied(*me, item.session_id, item.epoch, hears, "", item.request, report)
                )
            case instructions.ParkMemory():
                self.copying.append(item)  # it takes a while, and others are served meanwhile
            case instructions.StopWorker():
                worker = self.workers.pop(item.session_id, None)
                self.images.pop(item.session_id, None)
                report = self.report(worker, now) if worker is not None else None
                self.to_pool.append(events.WorkerExited(*me, item.session_id, 0, "", report))
            case _:
                raise TypeError(f"not a message for a node: {item}")

    def _session_to_start(self, item: instructions.StartWorker, now: float) -> tuple[int, ...] | None:
        """What the new worker keeps from the start; None: it cannot be had."""
        if item.from_image:
            return self.images.pop(item.session_id, None)
        if not item.image_source:
            return tuple(int(share.mib * self.fraction) for share in item.shares)
        source = self.others.get(item.image_source.partition(":")[0])
        worker = source.workers.get(item.session_id) if source is not None else None
        if worker is None or worker.move_obstacle or worker.epoch >= item.epoch or self.cut_off:
            return None
        assert not worker.serves(now), "a session is fetched from a worker that is attached"
        return worker.keeps

    def finish(self, now: float) -> None:
        """What workers do by themselves: work that ran on after a lease is over, and revocations are answered."""
        for worker in list(self.workers.values()):
            over_at = worker.lease_over_at() + worker.drain
            if now < over_at or worker.kernel_until <= over_at:
                continue
            worker.count(now)
            worker.kernel_until = over_at
            if not self.stops_kernels:
                del self.workers[worker.session]
                me = (now, self.name, self.connection or 0, worker.session)
                self.ends.append(events.WorkerExited(*me, 11, "kernel forever", self.report(worker, now)))
                if self.connection is not None:
                    self.to_pool.append(self.ends[-1])
        for item in list(self.draining):
            last = self.workers.get(item.session_id)
            if last is not None and last.computes(now):
                continue
            self.draining.remove(item)
            if last is not None and self.connection == item.connection:
                me = (now, self.name, self.connection, item.session_id)
                report = self.report(last, now)
                self.to_pool.append(events.LeaseApplied(*me, item.epoch, True, "", item.request, report))

    def copy_memory(self, now: float) -> bool:
        """Carries out the oldest order to move memory; False: there is none."""
        if not self.copying:
            return False
        item = self.copying.popleft()
        worker = self.workers.get(item.session_id)
        if worker is None:
            ok, text = False, "no worker of this session runs here"
        elif worker.serves(now):
            ok, text = False, "attached"
        elif worker.stuck or worker.park_obstacle:
            ok, text = False, worker.park_obstacle or "busy"
        else:
            ok, text, worker.place = True, "", "host"
            if item.place == "image":
                self.images[item.session_id] = worker.keeps
                del self.workers[item.session_id]
        mib = sum(worker.keeps) if worker is not None else 0
        if self.connection == item.connection:
            me = (now, self.name, item.connection)
            self.to_pool.append(
                events.MemoryParked(*me, item.session_id, item.epoch, ok, text, mib, item.request, item.place)
            )
        return True

    def forget_workers(self) -> None:
        """The agent was killed and lost its notes; what it started runs on, seen by nobody."""
        self.cut()
        self.run += 1
        self.copying.clear()
        self.ends.clear()
        self.orphans += self.workers.values()
        self.workers.clear()

    def crash_worker(self, session: str, now: float) -> None:
        del self.workers[session]
        if self.connection is not None:
            self.to_pool.append(events.WorkerExited(now, self.name, self.connection, session, -9, "killed"))


class PoolWorld:
    """Pool, ledger, nodes and time. Every step checks all invariants."""

    def __init__(
        self,
        path: Path | str | None = None,
        *,
        nodes: Mapping[str, int] | None = None,
        quotas: Mapping[str, Quota] | None = None,
        total_mib: int = 8192,
        timers: Timers | None = None,
        consolidate: Consolidation = Consolidation.IDLE,
    ) -> None:
        self.timers = timers or Timers()
        self.consolidate = consolidate
        self.quotas = dict(quotas or {})
        self.now = 1000.0
        self.told: list[Instruction] = []
        self.journal: list[Journal] = []
        self.faults: list[instructions.Fault] = []
        self._connections = itertools.count(1)
        self._runs = itertools.count(1)
        self._clock = Clock(offset=1_700_000_000.0)
        self._path = path
        self.ledger = Ledger(path, self._clock) if path else None
        self.nodes = {
            name: SimNode(
                name, tuple(offered(i, total_mib) for i in range(count)), self.timers.fence, self.timers.drain
            )
            for name, count in (nodes or {"node1": 2}).items()
        }
        for node in self.nodes.values():
            node.others = self.nodes
        self.machine = self._open()

    def _open(self, served_until: float | None = None) -> Machine:
        from gpupool.model.state import State

        run = next(self._runs)
        state = self.ledger.load() if self.ledger else State()
        if self.ledger is not None:
            self.ledger.context = run_context(self.timers, self.quotas, consolidate=self.consolidate)
        ids = counting_ids("" if run == 1 else f"r{run}")
        machine = Machine(state, self.timers, ids, self.quotas, consolidate=self.consolidate)
        self.machine = machine
        self.handle(events.Restarted(self.now, served_until))
        return machine

    # ---- one step

    def handle(self, event: events.Event, *, lose_messages: bool = False) -> list[Instruction]:
        """Machine, ledger, messages, invariants; as the shell does it."""
        memory = remembered(self.machine)
        done = self.machine.handle(event)
        if self.ledger is not None:
            journal = [x for x in done if isinstance(x, Journal)]
            self.ledger.store(self.machine.state, journal, event.now, event, memory, lesson(self.machine))
        self.machine.state.commit()
        for item in done if not lose_messages else ():
            self._deliver(item)
        check_invariants(self.machine.state, self.quotas)
        check_view(self.machine.state, self.timers, self.now)
        check_index(self.machine.state)
        self.check_workers()
        return done

    def step(self) -> Step:
        """For tests that apply a single rule; to be given to `deliver`."""
        return self.machine.step(self.now)

    def deliver(self, step: Step) -> None:
        """What `handle` does after the machine."""
        if self.ledger is not None:
            self.ledger.store(self.machine.state, [x for x in step.out if isinstance(x, Journal)], self.now)
        self.machine.state.commit()
        for item in step.out:
            self._deliver(item)
        check_invariants(self.machine.state, self.quotas)

    def _deliver(self, item: Instruction) -> None:
        match item:
            case Journal():
                self.journal.append(item)
            case instructions.Fault():
                self.faults.append(item)
            case instructions.DropNode():
                node = self.nodes[item.node]
                if node.connection == item.connection:
                    node.cut()
            case (
                instructions.TellQueued()
                | instructions.TellGranted()
                | instructions.TellRefused()
                | instructions.TellResized()
            ):
                self.told.append(item)
            case _:
                node = self.nodes[item.node]
                if node.connection == item.connection:
                    node.to_node.append(item)

    def check_workers(self) -> None:
        """The real thing: what serves clients at this moment, and what parked sessions keep, never exceeds a
        device or the host memory for it, and no session has two workers that serve."""
        milli: Counter[str] = Counter()
        mib: Counter[str] = Counter()
        serving: Counter[str] = Counter()
        for node in self.nodes.values():
            for worker in (*node.workers.values(), *node.orphans):
                if worker.serves(self.now):
                    serving[worker.session] += 1
                    for share in worker.shares:
                        milli[share.device_id] += share.milli
                        mib[share.device_id] += share.mib
                elif worker.computes(self.now):
                    for share in worker.shares:
                        milli[share.device_id] += share.milli
            for worker in node.workers.values():
                if not worker.serves(self.now):
                    mib.update(dict(worker.resident(self.now)))
            host = sum(sum(w.keeps) for w in node.workers.values() if w.place == "host")
            assert host <= node.park_memory_mib, f"{host} MiB in host memory of {node.name}"
            disk = sum(sum(mib) for mib in node.images.values())
            assert disk <= node.park_disk_mib, f"{disk} MiB on disk of {node.name}"
            ports = node.worker_ports or len(node.workers)
            assert len(node.workers) <= ports, (
                f"{len(node.workers)} workers on the {ports} ports of {node.name}"
            )
        assert all(count == 1 for count in serving.values()), f"workers that serve: {serving}"
        for node in self.nodes.values():
            for device in node.devices:
                device_id = f"{node.name}/{device.ordinal}"
                assert milli[device_id] <= 1000, f"workers serve {milli[device_id]} milli of {device_id}"
                assert mib[device_id] <= usable_mib(device.total_mib), f"{mib[device_id]} MiB of {device_id}"

    # ---- what tests do

    def connect(self, name: str = "node1") -> None:
        old = self.nodes[name].connection
        if old is not None:
            self.nodes[name].cut()
            self.handle(events.NodeDisconnected(self.now, name, old))
        self.handle(self.nodes[name].hello(next(self._connections), self.now))

    def disconnect(self, name: str = "node1") -> None:
        connection = self.nodes[name].connection
        self.nodes[name].cut()
        if connection is not None:
            self.handle(events.NodeDisconnected(self.now, name, connection))

    def step_to_node(self, name: str) -> bool:
        node = self.nodes[name]
        if not node.to_node:
            return False
        session_id = getattr(node.to_node[0], "session_id", "")
        while any(item.session_id == session_id for item in node.copying):
            node.copy_memory(self.now)  # instructions for one session wait for each other
        node.obey(node.to_node.popleft(), self.now)
        self.check_workers()
        return True

    def step_copy(self, name: str) -> bool:
        copied = self.nodes[name].copy_memory(self.now)
        self.check_workers()
        return copied

    def step_to_pool(self, name: str) -> bool:
        node = self.nodes[name]
        if not node.to_pool:
            return False
        event = node.to_pool.popleft()
        object.__setattr__(event, "now", self.now)  # it arrives now, whenever it was sent
        self.handle(event)
        return True

    def settle(self) -> None:
        """Delivers all that is under way."""
        busy = True
        while busy:
            busy = False
            for name in self.nodes:
                while self.step_to_node(name) or self.step_to_pool(name) or self.step_copy(name):
                    busy = True

    def advance(self, seconds: float) -> None:
        """Time passes in steps of the tick, without any heartbeat."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + self.timers.tick * 2)
            for node in self.nodes.values():
                node.finish(self.now)
            self.handle(events.Tick(self.now))

    def live(self, seconds: float, renew: bool = True) -> None:
        """Time passes and all goes well: heartbeats, answers, renewals."""
        end = self.now + seconds
        while self.now < end:
            self.advance(min(self.timers.heartbeat, end - self.now))
            for node in self.nodes.values():
                if node.connection is not None:
                    node.heartbeat(self.now)
            self.settle()
            if renew:
                live = tuple(x.id for x in self.machine.state.leases.values() if x.live)
                self.handle(events.Renewed(self.now, live))

    def crash(self, down: float = 0.0) -> None:
        """kill -9 of the pool: streams break, what was not stored is gone. It is back after `down` seconds."""
        assert self.ledger is not None
        assert self._path is not None
        self.ledger.close()
        for node in self.nodes.values():
            node.cut()
        served_until = self.now + self.timers.reuse
        self.now += down
        self.ledger = Ledger(self._path, self._clock)
        self._open(served_until if served_until < self.now else None)

    def request(
        self,
        key: str,
        milli: int | None = None,
        *,
        user: str = "ann",
        wait: float | None = 0.0,
        **more: object,
    ) -> list[Instruction]:
        count = more.pop("count", 0)
        mib = more.pop("mib", None)
        event = events.Requested(self.now, user, key, milli, mib, count, wait=wait, **more)  # type: ignore[arg-type]
        return self.handle(event)

    def project(self, path: str, deserved: int | None = 0, **more: object) -> None:
        """Makes a project, or changes it; milli-GPU."""
        state = self.machine.state
        state.projects[path] = ProjectRecord(path, deserved, **more)  # type: ignore[arg-type]
        state.commit()
        self.machine.queue.forget()

    def live_leases(self, project: str) -> list[LeaseRecord]:
        return [x for x in self.machine.state.leases.values() if x.live and x.project == project]

    def attach(self, key: str, milli: int | None = None, **more: object) -> str:
        """Asks, lets the worker start, and returns the lease's id."""
        self.request(key, milli, **more)  # type: ignore[arg-type]
        self.settle()
        granted = [x for x in self.told if isinstance(x, instructions.TellGranted) and x.key == key]
        assert granted, f"{key} was not granted: {self.told[-1:]}"
        return granted[-1].lease_id

    def release(self, lease_id: str, reason: str = "release", *, close: bool = False) -> None:
        self.handle(events.Released(self.now, lease_id, reason, close))

    def answer(self, key: str) -> Instruction:
        """The last thing that the holder of `key` was told."""
        about = [
            x
            for x in self.told
            if isinstance(x, instructions.TellQueued | instructions.TellGranted | instructions.TellRefused)
            and x.key == key
        ]
        assert about, f"{key} was told nothing"
        return about[-1]

    def free(self, device_id: str = "node1/0") -> int:
        from gpupool.pool.model.view import pool_view

        view = pool_view(self.machine.state, self.timers, self.quotas, self.now)
        return next(device.free_milli for device in view.devices if device.id == device_id)


def lease(world: PoolWorld, lease_id: str) -> LeaseRecord:
    return world.machine.state.leases[lease_id]


def session(world: PoolWorld, lease_id: str) -> SessionRecord:
    return world.machine.state.sessions[lease(world, lease_id).session_id]
