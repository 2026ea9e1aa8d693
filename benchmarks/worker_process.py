"""A worker started by hand, without pool or node agent: for measurements and tests.

What it does is what a node agent does (start record, control socket), for one session
that lives as long as the ``with`` block.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import selectors
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from gpupool.client.cpu_math import blas_variables
from gpupool.client.native import native_directory, native_file
from gpupool.client.worker_address import WorkerAddress


class WorkerError(RuntimeError):
    """The worker did not start, or gave no answer in time."""


def boottime_ns() -> int:
    """CLOCK_BOOTTIME in nanoseconds: the clock of lease deadlines."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class ProbedDevice:
    """One device of a driver, as far as a start record needs it."""

    ordinal: int
    uuid: str
    total_mib: int
    name: str


def software_driver() -> Path:
    """The software GPU's driver library. Raises RuntimeMissingError when it is not installed."""
    return native_file("softgpu", "libcuda.so.1")


def probe(driver: Path, environment: Mapping[str, str] | None = None) -> tuple[str, list[ProbedDevice]]:
    """The driver's profile text and its devices.

    Raises:
        WorkerError: the driver cannot be opened or has no device.
        RuntimeMissingError: there is no worker program.
    """
    command = [str(native_file("bin", "gpupool-worker")), "--driver", str(driver), "--probe"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=_environment(environment)
    )
    if done.returncode != 0:
        raise WorkerError(done.stderr.strip() or f"the probe ended with status {done.returncode}")
    devices: list[ProbedDevice] = []
    block: dict[str, str] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        if key == "end":
            devices.append(
                ProbedDevice(int(block["device"]), block["uuid"], int(block["total_mib"]), block["name"])
            )
            block = {}
        elif key != "attribute":
            block[key] = value
    return done.stdout, devices


