"""Module images are sent to a node once: the second program of the same user only names them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pool_node import PoolAndNode, native_worker_is_built

pytestmark = [
    pytest.mark.skipif(not native_worker_is_built(), reason="native parts not built"),
    pytest.mark.slow,
]

#: A kernel whose code is well above the size that is worth asking for, and one that is not.
PROGRAM = """
import json, math
import numpy as np
from numba import cuda
from gpupool.client import runtime
runtime.load(software=True)

body = "\\n".join(f"        y = math.sin(x[i] + {n}) * math.cos(y * {n}.5) + math.exp(-y)" for n in range(40))
space = {"math": math, "cuda": cuda}
exec(f"def large(x):\\n    i = cuda.grid(1)\\n    if i < x.size:\\n        y = x[i]\\n{body}\\n        x[i] = y", space)
large = cuda.jit("void(float64[:])")(space["large"])

@cuda.jit("void(int8[:])")
def small(x):
    x[0] = 1

x = cuda.to_device(np.arange(64, dtype=np.float64))
large[1, 64](x)
small[1, 1](cuda.to_device(np.zeros(4, np.int8)))
result = float(x.copy_to_host().sum())
counted = runtime.counters()
asks = sum(counted.asks_by_name.get(name, (0, 0))[0] for name in ("cuModuleLoadData", "cuLinkAddData_v2"))
print(json.dumps([result, counted.images_sent, counted.images_found, asks]))
"""


@pytest.fixture(scope="module")
def stack() -> Iterator[PoolAndNode]:
    with PoolAndNode(real_worker=True) as running:
        yield running


def run(stack: PoolAndNode) -> tuple[float, list[int], list[int], int]:
    done = stack.gpupool("run", "-p", "0.2", "--", sys.executable, "-c", PROGRAM, seconds=120)
    assert done.returncode == 0, done.stderr
    result, sent, found, asks = json.loads(done.stdout.splitlines()[-1])
    return result, sent, found, asks


def cached(stack: PoolAndNode) -> list[Path]:
    return [path for path in stack.home.glob("run/n1/images/*/*") if len(path.name) == 64]


def test_a_second_program_sends_less_than_a_twentieth_of_the_first(stack: PoolAndNode) -> None:
    first, second = run(stack), run(stack)
    assert first[0] == second[0]
    large = first[1][1] - second[1][1]
    assert large > 16 << 10
    # What is still sent are images too small to ask for.
    assert second[1][1] < 0.05 * first[1][1]
    # numba links one image and loads what comes out, which on a software GPU is the same text: sent once even so.
    assert first[2] == [1, large]
    assert second[2] == [2, 2 * large]
    # What was there costs no more round trips than bytes would; what was not costs one more.
    assert second[3] == second[1][0] + second[2][0]
    assert first[3] == second[3] + 1
    assert sum(path.stat().st_size for path in cached(stack)) == large


def test_a_damaged_file_is_a_miss_never_a_wrong_kernel(stack: PoolAndNode) -> None:
    whole = run(stack)
    (file,) = cached(stack)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    again = run(stack)
    assert again[0] == whole[0]
    assert again[1][1] == whole[1][1] + len(content)
    assert run(stack)[1] == whole[1]


def test_a_node_may_be_told_to_keep_none() -> None:
    with PoolAndNode(real_worker=True) as stack:
        stack.kill("node")
        stack.start_node("--image-cache-mib", "0")
        stack.wait(lambda: len(stack.healthy()) == stack.gpus, 30, "the node's devices")
        first, second = run(stack), run(stack)
        assert first[1] == second[1]
        assert second[2] == [0, 0]
        # One question per process finds out.
        assert second[3] <= second[1][0] + 1
        assert cached(stack) == []


def test_the_cache_belongs_to_one_user(stack: PoolAndNode) -> None:
    run(stack)
    users = {path.parent for path in cached(stack)}
    assert len(users) == 1
    assert subprocess.run(["stat", "-c", "%a", *users], capture_output=True, text=True).stdout.split() == [
        "700"
    ]
