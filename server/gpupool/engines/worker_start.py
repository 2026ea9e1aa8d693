"""How a worker is started on this machine: its program, what it is told, what it answers."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpupool.client.cpu_math import blas_variables
from gpupool.client.worker_address import WorkerAddress, can_be_told
from gpupool.engines import mps
from gpupool.engines.records import DeviceGrant, EngineError, NotReadyError, WorkerSpec

#: A worker that is not ready by then is ended; a cold NVIDIA driver takes several seconds.
READY_SECONDS: Final = 60.0
#: The same for a worker that brings a session along; the pool waits a little longer (`Timers.transfer`).
RESUME_SECONDS: Final = 280.0
_READY_LINE_BYTES: Final = 8192
_READY = re.compile(rb"ready port=([0-9]{1,5}) pid=([0-9]{1,10})(?: tls=([0-9a-f]{64}))?\s*")
# Of no use to a worker: credentials of the agent and of the pool's database, libraries meant for clients, and dumps of the
# GPU's memory, with which users' kernels would fill the node's disk.
_WITHHELD: Final = (
    "GPUPOOL_TOKEN_FILE",
    "GPUPOOL_SESSION_FILE",
    "GPUPOOL_LEDGER",
    "PGPASSWORD",
    "PGPASSFILE",
    "LD_PRELOAD",
    "NOTIFY_SOCKET",
    # Marks the agent itself, see `gpupool.providers.local`.
    "GPUPOOL_PROVIDER_JOB",
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION",
    "CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION",
    "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP",
    "CUDA_ENABLE_USER_TRIGGERED_COREDUMP",
    *mps.OF_EACH_CLIENT,
)
# sockaddr_un holds 108 bytes with the final zero.
_MAX_SOCKET_PATH: Final = 100


@dataclass(frozen=True, slots=True)
class WorkerProgram:
    """What is the same for all workers of an engine.

    Args:
        command: the program and its leading arguments.
        environment: added to the agent's.
        listen: ``host:port`` or ``host:first-last``; port 0: one that the system picks.
        tls: ``on``, ``off``, or ``auto``: the worker decides.
    """

    command: tuple[str, ...]
    driver: str
    environment: Mapping[str, str]
    listen: str
    advertise_host: str
    tls: str
    ready_seconds: float

    def fork(
        self, directory: Path, *, warm: bool = False, more: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Starts the program in its folder; it waits for its start record on standard input.

        ``warm``: for as long as that is open, and the folder may be renamed meanwhile. ``more``: of the environment,
        for this one.
        """
        environment = {key: value for key, value in os.environ.items() if key not in _WITHHELD}
        if job := os.environ.get("GPUPOOL_PROVIDER_JOB"):
            environment["GPUPOOL_PROVIDER_WORKER"] = job  # if the agent dies, the provider ends it
        control = str(directory / "control.sock")
        if warm or len(os.fsencode(control)) > _MAX_SOCKET_PATH:
            control = "control.sock"
        local = "data.sock" if warm else _local_socket(directory)
        with open(directory / "worker.log", "ab", opener=_private_opener) as log:
            try:
                return subprocess.Popen(
                    [
                        *self.command,
                        *("--driver", self.driver),
                        *("--control", control),
                        *("--listen", self.listen),
                        *(("--local", local) if local else ()),
                        *(("--tls", self.tls) if self.tls != "auto" else ()),
                        *(("--warm",) if warm else ()),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    cwd=directory,
                    env=blas_variables() | environment | dict(self.environment) | dict(more or {}),
                    # Own session and process group: the agent's terminal and its signals
                    # do not reach a worker.
                    start_new_session=True,
                )
            except OSError as error:
                raise EngineError(f"The worker {self.command[0]} cannot be run: {error.strerror}.") from error

    async def ready_line(self, process: subprocess.Popen[bytes], *, resumes: bool = False) -> bytes:
        """The first line that the worker writes; empty when it ended without one.

        `resumes`: it brings a session along first.
        """
        seconds = max(self.ready_seconds, RESUME_SECONDS) if resumes else self.ready_seconds
        assert process.stdout is not None
        reader = asyncio.StreamReader(limit=_READY_LINE_BYTES)
        loop = asyncio.get_running_loop()
        # A duplicate, because the transport closes the descriptor it was given.
        pipe = os.fdopen(os.dup(process.stdout.fileno()), "rb", buffering=0)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        try:
            async with asyncio.timeout(seconds):
                return await reader.readline()
        except TimeoutError:
            raise NotReadyError(f"The worker was not ready within {seconds:g} s.") from None
        except ValueError:
            raise EngineError("The worker's first line is too long.") from None
        finally:
            transport.close()

    def address(self, directory: Path, line: bytes) -> str | None:
        """Where clients reach the worker that said ``line``; None when it does not say that it is ready."""
        match = _READY.fullmatch(line)
        if match is None or not 0 < int(match[1]) < 65536:
            return None
        return str(
            WorkerAddress(
                self.advertise_host,
                int(match[1]),
                local=_local_socket(directory) or "",
                tls=(match[3] or b"").decode(),
            )
        )


def start_record(
    spec: WorkerSpec, devices: tuple[DeviceGrant, ...], *, context_reserve_mib: int = 0
) -> bytes:
    """What the worker reads first, without the line that ends it.

    ``context_reserve_mib`` of each share are for what the driver takes for a context itself.
    """
    lines = [f"session {spec.session}", f"token {spec.token}", f"epoch {spec.epoch}"]
    lines += [f"device {d.ordinal} {d.uuid} {d.milli} {d.mib}" for d in devices]
    lines += [f"deadline_ns {spec.deadline_ns}", f"drain_ms {round(spec.drain_seconds * 1000)}"]
    if spec.strict:
        lines += [f"strict {d.ordinal}" for d in devices]
    if spec.move_key:
        lines.append(f"move_key {spec.move_key}")
    if spec.image_source:
        lines.append(f"image_from {spec.image_source}")
    if context_reserve_mib:
        lines.append(f"context_reserve_mib {context_reserve_mib}")
    if spec.user:
        # Workers of one user give each other the memory that their clients share.
        lines.append(f"user {hashlib.sha256(spec.user.encode('utf-8', 'surrogatepass')).hexdigest()}")
    record = ("\n".join(lines) + "\n").encode("ascii")
    if spec.image is not None:
        record += b"image " + os.fsencode(spec.image.absolute()) + b"\n"
    return record


def _local_socket(directory: Path) -> str | None:
    """Where clients of this machine connect; None: the path is too long or odd to be told."""
    path = str(directory.absolute() / "data.sock")
    return path if can_be_told(path) else None


def _private_opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