@dataclass(slots=True)
class WorkerProcess:
    """One ``gpupool-worker`` with its control connection; a context manager.

    Args:
        directory: an empty folder for its sockets; its path must have fewer than 90 characters.
        driver: the driver it opens.
        devices: what it lends, with ``milli`` and ``mib`` of each.
        environment: added to this process's, for example ``GPUPOOL_SOFTGPU_MEMORY_MIB``.
        options: further arguments of the worker.
        context_reserve_mib: of each share, for what the driver takes for a context itself.
        user: whose session it is; sessions of one user can share memory. Empty: nobody's.
        image: the folder of a session image to go on with.
        image_from: the address of a worker to fetch the session from.
        enforcer: the first device's book of turns, named by its UUID; None: device time is not enforced.
        strict: the first device's share is a hard cap.
        drain_seconds: what was posted before the end of the lease has half of them to be executed.
    """

    directory: Path
    driver: Path
    devices: Sequence[tuple[ProbedDevice, int, int]]
    epoch: int = 1
    lease_seconds: float = 3600.0
    environment: Mapping[str, str] | None = None
    options: Sequence[str] = ()
    user: str = ""
    context_reserve_mib: int = 0
    enforcer: Path | None = None
    strict: bool = False
    drain_seconds: float = 4.0
    session: str = field(default_factory=lambda: secrets.token_hex(16))
    token: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)
    move_key: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)
    image: Path | None = None
    image_from: str = ""
    port: int = 0
    fingerprint: str = ""
    process: subprocess.Popen[bytes] | None = None
    _control: socket.socket | None = None
    _received: bytes = b""

    @property
    def address(self) -> str:
        return str(WorkerAddress("127.0.0.1", self.port, local=str(self.local_path), tls=self.fingerprint))

    @property
    def control_path(self) -> Path:
        return self.directory / "control.sock"

    @property
    def local_path(self) -> Path:
        return self.directory / "data.sock"

    @property
    def log_path(self) -> Path:
        return self.directory / "worker.log"

    def start_record(self) -> str:
        """The text for the worker's standard input. Holds secrets."""
        deadline = boottime_ns() + int(self.lease_seconds * 1e9)
        lines = [
            f"session {self.session}",
            f"token {self.token}",
            f"move_key {self.move_key}",
            f"epoch {self.epoch}",
            f"deadline_ns {deadline}",
            f"drain_ms {int(self.drain_seconds * 1000)}",
        ]
        lines += [
            f"device {device.ordinal} {device.uuid} {milli} {mib}" for device, milli, mib in self.devices
        ]
        if self.context_reserve_mib:
            lines.append(f"context_reserve_mib {self.context_reserve_mib}")
        if self.user:
            lines.append(f"user {hashlib.sha256(self.user.encode()).hexdigest()}")
        if self.image is not None:
            lines.append(f"image {self.image}")
        if self.image_from:
            lines.append(f"image_from {self.image_from}")
        if self.enforcer is not None:
            lines.append(f"enforcer {self.devices[0][0].ordinal} {self.enforcer}")
        if self.strict:
            lines.append(f"strict {self.devices[0][0].ordinal}")
        return "\n".join(lines) + "\n\n"

    def __enter__(self) -> Self:
        command = [str(native_file("bin", "gpupool-worker")), "--driver", str(self.driver)]
        command += ["--control", str(self.control_path), "--listen", "127.0.0.1:0"]
        command += ["--local", str(self.local_path), *self.options]
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_environment(self.environment),
            )
        try:
            assert self.process.stdin is not None
            self.process.stdin.write(self.start_record().encode())
            self.process.stdin.close()
            ready = _ready(self.process)
            self.port = int(ready["port"])
            self.fingerprint = ready.get("tls", "")
            self._control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._control.connect(str(self.control_path))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def send(self, line: str) -> None:
        """Writes one command line to the control socket."""
        assert self._control is not None
        self._control.sendall(line.encode() + b"\n")

    def read_line(self, timeout: float = 30.0) -> str:
        """The next line that the worker wrote, unasked ones included.

        Raises:
            WorkerError: none came in ``timeout`` seconds, or the connection ended.
        """
        assert self._control is not None
        deadline = time.monotonic() + timeout
        while b"\n" not in self._received:
            self._control.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                chunk = self._control.recv(65536)
            except TimeoutError as late:
                raise WorkerError(f"no line from the worker in {timeout} s") from late
            if not chunk:
                raise WorkerError("the worker closed the control connection")
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        return line.decode()

    def wait_for(self, beginning: str, timeout: float = 30.0) -> str:
        """The next line that begins so; others are skipped. Raises WorkerError as :meth:`read_line`."""
        deadline = time.monotonic() + timeout
        while True:
            line = self.read_line(max(0.001, deadline - time.monotonic()))
            if line.startswith(beginning):
                return line

    def ask(self, line: str, timeout: float = 30.0) -> str:
        """Sends a command and returns its answer, skipping the unasked lines before it."""
        self.send(line)
        deadline = time.monotonic() + timeout
        while True:
            answer = self.read_line(max(0.001, deadline - time.monotonic()))
            if answer.startswith(("ok", "refused", "error")):
                return answer

    def stats(self) -> dict[str, str]:
        """The figures of this moment, by the keys of the stats line."""
        self._forget("stats ")  # those that were pushed earlier
        self.send("stats")
        return dict(item.split("=", 1) for item in self.wait_for("stats ").split()[1:])

    def _forget(self, beginning: str) -> None:
        """Drops the lines that begin so and have arrived already."""
        assert self._control is not None
        self._control.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            while chunk := self._control.recv(65536):
                self._received += chunk
        kept = [line for line in self._received.split(b"\n") if not line.startswith(beginning.encode())]
        self._received = b"\n".join(kept)
        self._control.settimeout(None)

    def _end(self) -> None:
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.sendall(b"stop\n")
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(3.0 if self._control is not None else 0.0)
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            if self.process.stdout is not None:
                self.process.stdout.close()
        if self._control is not None:
            self._control.close()
            self._control = None


def _environment(more: Mapping[str, str] | None) -> dict[str, str]:
    # The worker opens its driver by path; a client library in its way would make it its own client. Folders of others stay:
    # the driver, and NVIDIA's libraries, open parts of themselves by name.
    kept = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    folders = kept.pop("LD_LIBRARY_PATH", "").split(":")
    if others := [folder for folder in folders if folder and not _is_ours(Path(folder))]:
        kept["LD_LIBRARY_PATH"] = ":".join(others)
    return blas_variables() | kept | dict(more or {})


def _is_ours(folder: Path) -> bool:
    return folder.resolve().is_relative_to(native_directory().resolve())


def _ready(process: subprocess.Popen[bytes], timeout: float = 60.0) -> dict[str, str]:
    assert process.stdout is not None
    # Not select(): a process with over a thousand open files could not wait here.
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        ready = selector.select(timeout)
    line = process.stdout.readline().decode(errors="replace").strip() if ready else ""
    if not line.startswith("ready "):
        raise WorkerError(line.removeprefix("error ") or "the worker did not say that it is ready")
    return dict(item.split("=", 1) for item in line.split()[1:])
