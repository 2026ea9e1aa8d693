"""A time limit in the middle of a training loop: a successor is there before, the session moves to it, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.patience import BUSY
from tests.support.pool_node import PoolAndNode, native_worker_is_built

pytestmark = [
    pytest.mark.skipif(not native_worker_is_built(), reason="native parts not built"),
    pytest.mark.slow,
]

#: Seconds of true time. Notices are of 15 s (`_SCALE`), so a session has left its node long before the job ends, and long
#: before its second node is emptied in its turn.
_PROVIDER = """[box]
kind = "local"
maximum = 2
idle = "5s"
time_limit = "90s"
drain_before = "52s"
replace_before = "8s"
device_memory_mib = 512
node_options = ["--driver", "software", "--software-gpus", "1", "--memory-mib", "512", "--heartbeat-seconds", "1"]
"""
#: Those who are silent for 12.5 s lose their lease, which is more than a busy machine keeps anybody waiting.
_SCALE = 0.5

#: Trains half, works on until the file in argv[1] is there, trains the other half, prints what it has learnt.
_PROGRAM = """
import os, sys, time
import numpy as np
from numba import cuda

@cuda.jit
def step(w, x):
    i = cuda.grid(1)
    if i < w.size:
        w[i] -= np.float32(0.01) * (w[i] * x[i] - np.float32(1)) * x[i]

x = cuda.to_device(np.random.default_rng(0).uniform(0.5, 1.5, 50_000).astype(np.float32))
w, scratch = cuda.device_array(50_000, np.float32), cuda.device_array(50_000, np.float32)
w.copy_to_device(np.zeros(50_000, np.float32))

def train(what, steps):
    for _ in range(steps):
        step[200, 256](what, x)

train(w, 100)
while not os.path.exists(sys.argv[1]):
    train(scratch, 5)
    cuda.synchronize()
    time.sleep(0.05)
train(w, 100)
print(w.copy_to_host().tobytes().hex()[:64], float(w.copy_to_host().astype(np.float64).sum()))
"""


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[PoolAndNode]:
    """A pool without a node, and a provider whose jobs end after a minute and a half."""
    settings = tmp_path / "providers.toml"
    settings.write_text(_PROVIDER)
    stack = PoolAndNode("--providers", str(settings), real_worker=True, gpus=0, scale=_SCALE)
    try:
        stack.start_pool()
        yield stack
    finally:
        # Its agents are no children of this test.
        stack.gpupool("provider", "scale", "box", "--max", "0", "--min", "0", "--idle", "0")
        stack.wait(lambda: not _living(stack), 60, "the end of the agents")
        stack.__exit__()


def _provider(stack: PoolAndNode) -> dict[str, object]:
    (found,) = json.loads(stack.gpupool("provider", "list", "--json").stdout)["providers"]
    return dict(found)


def _living(stack: PoolAndNode) -> list[str]:
    return [job["node"] for job in _provider(stack)["jobs"] if job["phase"] != "over"]


def _place(stack: PoolAndNode) -> tuple[str, str] | None:
    """State and node of the one session."""
    sessions = json.loads(stack.gpupool("session", "list", "--json").stdout)["sessions"]
    return (sessions[0]["state"], sessions[0]["node"]) if sessions else None


def test_a_time_limit_in_mid_training_loses_nothing(stack: PoolAndNode, tmp_path: Path) -> None:
    program, go_on, at_once = tmp_path / "train.py", tmp_path / "go-on", tmp_path / "at-once"
    program.write_text(_PROGRAM)
    at_once.touch()
    undisturbed = stack.gpupool("softgpu", "--", sys.executable, str(program), str(at_once), seconds=120)
    command = ["run", "-p", "0.2", "--wait", "5m", "--", sys.executable, str(program), str(go_on)]
    with subprocess.Popen(
        stack.command(*command),
        env=stack.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            stack.wait(lambda: (_place(stack) or ("",))[0] == "attached", 60, "the first node")
            first = _place(stack)
            assert first is not None
            stack.wait(
                lambda: _place(stack) in [("attached", name) for name in _living(stack) if name != first[1]],
                90,
                "the move",
            )
            go_on.touch()
            out, err = running.communicate(timeout=60 * BUSY)
        finally:
            running.kill()
    assert running.returncode == 0, err
    assert out == undisturbed.stdout, err
    jobs = [record for record in stack.log("pool").splitlines() if "job=" in record or "notice" in record]
    submitted, notice = (
        [number for number, line in enumerate(jobs) if words in line]
        for words in ("a job is submitted", "notice ")
    )
    assert submitted[1] < notice[0], "the successor was asked for after the notice"
