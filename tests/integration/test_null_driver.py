"""The null driver behind the wire: machine code is loaded, described and launched, and nothing is executed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.client.native import native_file
from gpupool.node.driver import SoftwareGpuSettings, choose_driver, find_nvidia_driver

from benchmarks.lone_session import LoneSession, lone_session, null_driver
from benchmarks.worker_process import probe
from tests.support.pool_node import native_worker_is_built

pytestmark = pytest.mark.skipif(not native_worker_is_built(), reason="native parts not built")

#: numba with its own linker, which makes machine code; the launch of a kernel that would write is without effect.
PROGRAM = """
import numpy as np
from numba import cuda

@cuda.jit
def fill(out, value):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = value

assert cuda.get_current_device().name == "null driver (executes nothing)"
sent = np.arange(1000, dtype=np.float32)
there = cuda.to_device(sent)
fill[4, 256](there, 7)
assert next(iter(fill.overloads.values())).signature
np.testing.assert_array_equal(there.copy_to_host(), sent)
try:
    fill[4, 2048](there, 7)
except Exception as error:
    assert "CUDA_ERROR_INVALID_VALUE" in str(error), error
else:
    raise AssertionError("a block of 2048 threads was launched")
first, last = cuda.event(), cuda.event()
first.record()
fill[4, 256](there, 7)
last.record()
last.synchronize()
assert first.elapsed_time(last) >= 0
print("ok")
"""


@pytest.fixture
def session(tmp_path: Path) -> Iterator[LoneSession]:
    with lone_session(tmp_path, null_driver(), 256) as made:
        yield made


def test_machine_code_is_taken_and_not_executed(session: LoneSession) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(PROGRAM)],
        env=session.environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr + session.log()
    assert done.stdout.splitlines()[-1] == "ok"
    assert int(session.worker.stats()["kernels"]) == 2


def test_it_is_never_taken_for_a_gpu() -> None:
    """Its profile calls it software, and only its own path makes a node open it."""
    profile, devices = probe(null_driver())
    assert devices[0].name == "null driver (executes nothing)"
    assert "\nsoftware 1\n" in profile
    assert find_nvidia_driver() != str(null_driver())


@pytest.mark.parametrize("choice", ["auto", "software"])
async def test_a_node_does_not_choose_it_by_itself(choice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(null_driver().parent))
    command = (str(native_file("bin", "gpupool-worker")),)
    chosen = await choose_driver(choice, command, SoftwareGpuSettings())
    assert chosen.path != str(null_driver())
