"""A cluster takes a node back in the middle of a program: the session goes on in another pod, with all its memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.cluster import Cluster, cluster
from tests.support.cluster.containers import isolation_is_missing
from tests.support.cluster.kinds import schema_is_missing
from tests.support.patience import until_late
from tests.support.pool_node import native_worker_is_built

_MISSING = (
    schema_is_missing()
    or isolation_is_missing()
    or ("" if native_worker_is_built() else "needs the native build (`make build`)")
)
pytestmark = [pytest.mark.skipif(bool(_MISSING), reason=_MISSING), pytest.mark.slow]

#: Each step needs the one before it; at each it waits for a word.
_PROGRAM = """
import numpy as np
from numba import cuda

@cuda.jit
def step(a, n):
    i = cuda.grid(1)
    if i < a.size:
        a[i] = a[i] * 3 + n

on_device = cuda.to_device(np.arange(200_000, dtype=np.uint32))
for n in range(4):
    step[782, 256](on_device, n)
    cuda.synchronize()
    print("step", n, flush=True)
    input()
print("sum", int(on_device.copy_to_host().astype(np.uint64).sum()), flush=True)
"""


def expected() -> int:
    import numpy as np

    values = np.arange(200_000, dtype=np.uint32)
    for n in range(4):
        values = values * np.uint32(3) + np.uint32(n)
    return int(values.astype(np.uint64).sum())


@pytest.fixture
def made() -> Iterator[Cluster]:
    with cluster(gpus=()) as running:
        yield running


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gpe-") as folder:
        yield Path(folder)


class Pool:
    """A pool outside the cluster, with a port for its pods."""

    def __init__(self, home: Path, made: Cluster) -> None:
        self.home = home
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("GPUPOOL_")}
        self.environment |= {"GPUPOOL_HOME": str(home)}
        self._gpupool = [sys.executable, "-m", "gpupool.cli.main"]
        token = self.gpupool("token", "create", "--user", "kube", "--role", "node")
        (home / "node.token").write_text(token)
        port = free_port()
        (home / "providers.toml").write_text(
            f"""[kube]
kind = "kubernetes"
maximum = 2
idle = "1h"
pool = "127.0.0.1:{port}"
token_file = "{home}/node.token"
image = "gpupool-node:test"
kubeconfig = "{made.kubeconfig}"
resource = ""
grace = "10m"
device_memory_mib = 1024
node_options = ["--driver", "software", "--memory-mib", "1024"]
"""
        )
        arguments = (
            "--listen",
            f"127.0.0.1:{port}",
            "--providers",
            str(home / "providers.toml"),
            "--notice",
            "6s",
        )
        self._log = (home / "log").open("ab")
        self.process = subprocess.Popen(
            [*self._gpupool, "pool", "serve", *arguments],
            env=self.environment,
            stdout=self._log,
            stderr=self._log,
        )
        wait((home / "pool.sock").exists, self)

    def gpupool(self, *arguments: str) -> str:
        return subprocess.run(
            [*self._gpupool, *arguments], env=self.environment, capture_output=True, text=True, check=True
        ).stdout

    def run(self, program: str) -> subprocess.Popen[str]:
        command = [*self._gpupool, "run", "-p", "0.5", "--wait", "10m", "--", sys.executable, "-c", program]
        return subprocess.Popen(
            command,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(60)
        self._log.close()


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait(what: Any, pool: Pool) -> Any:
    deadline = until_late(60)
    while not (found := what()):
        assert time.monotonic() < deadline and pool.process.poll() is None, (pool.home / "log").read_text()[
            -4000:
        ]
        time.sleep(0.1)
    return found


def test_a_session_goes_on_in_another_pod(made: Cluster, home: Path) -> None:
    pool = Pool(home, made)
    try:
        program = pool.run(_PROGRAM)
        assert program.stdout is not None
        assert program.stdin is not None
        assert program.stdout.readline() == "step 0\n", (home / "log").read_text()[-4000:]
        (first,) = [pod["metadata"]["name"] for pod in made.pods()]
        made.evict("default", first)
        wait(lambda: "the lease is over" in (home / "log").read_text(), pool)
        # The program's next call waits: another pod is asked for, and the session moves there.
        for n in (1, 2, 3):
            program.stdin.write("\n")
            program.stdin.flush()
            assert program.stdout.readline() == f"step {n}\n", (home / "log").read_text()[-4000:]
        # The first ends long before its grace is over.
        wait(lambda: first not in [pod["metadata"]["name"] for pod in made.pods()], pool)
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.stdout.readline() == f"sum {expected()}\n"
        assert program.wait(60) == 0
        assert len(made.pods()) == 1
    finally:
        pool.close()
