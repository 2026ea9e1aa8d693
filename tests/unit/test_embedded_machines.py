"""A home that several machines see: one of them runs the pool, and the others are told which."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gpupool.embedded import join, paths
from gpupool.embedded.join import EmbeddedError
from gpupool.embedded.options import EmbeddedOptions


class Started(Exception):
    """A pool would be started now."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def started(home: Path, options: EmbeddedOptions) -> None:
        raise Started

    monkeypatch.setattr(join, "_start", started)
    tmp_path.chmod(0o700)
    return tmp_path


@contextmanager
def lock(home: Path, machine: str, *, age: float = 0.0, held: bool = False) -> Iterator[None]:
    """What a keeper on a machine has left or holds."""
    path = paths.keeper_lock(home)
    path.write_text(machine)
    then = time.time() - age
    os.utime(path, (then, then))
    descriptor = os.open(path, os.O_RDWR)
    try:
        if held:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("age", "held"), [(3600.0, True), (5.0, False)], ids=["it holds the lock", "it has shown that it lives"]
)
def test_the_machine_of_the_pool_is_named(home: Path, age: float, held: bool) -> None:
    with lock(home, "login1", age=age, held=held), pytest.raises(EmbeddedError, match="runs on login1"):
        join.join(home, EmbeddedOptions())


@pytest.mark.parametrize(
    ("machine", "age"),
    [("login1", 3600.0), (socket.gethostname(), 5.0), ("", 5.0)],
    ids=["silent for an hour", "killed on this machine", "ended"],
)
def test_what_is_left_of_a_pool_is_in_nobodys_way(home: Path, machine: str, age: float) -> None:
    with lock(home, machine, age=age), pytest.raises(Started):
        join.join(home, EmbeddedOptions())
