"""A pool and a node with software GPUs, for the conformance suites."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

START_SECONDS = 120


def _wait_for_pool(address: Path) -> None:
    """On a busy machine the pool's first breath takes a while; a node is waited for by `gpupool run`."""
    until = time.monotonic() + START_SECONDS
    while not address.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"the pool has not started in {START_SECONDS} s: see {address.parent}")
        time.sleep(0.1)


@contextlib.contextmanager
def pool_and_node(
    home: Path, devices: int, memory_mib: int, settings: Mapping[str, str] | None = None
) -> Iterator[dict[str, str]]:
    """Yields the environment in which `gpupool run` finds them; ends both afterwards.

    `settings`: of the node's software GPUs, which are not those of the program.
    """
    environment = dict(os.environ, GPUPOOL_HOME=str(home)) | dict(settings or {})
    environment.pop("LD_PRELOAD", None)
    gpupool = [sys.executable, "-m", "gpupool.cli.main"]
    size = ["--software-gpus", str(devices), "--memory-mib", str(memory_mib)]
    with (home / "services.log").open("w") as log:
        services = [
            subprocess.Popen([*gpupool, *arguments], env=environment, stdout=log, stderr=log)
            for arguments in (["pool", "serve"], ["node", "start", "--driver", "software", *size])
        ]
        try:
            _wait_for_pool(home / "pool.sock")
            yield environment
        finally:
            for service in reversed(services):
                service.terminate()
                service.wait(20)
