"""A pool server takes more connections than the soft limit of open files that it was started with."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import grpc
from gpupool.proto import pool_pb2 as pb
from gpupool.proto import pool_pb2_grpc

from tests.support.full_pool import ROOT
from tests.support.patience import BUSY

SOFT_LIMIT = 128


def test_more_callers_than_open_files_at_first() -> None:
    # A short path: addresses of Unix sockets end at 107 bytes.
    with tempfile.TemporaryDirectory(prefix="gpo-") as home:
        place = f"{home}/pool.sock"
        serve = [sys.executable, "-m", "gpupool.cli.main", "pool", "serve"]
        server = subprocess.Popen(
            ["/bin/sh", "-c", f'ulimit -S -n {SOFT_LIMIT}; exec "$@"', "serve", *serve],
            env={**os.environ, "GPUPOOL_HOME": home, "PYTHONPATH": str(ROOT / "server")},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        callers: list[socket.socket] = []
        try:
            assert health(place)
            for _ in range(2 * SOFT_LIMIT):
                caller = socket.socket(socket.AF_UNIX)
                caller.settimeout(20 * BUSY)
                caller.connect(place)
                callers.append(caller)
            assert health(place)
        finally:
            for caller in callers:
                caller.close()
            server.terminate()
            assert server.wait(60 * BUSY) == 0
            assert not Path(place).exists()


def health(place: str) -> bool:
    """Asks on a connection of its own."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"unix:{place}", options=options) as channel:
        stub = pool_pb2_grpc.PoolStub(channel)  # type: ignore[no-untyped-call, unused-ignore]
        report = stub.Health(pb.HealthRequest(), wait_for_ready=True, timeout=40 * BUSY)
        return isinstance(report, pb.HealthReport)
