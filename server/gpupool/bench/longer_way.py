"""A network that takes longer: bytes between a client and a worker arrive with a delay, at full rate."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator

from gpupool.bench.worker_process import WorkerError
from gpupool.client.native import native_file


@contextlib.contextmanager
def longer_way(address: str, round_trip_us: int) -> Iterator[str]:
    """An address that leads to ``address``, half of the delay away each way; 0: the address itself.

    For one connection.

    Raises:
        WorkerError: the program in between did not start.
        RuntimeMissing: it is not installed.
    """
    if round_trip_us == 0:
        yield address
        return
    command = [str(native_file("bin", "gpupool-bench-network")), "--to", address]
    command += ["--delay-us", str(round_trip_us // 2)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as between:
        assert between.stdin is not None
        assert between.stdout is not None
        try:
            line = between.stdout.readline().strip()
            if not line.startswith("ready port="):
                raise WorkerError("the program that delays the network did not start")
            yield f"127.0.0.1:{line.removeprefix('ready port=')}"
        finally:
            between.stdin.close()  # it ends with its standard input
            try:
                between.wait(5.0)
            except subprocess.TimeoutExpired:
                between.kill()
