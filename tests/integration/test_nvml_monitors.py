"""What people watch GPUs with, run for real beside a program on a share of a software GPU.

nvitop and gpustat are no dependency of this project. Their tests run where they are installed beside this Python,
or in the environment whose `bin` folder GPUPOOL_MONITORS names; elsewhere they are skipped.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pool_node import PoolAndNode, native_worker_is_built

pytestmark = [
    pytest.mark.skipif(not native_worker_is_built(), reason="native parts not built"),
    pytest.mark.slow,
]

#: Keeps the share's device busy and 64 MiB of it in use until its standard input ends.
BUSY = """
import sys, threading
import numpy as np
from numba import cuda
@cuda.jit
def spin(x):
    i = cuda.grid(1)
    v = x[i]
    for _ in range(2000):
        v = v * 1.000001 + 0.5
    x[i] = v
kept = cuda.device_array(64 << 20, np.uint8)
x = cuda.to_device(np.ones(4096))
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
print("busy", flush=True)
while not ended.is_set():
    spin[16, 256](x)
    cuda.synchronize()
"""

#: Runs a program beside the busy one and prints what it said, once the holder of the share has heard figures.
BESIDE = """
import json, os, subprocess, sys, time
from pathlib import Path
busy = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
assert busy.stdout.readline() == "busy\\n"
usage = Path(os.environ["GPUPOOL_SESSION_FILE"] + ".usage")
deadline = time.monotonic() + 40
while time.monotonic() < deadline:
    text = usage.read_text() if usage.exists() else ""
    if "memory_used 6" in text and "busy_permille 0\\n" not in text:
        break
    time.sleep(0.1)
environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"} | {"TERM": "dumb", "COLUMNS": "120"}
done = subprocess.run(sys.argv[2:], capture_output=True, text=True, timeout=60, env=environment)
print(json.dumps([busy.pid, done.returncode, done.stdout, done.stderr]))
busy.communicate("", timeout=30)
"""


@pytest.fixture(scope="module")
def stack() -> Iterator[PoolAndNode]:
    with PoolAndNode(real_worker=True) as running:
        yield running


def beside(stack: PoolAndNode, *command: str) -> tuple[int, str]:
    """The busy program's pid and what the command printed."""
    done = stack.gpupool("run", "-m", "512", "--", sys.executable, "-c", BESIDE, BUSY, *command, seconds=150)
    assert done.returncode == 0, done.stderr
    pid, status, out, errors = json.loads(done.stdout.splitlines()[-1])
    assert status == 0, out + errors
    return pid, out


def monitor(name: str) -> str:
    folders = [Path(sys.executable).parent, *map(Path, filter(None, [os.environ.get("GPUPOOL_MONITORS")]))]
    for folder in folders:
        if (folder / name).exists():
            return str(folder / name)
    pytest.skip(f"{name} is not installed beside this Python nor in GPUPOOL_MONITORS")


def test_pynvml_in_a_process_of_its_own(stack: PoolAndNode) -> None:
    program = """
import json, pynvml as n
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
m = n.nvmlDeviceGetMemoryInfo(h)
print(json.dumps([n.nvmlDeviceGetCount(), m.total, m.used, n.nvmlDeviceGetUtilizationRates(h).gpu,
                  [[p.pid, p.usedGpuMemory] for p in n.nvmlDeviceGetComputeRunningProcesses(h)]]))
"""
    pid, out = beside(stack, sys.executable, "-c", program)
    count, total, used, busy, processes = json.loads(out)
    assert (count, total) == (1, 512 << 20)
    assert 64 << 20 <= used < 80 << 20
    assert 0 < busy <= 100
    assert processes == [[pid, used]]


def test_gpustat(stack: PoolAndNode) -> None:
    pid, out = beside(stack, monitor("gpustat"), "--json")
    (gpu,) = json.loads(out)["gpus"]
    assert "software GPU" in gpu["name"] or "Software GPU" in gpu["name"]
    assert gpu["memory.total"] == 512
    assert 64 <= gpu["memory.used"] < 80
    assert 0 < gpu["utilization.gpu"] <= 100
    assert gpu["temperature.gpu"] is None
    assert [process["pid"] for process in gpu["processes"]] == [pid]


def test_nvitop(stack: PoolAndNode) -> None:
    pid, out = beside(stack, monitor("nvitop"), "--once", "--ascii")
    assert "512.0MiB" in out or "512MiB" in out
    assert str(pid) in out
