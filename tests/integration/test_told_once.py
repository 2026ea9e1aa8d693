"""A program under `gpupool run` loses its share and calls CUDA: its user reads why once, from the command and not from the
runtime too; and a process that tells its user itself, as a notebook's does, is told all the same.

Real pool, node, worker, software GPU and `gpupool run`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.client.pool import PoolClient
from gpupool.client.projects import LimitSettings, ProjectsClient, ProjectSettings
from gpupool.sentences import reasons

from tests.support.patience import BUSY
from tests.support.pool_node import SCALE, PoolAndNode, native_worker_is_built

pytestmark = pytest.mark.skipif(not native_worker_is_built(), reason="native parts not built")

#: The sentence of the command; the runtime's would begin alike.
SENTENCE = "The pool took this program's GPU share back: "
#: By the reason of its end, what a share is asked for with.
WAYS: dict[str, tuple[str, ...]] = {
    "deadline": ("--for", "20"),
    "release": (),
    "budget": ("--user", "ann"),
    "reclaim": ("--project", "guest", "--wait-again", "0"),
}
#: Calls CUDA when its session is over. With the argument `itself` it tells its user itself.
PROGRAM = """
import ctypes, json, os, pathlib, sys, time

if sys.argv[1] == "itself":
    os.environ["GPUPOOL_REFUSALS_TOLD_BY"] = str(os.getpid())
cuda = ctypes.CDLL("libcuda.so.1")
for name in ("gpupool_last_message", "gpupool_take_refusal"):
    getattr(cuda, name).restype = ctypes.c_char_p
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
at, byte = ctypes.c_uint64(), ctypes.c_ubyte()
assert cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(4096)) == 0
read = lambda: cuda.cuMemcpyDtoH_v2(ctypes.byref(byte), at, ctypes.c_size_t(1))
assert read() == 0
print("ready", flush=True)
while "state closed" not in pathlib.Path(os.environ["GPUPOOL_SESSION_FILE"]).read_text():
    time.sleep(0.05)
results = [read() for _ in range(3)]
found = {"results": results, "last": cuda.gpupool_last_message().decode()}
print(json.dumps({**found, "kept": cuda.gpupool_take_refusal().decode()}))
"""


async def make_projects(stack: PoolAndNode) -> None:
    async with PoolClient(stack.endpoint) as pool:
        projects = ProjectsClient(pool)
        await projects.set_project(ProjectSettings("guest", deserved_milli=0, min_run_seconds=0.0))
        await projects.set_project(ProjectSettings("owner", deserved_milli=1000))


async def limit(stack: PoolAndNode, user: str, gpu_seconds: int | None) -> None:
    """None: as before."""
    async with PoolClient(stack.endpoint) as pool:
        projects = ProjectsClient(pool)
        if gpu_seconds is None:
            await projects.remove_limit(user)
        else:
            await projects.set_limit(LimitSettings(user, gpu_seconds=gpu_seconds))


@pytest.fixture(scope="module")
def stack() -> Iterator[PoolAndNode]:
    with PoolAndNode(real_worker=True, gpus=1, scale=4 * SCALE) as running:
        asyncio.run(make_projects(running))
        yield running


@pytest.fixture(autouse=True)
def nothing_is_left(stack: PoolAndNode) -> Iterator[None]:
    yield
    try:
        stack.wait_free()
    finally:
        stack.close_sessions()


def start(stack: PoolAndNode, folder: Path, how: str, *options: str) -> subprocess.Popen[str]:
    """Returns when the program has its share and has used it."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    running = subprocess.Popen(
        stack.command("run", "-p", "0.5", *options, "--", sys.executable, str(program), how),
        env=stack.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    line = running.stdout.readline()
    assert line == "ready\n", line + running.communicate(timeout=60)[1]
    return running


def take(stack: PoolAndNode, way: str) -> None:
    """Has the pool take the share back, now or soon."""
    match way:
        case "release":
            stack.gpupool("lease", "release", stack.last_lease()["id"])
        case "budget":
            asyncio.run(limit(stack, "ann", 1))
        case "reclaim":
            asked = stack.gpupool("lease", "request", "-p", "1", "--project", "owner", "--wait", "60")
            assert asked.returncode == 0, asked.stderr
            stack.gpupool("lease", "release", asked.stdout.strip())


def ended(stack: PoolAndNode, running: subprocess.Popen[str], way: str) -> tuple[dict[str, object], str]:
    """What the program found, and all that was written on standard error."""
    try:
        take(stack, way)
        out, errors = running.communicate(timeout=60 * BUSY)
    finally:
        running.kill()
        if way == "budget":
            asyncio.run(limit(stack, "ann", None))
    assert running.returncode == 0, out + errors
    found: dict[str, object] = json.loads(out)
    return found, errors


@pytest.mark.parametrize("way", WAYS)
def test_why_a_share_was_taken_back_is_read_once(stack: PoolAndNode, tmp_path: Path, way: str) -> None:
    found, errors = ended(stack, start(stack, tmp_path, "not itself", *WAYS[way]), way)
    assert found["results"] == [46] * 3
    assert errors.count(SENTENCE) == 1, errors
    assert f"{SENTENCE}{reasons.because(way)}." in errors
    # Whoever asks the runtime is told by it, too.
    assert reasons.because(way) in str(found["last"])


def test_a_process_that_tells_its_user_itself_loses_nothing(stack: PoolAndNode, tmp_path: Path) -> None:
    found, errors = ended(stack, start(stack, tmp_path, "itself"), "release")
    assert found["results"] == [46] * 3
    assert str(found["kept"]).startswith(SENTENCE)
    assert errors.count(SENTENCE) == 1, errors
