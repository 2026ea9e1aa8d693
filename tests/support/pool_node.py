"""A real pool server and node agent as separate processes, with scaled timers, for tests that kill them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import psutil
from gpupool.client.native import native_directory
from gpupool.node.agent_settings import MOST_HEARTBEAT
from gpupool.proto import pool_pb2, pool_pb2_grpc

from tests.support import forked_cli
from tests.support.patience import BUSY, until_late

ROOT = Path(__file__).resolve().parents[2]
SCRIPTED_WORKER = ROOT / "tests" / "support" / "scripted_worker.py"
#: All timers times this: renewals every second, fenced after 5 s, reused after 6 s.
SCALE = 0.2
FENCE_SECONDS = 25 * SCALE
REUSE_SECONDS = 30 * SCALE


def native_worker_is_built() -> bool:
    native = native_directory()
    return (native / "bin" / "gpupool-worker").exists() and (native / "softgpu" / "libcuda.so.1").exists()


class PoolAndNode:
    """`with PoolAndNode(...) as stack:`; nothing that it started is left afterwards."""

    def __init__(
        self,
        *serve_arguments: str,
        real_worker: bool = False,
        gpus: int = 2,
        scale: float = SCALE,
        node_arguments: tuple[str, ...] = (),
    ) -> None:
        # A short path: addresses of Unix sockets end at 107 bytes.
        self.home = Path(tempfile.mkdtemp(prefix="gpn-"))
        self.scale = scale
        self.gpus = gpus
        self._serve_arguments = serve_arguments
        self._real_worker = real_worker
        self._node_arguments = node_arguments
        self.processes: dict[str, forked_cli.Command] = {}
        self.environment = {
            key: value for key, value in os.environ.items() if not key.startswith(("GPUPOOL_", "SCRIPTED_"))
        } | {
            "GPUPOOL_HOME": str(self.home),
            "GPUPOOL_RENEW_SECONDS": str(5 * scale),
            "GPUPOOL_NATIVE_DIR": str(native_directory()),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "server"), os.environ.get("PYTHONPATH", "")]),
        }
        if not real_worker:
            # `gpupool run` names the client runtime; a child that uses no CUDA needs no more than its names.
            native = self.home / "native"
            (native / "client").mkdir(parents=True)
            (native / "client" / "libcuda.so.1").touch()
            self.environment["GPUPOOL_NATIVE_DIR"] = str(native)

    def __enter__(self) -> PoolAndNode:
        try:
            self.start_pool()
            self.start_node(*self._node_arguments)
            self.wait(lambda: len(self.healthy()) == self.gpus, 20, "the node's devices")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in sorted(self.processes, key="pool".__eq__):
            process = self.processes.get(name)
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
        for pid in self.worker_pids():
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.home, ignore_errors=True)

    @property
    def endpoint(self) -> str:
        return f"unix:{self.home}/pool.sock"

    def start_pool(self) -> None:
        self._start("pool", "pool", "serve", "--timers-scale", str(self.scale), *self._serve_arguments)
        self.wait((self.home / "pool.sock").exists, 15, "the pool's socket")

    def start_node(self, *arguments: str, script: str = "", name: str = "n1") -> None:
        """A second node goes by its name among `processes`."""
        worker = (
            ("--driver", "software")
            if self._real_worker
            else ("--driver", "/dev/null", "--worker", str(SCRIPTED_WORKER))
        )
        self._start(
            "node" if name == "n1" else name, "node", "start", "--name", name, *worker, "--software-gpus", str(self.gpus),
            "--heartbeat-seconds", str(min(5 * self.scale, MOST_HEARTBEAT)), *arguments, script=script,
        )  # fmt: skip

    def _start(self, name: str, *arguments: str, script: str = "") -> None:
        with (self.home / f"{name}.log").open("ab") as log:
            environment = {**self.environment, "SCRIPTED_WORKER": script}
            self.processes[name] = forked_cli.Command(*arguments, environment=environment, out=log, err=log)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Signals the pool or the node and waits for its end; its exit status."""
        process = self.processes[name]
        process.send_signal(number)
        return process.wait(30 * BUSY)

    def log(self, name: str) -> str:
        return (self.home / f"{name}.log").read_text()

    def gpupool(self, *arguments: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        return forked_cli.gpupool(*arguments, environment=self.environment, seconds=seconds * BUSY)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "gpupool.cli.main", *arguments]

    # -- what there is

    def listed(self) -> list[dict[str, Any]]:
        """What `gpupool gpu list --json` prints."""
        return list(json.loads(self.gpupool("gpu", "list", "--json").stdout)["devices"])

    def devices(self) -> list[dict[str, Any]]:
        """The same without starting a program, for loops; empty when the pool does not answer."""
        with grpc.insecure_channel(self.endpoint) as channel:
            stub: Any = pool_pb2_grpc.PoolStub
            try:
                answer = stub(channel).ListDevices(pool_pb2.ListRequest(), timeout=5)
            except grpc.RpcError:
                return []
        return [
            {
                "id": device.id,
                "healthy": device.healthy,
                "free_milli": device.free_milli,
                "shares": [
                    {"lease_id": share.lease_id, "mib": share.share.mib, "label": share.label}
                    for share in device.shares
                ],
            }
            for device in answer.devices
        ]

    def last_lease(self) -> dict[str, Any]:
        """The lease that was granted last, also when it has ended."""
        fields = ("id", "state", "reason")
        with contextlib.closing(sqlite3.connect(self.home / "pool.sqlite")) as ledger:
            found = ledger.execute(
                f"SELECT {', '.join(fields)} FROM leases ORDER BY granted_unix DESC, epoch DESC"
            )
            return dict(zip(fields, found.fetchone(), strict=True))

    def close_sessions(self) -> None:
        """Ends sessions that a killed program left parked; the pool itself would do so after an hour."""
        with grpc.insecure_channel(self.endpoint) as channel:
            stub: Any = pool_pb2_grpc.PoolStub(channel)  # type: ignore[no-untyped-call, unused-ignore]
            for session in stub.ListSessions(pool_pb2.ListRequest(), timeout=5).sessions:
                stub.CloseSession(pool_pb2.CloseSessionRequest(session_id=session.id), timeout=5)

    def queue_length(self) -> int:
        with grpc.insecure_channel(self.endpoint) as channel:
            stub: Any = pool_pb2_grpc.PoolStub
            return len(stub(channel).ListQueue(pool_pb2.ListRequest(), timeout=5).entries)

    def healthy(self) -> list[dict[str, Any]]:
        return [device for device in self.devices() if device["healthy"]]

    def all_free(self) -> bool:
        devices = self.devices()
        return bool(devices) and all(device["free_milli"] == 1000 for device in devices)

    def wait_free(self, seconds: float = 35 * SCALE + 10) -> float:
        started = time.monotonic()
        self.wait(self.all_free, seconds, "every share to be free")
        return time.monotonic() - started

    def worker_states(self) -> dict[str, dict[str, Any]]:
        found = {}
        for path in self.home.glob("run/*/workers/*/state.json"):
            try:
                found[path.parent.name] = json.loads(path.read_text())
            except (OSError, ValueError):
                continue
        return found

    def worker_pids(self) -> list[int]:
        """Living workers of this stack."""
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            command = " ".join(process.info["cmdline"] or [])
            if (
                str(self.home) in command
                and "--control" in command
                and process.info["status"] != psutil.STATUS_ZOMBIE
            ):
                found.append(process.pid)
        return found

    def control(self, session: str) -> Path:
        return self.home / "run" / "n1" / "workers" / session / "control.sock"

    def wait(self, condition: Callable[[], Any], seconds: float, what: str) -> None:
        deadline = until_late(seconds)
        while not condition():
            for name, process in self.processes.items():
                if process.poll() not in (None, -signal.SIGKILL, 0):
                    raise RuntimeError(f"{name} ended while waiting for {what}:\n{self.log(name)[-2000:]}")
            if time.monotonic() > deadline:
                logs = "\n".join(f"--- {name}\n{self.log(name)[-1500:]}" for name in self.processes)
                raise TimeoutError(f"waited {seconds:.0f} s for {what}\n{logs}")
            time.sleep(0.1)
