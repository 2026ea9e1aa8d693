"""A cluster in a process of its own, for tests that fork: a fork has no threads."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path


def _serve(pipe: Connection) -> None:
    from tests.support.cluster.cluster import cluster

    with cluster() as made:
        pipe.send(str(made.kubeconfig))
        pipe.recv()


@contextlib.contextmanager
def cluster_apart() -> Iterator[Path]:
    """The kubeconfig of its administrator."""
    spawning = multiprocessing.get_context("spawn")
    here, there = spawning.Pipe()
    process = spawning.Process(target=_serve, args=(there,), name="cluster")
    process.start()
    try:
        yield Path(here.recv())
        here.send("enough")
        process.join(60)
    finally:
        if process.is_alive():
            process.kill()
            process.join()
