"""What makes a process the client of a worker that was started by hand: its environment, and the session file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gpupool.client.native import native_file
from gpupool.client.session_file import SESSION_FILE_VARIABLE, SessionFile

from benchmarks.worker_process import WorkerProcess


def client_environment(file: SessionFile, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Of a process whose CUDA calls shall go where ``file`` says. Raises RuntimeMissingError: there is no client runtime."""
    kept = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    kept[SESSION_FILE_VARIABLE] = str(file.path)
    kept["LD_LIBRARY_PATH"] = str(native_file("client", "libcuda.so.1").parent)
    return kept | dict(more or {})


def write_attached(file: SessionFile, worker: WorkerProcess, profile: Path, log: Path | None = None) -> None:
    """``file`` says that the session is attached to ``worker``, with the epoch that it has now.

    Args:
        profile: the file with the profile of the worker's devices.
        log: where the client writes its log; None: it writes none.
    """
    file.write(
        "attached",
        session=worker.session,
        epoch=worker.epoch,
        address=worker.address,
        token=worker.token,
        software="\nsoftware 1\n" in profile.read_text(),
        profile=str(profile),
        log=str(log or ""),
    )
