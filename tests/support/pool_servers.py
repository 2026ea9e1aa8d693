"""Several real pool servers on one PostgreSQL database, and real node agents that know them all: to be killed and stopped."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import psutil
from gpupool.client.native import native_directory
from gpupool.ledger import schema
from gpupool.ledger.ledger import Ledger
from gpupool.model.clock import Clock
from gpupool.pool.lifecycle.invariants import check_invariants
from gpupool.proto import pool_pb2 as pb
from gpupool.proto import pool_pb2_grpc
from sqlalchemy import make_url, select

from tests.support import forked_cli
from tests.support.patience import until_late
from tests.support.pool_node import ROOT, SCRIPTED_WORKER

SERVERS = ("a", "b")


class PoolServers:
    """`with PoolServers(url) as pool:`; nothing that it started is left afterwards.

    Args:
        ledger: URL of an empty database.
        names: of the servers; each has a home of its own.
        scale: of all of the pool's timers.
        real_workers: on the software GPU; else processes that use no device.
        serve: further options by server.
    """

    def __init__(
        self,
        ledger: str,
        names: Iterable[str] = SERVERS,
        *,
        scale: float = 1.0,
        real_workers: bool = False,
        serve: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self.ledger = ledger
        self.names = tuple(names)
        self.scale = scale
        # A short path: addresses of Unix sockets end at 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="gps-"))
        self.processes: dict[str, forked_cli.Command] = {}
        self._serve = dict(serve or {})
        self._real_workers = real_workers
        self.environment = {
            key: value for key, value in os.environ.items() if not key.startswith(("GPUPOOL_", "SCRIPTED_"))
        } | {
            "GPUPOOL_ENDPOINT": self.endpoint,
            "GPUPOOL_NATIVE_DIR": str(native_directory()),
            "GPUPOOL_RENEW_SECONDS": str(5 * scale),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "server"), os.environ.get("PYTHONPATH", "")]),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        for pid in self.worker_pids():
            os.kill(pid, signal.SIGKILL)
        if kind is not None:
            for name in self.processes:
                print(f"--- {name}\n{self.log(name)[-3000:]}")
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- where they are

    @property
    def database(self) -> str:
        """The name of the database."""
        name = make_url(self.ledger).database
        assert name is not None
        return name

    def home(self, name: str) -> Path:
        return self.folder / name

    def endpoint_of(self, name: str) -> str:
        return f"unix:{self.home(name)}/pool.sock"

    @property
    def endpoint(self) -> str:
        """All of them, as callers name them."""
        return ",".join(self.endpoint_of(name) for name in self.names)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    # ---- starting and ending

    def start(self, *names: str) -> None:
        for name in names or self.names:
            self._start(name, "pool", "serve", "--standby", "--ledger", self.ledger,
                        "--timers-scale", str(self.scale), *self._serve.get(name, ()))  # fmt: skip

    def start_node(self, name: str, gpus: int = 2) -> None:
        worker = (
            ("--driver", "software")
            if self._real_workers
            else ("--driver", "/dev/null", "--worker", str(SCRIPTED_WORKER))
        )
        self._start(name, "node", "start", "--name", name, *worker, "--software-gpus", str(gpus),
                    "--heartbeat-seconds", str(5 * self.scale), "--leave-workers")  # fmt: skip

    def _start(self, name: str, *arguments: str) -> None:
        home = self.home(name)
        home.mkdir(mode=0o700, exist_ok=True)
        with (self.folder / f"{name}.log").open("ab") as log:
            environment = {**self.environment, "GPUPOOL_HOME": str(home)}
            self.processes[name] = forked_cli.Command(*arguments, environment=environment, out=log, err=log)

    def kill(self, name: str) -> None:
        """kill -9, stopped or not."""
        self.processes[name].kill()
        self.processes[name].wait()

    def signal(self, name: str, number: signal.Signals) -> None:
        self.processes[name].send_signal(number)

    def worker_pids(self) -> list[int]:
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            command = " ".join(process.info["cmdline"] or [])
            if (
                str(self.folder) in command
                and "--control" in command
                and process.info["status"] != psutil.STATUS_ZOMBIE
            ):
                found.append(process.pid)
        return sorted(found)

    # ---- what they say

    def described(self, name: str, seconds: float = 2.0) -> Any:
        """What a server says of all; None: it does not answer."""
        with grpc.insecure_channel(
            self.endpoint_of(name), [("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            stub: Any = pool_pb2_grpc.ServersStub
            try:
                return stub(channel).Describe(pb.ListRequest(), timeout=seconds)
            except grpc.RpcError:
                return None

    def leaders(self) -> list[str]:
        """Those that say they lead."""
        said = {name: self.described(name) for name in self.names}
        return [name for name, answer in said.items() if answer is not None and answer.leads]

    def leader(self) -> str:
        """Waits for one."""
        found: list[str] = []

        def one() -> bool:
            found[:] = self.leaders()
            return len(found) == 1

        self.wait(one, 30, "one leader")
        return found[0]

    def standby(self) -> str:
        """Waits for one that answers, is known to the leader, and has looked since the leader came."""
        leader = self.leader()
        name = next(name for name in self.names if name != leader)

        def known() -> bool:
            answer, there = self.described(name), self.described(leader)
            return (
                answer is not None
                and not answer.leads
                and there is not None
                and answer.answered_by in {one.id for one in there.servers if one.epoch == 0}
                and there.answered_by in {one.id for one in answer.servers}
            )

        self.wait(known, 30, f"{name} to stand by")
        return name

    def healthy(self) -> int:
        """How many devices take new shares, as the leader says; 0: none answers."""
        for name in self.names:
            with grpc.insecure_channel(
                self.endpoint_of(name), [("grpc.use_local_subchannel_pool", 1)]
            ) as channel:
                stub: Any = pool_pb2_grpc.PoolStub
                try:
                    devices = stub(channel).ListDevices(pb.ListRequest(), timeout=2).devices
                except grpc.RpcError:
                    continue
                return sum(device.healthy for device in devices)
        return 0

    def wait(self, condition: Callable[[], Any], seconds: float, what: str) -> None:
        deadline = until_late(seconds)
        while not condition():
            for name, process in self.processes.items():
                if process.poll() not in (None, -signal.SIGKILL, 0):
                    raise RuntimeError(f"{name} ended while waiting for {what}:\n{self.log(name)[-2000:]}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {seconds:.0f} s for {what}")
            time.sleep(0.05)


def check_ledger(url: str, granted: dict[str, tuple[str, str, int]], capacity: int = 1000) -> Counter[str]:
    """What must be true of the ledger, whoever led when.

    Args:
        granted: by idempotency key, what was answered: lease, session, epoch.
        capacity: milli-GPU of a device.

    Returns:
        How often each key was granted, as the journal has it.
    """
    with Ledger(url, Clock.start()) as ledger:
        check_invariants(ledger.load())
        with ledger.engine.connect() as connection:
            rows = {row.id: row for row in connection.execute(select(schema.leases))}
            grants = Counter(
                connection.execute(
                    select(schema.journal.c.lease_id).where(schema.journal.c.kind == "grant")
                ).scalars()
            )
            charges = list(connection.execute(select(schema.charges)))
    keys: Counter[str] = Counter()
    for lease_id, times in grants.items():
        assert times == 1, f"lease {lease_id} was granted {times} times"
        if lease_id in rows:
            keys[rows[lease_id].idempotency_key] += 1
    for key, (lease_id, session_id, epoch) in granted.items():
        row = rows[lease_id]
        assert (row.idempotency_key, row.session_id, row.epoch) == (key, session_id, epoch)
    _check_capacity(charges, capacity)
    return keys


def _check_capacity(charges: Iterable[Any], capacity: int) -> None:
    """At no moment was more of a device held than there is of it."""
    changes: dict[str, list[tuple[int, int]]] = {}
    for row in charges:
        changes.setdefault(row.device_id, []).append((row.from_ms, row.milli))
        if row.to_ms is not None:
            changes[row.device_id].append((row.to_ms, -row.milli))
    for device, at_moments in changes.items():
        held = 0
        for _, change in sorted(at_moments):
            held += change
            assert held <= capacity, f"{held} milli-GPU of {device} were held at once"
