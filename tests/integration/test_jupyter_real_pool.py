"""The server extension over the real pool server and node agent; workers execute nothing here.

What needs CUDA is in test_main_job.py, test_bad_input.py and test_ways_to_die.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from gpupool.client.session_file import SessionFile

from tests.support.jupyter import Cells, JupyterInProcess, jupyter_in_process
from tests.support.patience import BUSY
from tests.support.pool_node import SCALE, PoolAndNode
from tests.support.stand_in import build_stand_in

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def stack() -> Iterator[PoolAndNode]:
    with PoolAndNode("--quota", "ann=0.9") as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(
    stack: PoolAndNode, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[JupyterInProcess]:
    native = build_stand_in(tmp_path_factory.mktemp("native"))
    settings = {"renew_seconds": 5 * SCALE, "idle_seconds": 0.0}
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GPUPOOL_NATIVE_DIR", str(native))
        folder = tmp_path_factory.mktemp("jupyter")
        async with jupyter_in_process(folder, endpoint=stack.endpoint, **settings) as running:
            yield running


@pytest_asyncio.fixture(loop_scope="module")
async def jupyter(stack: PoolAndNode, server: JupyterInProcess) -> AsyncIterator[JupyterInProcess]:
    yield server
    await server.clear()
    await until(stack.all_free, 15, "every share to be free")
    await asyncio.to_thread(stack.close_sessions)  # what a test that failed has left


@pytest_asyncio.fixture(loop_scope="module")
async def kernel(jupyter: JupyterInProcess) -> Cells:
    return await jupyter.start_kernel()


async def until(condition: Callable[[], object], seconds: float, what: str) -> None:
    deadline = asyncio.get_running_loop().time() + seconds * BUSY
    while not await asyncio.to_thread(condition):
        assert asyncio.get_running_loop().time() < deadline, f"waited {seconds} s for {what}"
        await asyncio.sleep(0.1)


async def test_a_cell_attaches_parks_and_resumes_its_session(
    stack: PoolAndNode, jupyter: JupyterInProcess, kernel: Cells
) -> None:
    first = await kernel.run("%%gpu 0.2\n%gpu list")
    assert first.status == "ok", first.text
    assert "you" in first.text
    assert "device time" in first.text
    view = await jupyter.kernel(kernel.kernel_id)
    assert (view["state"], view["reason"]) == ("parked", "exit")
    await until(stack.all_free, 5, "the share of the ended cell")
    assert len(stack.worker_pids()) == 1
    await kernel.run("%%gpu 0.3\n1")
    assert (await jupyter.kernel(kernel.kernel_id))["session_id"] == view["session_id"]


async def test_the_session_file_says_what_the_pool_granted(
    stack: PoolAndNode, jupyter: JupyterInProcess, kernel: Cells
) -> None:
    file = SessionFile(Path(jupyter.environment_of(kernel.kernel_id)["GPUPOOL_SESSION_FILE"]))
    before = file.read()
    assert (before.state, before.software) == ("none", True)
    assert "Scripted GPU" in Path(before.profile).read_text()
    path = f"gpupool/api/kernels/{kernel.kernel_id}"
    await jupyter.json("POST", f"{path}/attach", {"share": "20%"})
    view = await jupyter.until(kernel.kernel_id, "attached")
    record = file.read()
    assert (record.state, record.session) == ("attached", view["session_id"])
    assert record.address.startswith("127.0.0.1:")
    assert len(record.token) == 64
    _, view = await jupyter.json("POST", f"{path}/resize", {"share": "0.4"})
    assert view["share"]["milli"] == 400
    assert file.read().epoch >= record.epoch
    _, pool = await jupyter.json("GET", "gpupool/api/pool")
    shares = [share for device in pool["devices"] for share in device["shares"]]
    assert [(share["mine"], share["kernel_id"], share["milli"]) for share in shares] == [
        (True, kernel.kernel_id, 400)
    ]


async def test_quota_full_and_bad_shares_have_one_sentence_with_numbers(
    kernel: Cells, stack: PoolAndNode
) -> None:
    for line, named in [("0.95", "900"), ("900GiB --wait 0", "900GiB"), ("0.2 -n 9 --wait 0", "9")]:
        reply = await kernel.run(f"%%gpu {line}\nprint('the body ' + 'ran')")
        assert reply.status == "error", line
        assert named in reply.evalue or "0.9" in reply.evalue, reply.evalue
        assert "the body ran" not in reply.text
        assert reply.text.strip().count("\n") == 0, reply.text


async def test_the_queue_of_the_real_pool(
    stack: PoolAndNode, jupyter: JupyterInProcess, kernel: Cells
) -> None:
    leases = [
        (await asyncio.to_thread(stack.gpupool, "lease", "request", "-p", "0.9", "--json")).stdout
        for _ in range(2)
    ]
    waiting = kernel.start("%%gpu 0.2 --wait 30\nprint('the body ' + 'ran')")
    # A request is on its way before the pool has said its place.
    async with asyncio.timeout(10 * BUSY):
        while (view := await jupyter.kernel(kernel.kernel_id))["queue"] is None:
            await asyncio.sleep(0.05)
    assert (view["state"], view["queue"]["place"]) == ("queued", 1)
    assert any(character.isdigit() for character in view["queue"]["reason"])
    for device in await asyncio.to_thread(stack.devices):
        for share in device["shares"]:
            await asyncio.to_thread(stack.gpupool, "lease", "release", share["lease_id"])
    reply = await kernel.finish(waiting)
    assert reply.status == "ok", (reply.text, leases)
    assert "the body ran" in reply.text


async def test_a_killed_kernel_frees_its_share(
    stack: PoolAndNode, jupyter: JupyterInProcess, kernel: Cells
) -> None:
    assert (await kernel.run("%gpu attach 0.5")).status == "ok"
    os.kill(jupyter.app.kernel_manager.get_kernel(kernel.kernel_id).provisioner.pid, signal.SIGKILL)
    await until(stack.all_free, 15, "the share of the killed kernel")
    await until(lambda: not stack.worker_pids(), 15, "the end of its worker")


async def test_a_killed_worker_is_said_and_the_next_cell_works(
    stack: PoolAndNode, jupyter: JupyterInProcess, kernel: Cells
) -> None:
    assert (await kernel.run("%gpu attach 0.5")).status == "ok"
    [worker] = stack.worker_pids()
    os.kill(worker, signal.SIGKILL)
    view = await jupyter.until(kernel.kernel_id, "lost", seconds=10)
    assert (view["reason"], view["held"]) == ("lost", False)
    assert view["message"]
    assert (await kernel.run("%%gpu 0.2\n1")).status == "ok"


async def test_a_pool_that_dies_under_a_hold_and_comes_back_keeps_the_session(
    stack: PoolAndNode, jupyter: JupyterInProcess, kernel: Cells
) -> None:
    assert (await kernel.run("%gpu attach 0.5")).status == "ok"
    session_id = (await jupyter.kernel(kernel.kernel_id))["session_id"]
    stack.kill("pool")
    # What it holds it goes on with.
    joined = await kernel.run("%%gpu 0.2\nprint('the body ' + 'ran')")
    assert (joined.status, "the body ran" in joined.text) == ("ok", True), joined.text
    _, pool = await jupyter.json("GET", "gpupool/api/pool")
    assert pool["ok"] is False
    await asyncio.to_thread(stack.start_pool)
    await until(lambda: len(stack.healthy()) == 2, 15, "the node's return")
    # With these short timers the outage may outlast the lease; then the share is asked for again, for the same session.
    view = await jupyter.until(kernel.kernel_id, "attached", seconds=15)
    assert view["session_id"] == session_id
    assert (await kernel.run("%%gpu 0.2\n1")).status == "ok"
    assert (await jupyter.kernel(kernel.kernel_id))["session_id"] == session_id


async def test_a_lease_that_an_admin_ends_is_noticed(
    stack: PoolAndNode, jupyter: JupyterInProcess, kernel: Cells
) -> None:
    assert (await kernel.run("%gpu attach 0.5")).status == "ok"
    [share] = [share for device in await asyncio.to_thread(stack.devices) for share in device["shares"]]
    await asyncio.to_thread(stack.gpupool, "lease", "release", share["lease_id"])
    # The command ends the session too when it likes; either way the kernel is told.
    view = await jupyter.until(kernel.kernel_id, "parked", "lost", seconds=5)
    assert view["held"] is False
    assert view["message"]
    assert (await kernel.run("%%gpu 0.2\n1")).status == "ok"
