"""A way to a share for tests of the check for machines with a GPU, and a bench on it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from tests.gpu_check.comparisons import Bench
from tests.gpu_check.time_left import TimeLeft


class ReadyWay:
    """A way that gives this process itself, or raises what it is told."""

    pool = True

    def __init__(self, error: Exception | None = None) -> None:
        self.errors = [error] if error else []
        self.stops = 0

    @contextlib.contextmanager
    def share(self, _share: str) -> Iterator[tuple[list[str], dict[str, str]]]:
        if self.errors:
            raise self.errors.pop()
        yield [], dict(os.environ)

    def stop(self) -> None:
        self.stops += 1


def bench_of(way: ReadyWay, folder: Path, seconds: float = 600.0) -> Bench:
    return Bench(way, dict(os.environ), {}, folder, TimeLeft(seconds))
