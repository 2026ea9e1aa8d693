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

from tests.libraries.machine import Machine
from tests.support.runtime_share import share_of_a_worker

PROGRAM = Path(__file__).with_name("library_program.py")


def _machine(variables: dict[str, str]) -> Iterator[Machine]:
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(native_directory() / "libraries")],
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Machine(process)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="session", params=["alone", "pool"])
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A program with the software GPU for itself, and one with a share of it."""
    native = native_directory()
    if not (native / "libraries" / "libcublas.so.13").exists():
        pytest.skip("the native parts are not built (make build)")
    if request.param == "alone":
        yield from _machine(software_gpu_environment(native, os.environ))
        return
    shares = share_of_a_worker(tmp_path_factory.mktemp("share"))
    try:
        share = next(shares)
        yield from _machine({**os.environ, **environment(None, share.file, os.environ, software=True)})
    finally:
        next(shares, None)
