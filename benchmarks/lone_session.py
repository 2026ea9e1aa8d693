"""One session without a pool: a worker started by hand, and the session file that a client process reads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpupool.client.native import native_file
from gpupool.client.session_file import SessionFile

from benchmarks.client_process import client_environment, write_attached
from benchmarks.worker_process import WorkerProcess, probe


@dataclass(frozen=True, slots=True)
class LoneSession:
    """A running worker and how a process becomes its client."""

    worker: WorkerProcess
    file: SessionFile
    client_log: Path

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Of a process whose CUDA calls shall go to the worker."""
        return client_environment(self.file, more)

    def log(self) -> str:
        """What worker and client wrote."""
        paths = (self.worker.log_path, self.client_log)
        return "\n".join(path.read_text(errors="replace").strip() for path in paths if path.exists())


def null_driver() -> Path:
    """The driver that executes nothing. Raises RuntimeMissingError when it is not installed."""
    return native_file("nulldriver", "libcuda.so.1")


@contextlib.contextmanager
def lone_session(
    folder: Path,
    driver: Path,
    mib: int = 4096,
    *,
    environment: Mapping[str, str] | None = None,
) -> Iterator[LoneSession]:
    """A worker with a share of its driver's first device.

    Args:
        folder: an empty folder with a short path.
        driver: the driver it opens.
        mib: the share's memory, at most the device's.
        environment: the worker's, on top of this process's.

    Raises:
        WorkerError: the driver or the worker does not work.
        RuntimeMissingError: the native parts are not installed.
    """
    profile, devices = probe(driver, environment)
    device = devices[0]
    profile_file = folder / "profile"
    profile_file.write_text(profile)
    session = SessionFile(folder / "session")
    client_log = folder / "client.log"
    share = [(device, 1000, min(device.total_mib, mib))]
    with WorkerProcess(folder, driver, share, environment=environment) as worker:
        write_attached(session, worker, profile_file, client_log)
        yield LoneSession(worker, session, client_log)
