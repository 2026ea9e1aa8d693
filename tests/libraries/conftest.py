"""Math libraries on the software GPU, alone and on a share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.client.child_environment import environment, software_gpu_environment
from gpupool.client.native import native_directory

from tests.libraries import machine as machine_module
from tests.libraries.machine import Machine
from tests.support.runtime_share import share_of_a_worker

PROGRAM = Path(__file__).with_name("library_program.py")


def machine_of(variables: dict[str, str]) -> Iterator[Machine]:
    """A program with these variables beside this process's."""
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(native_directory() / "libraries")],
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield Machine(process)
    finally:
        process.kill()
        process.wait()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the tests have called. Of several processes (`-n`) none says so."""
    if machine_module.calls:
        count, functions = machine_module.calls.total(), len(machine_module.calls)
        terminalreporter.write_line(f"{count} calls of {functions} functions of the math libraries")


#: On the software GPU, on a share of it, and by a worker that gives operations to the libraries.
WAYS = ["alone", "pool", "libraries"]


def worker_variables(native: Path, way: str) -> dict[str, str]:
    """What a share's worker is told."""
    return {"GPUPOOL_MATH_LIBRARIES": str(native / "libraries")} if way == "libraries" else {}


def machines(way: str, folder: Path, **settings: str) -> Iterator[Machine]:
    """A program with the software GPU for itself, one with a share of it, and one whose worker uses the libraries' own API.

    On a GPU of NVIDIA a worker gives operations to NVIDIA's libraries. Here ours stand in their place, over the same driver.

    Args:
        settings: variables of the process that has the software GPU.
    """
    native = native_directory()
    if not (native / "libraries" / "libcublas.so.13").exists():
        pytest.skip("the native parts are not built (make build)")
    if way == "alone":
        yield from machine_of(software_gpu_environment(native, os.environ) | settings)
        return
    shares = share_of_a_worker(folder, **worker_variables(native, way), **settings)
    try:
        share = next(shares)
        yield from machine_of(environment(None, share.file, os.environ, software=True))
    finally:
        next(shares, None)


@pytest.fixture(scope="session", params=WAYS)
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """One program for all tests, in each of the ways."""
    yield from machines(request.param, tmp_path_factory.mktemp("share"))


@pytest.fixture(params=WAYS)
def machine_of_its_own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    """A program for one test, also with a worker that gives operations to the libraries."""
    yield from machines(request.param, tmp_path)


@pytest.fixture
def lone_machine(tmp_path: Path) -> Iterator[Machine]:
    """A program for one test, with the software GPU for itself: it knows its memory to the byte."""
    yield from machines("alone", tmp_path)
