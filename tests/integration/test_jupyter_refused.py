"""`%%gpu` that is refused or waits: one clear message, and no share is left behind."""

from __future__ import annotations

import asyncio

import pytest

from jupyter_gpupool.server.handlers import kernel_side
from tests.support.jupyter import Cells, JupyterInProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_bad_arguments_name_the_value(kernel: Cells) -> None:
    for line, named in [
        ("1.7", "1.7"),
        ("banana", "banana"),
        ("0", "0"),
        ("-0.2", "-0.2"),
        ("nan", "nan"),
        ("0.2 -n 0", "'0'"),
        ("0.2 -n many", "many"),
        ("0.2 --wait soon", "soon"),
        ("0.2 --for never", "never"),
        ("0.2 --fro 3", "--fro"),
        ("0.2 0.3", "0.3"),
        ("'0.2", "'0.2"),
        ("900GiB --wait 0", "900GiB"),
    ]:
        reply = await kernel.run(f"%%gpu {line}\nprint('the body ' + 'ran')")
        assert reply.status == "error", line
        assert named in reply.evalue
        assert "the body ran" not in reply.text
        assert reply.text.strip().count("\n") == 0, f"not one clear message: {reply.text}"


async def test_the_pool_is_down(jupyter: JupyterInProcess, kernel: Cells) -> None:
    jupyter.pool.down = True
    reply = await kernel.run("%%gpu 0.2\nprint('the body ' + 'ran')")
    assert (reply.ename, reply.text.strip().count("\n")) == ("GpuError", 0)
    assert "does not answer" in reply.evalue
    assert jupyter.pool.endpoint in reply.evalue
    jupyter.pool.down = False
    assert (await kernel.run("%%gpu 0.2\n1")).status == "ok"


async def test_quota_and_full_say_numbers(jupyter: JupyterInProcess, kernel: Cells) -> None:
    jupyter.pool.quota_milli = 600
    reply = await kernel.run("%%gpu 0.7\n1")
    assert "600" in reply.evalue
    other = await jupyter.start_kernel()
    await other.run("%gpu attach 0.6")
    await kernel.run("%gpu attach 0.3")
    third = await jupyter.start_kernel()
    reply = await third.run("%%gpu 0.2 --wait 0\nprint('the body ' + 'ran')")
    assert "100 free" in reply.evalue
    reply = await third.run("%%gpu 0.2 --wait 0.5\nprint('the body ' + 'ran')")
    assert "0.5 s" in reply.evalue
    assert "the body ran" not in reply.text
    await kernel.run("%gpu detach")
    await other.run("%gpu detach")


async def test_waiting_shows_the_place_and_ends_with_the_share(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    other = await jupyter.start_kernel()
    await other.run("%gpu attach 0.9")
    waiting = kernel.start("%%gpu 0.2 --wait 30\nprint('the body ' + 'ran')")
    await jupyter.until(kernel.kernel_id, "queued")
    await kernel.says(waiting, "place 1")
    await other.run("%gpu detach")
    reply = await kernel.finish(waiting)
    assert reply.status == "ok"
    assert "place 1" in reply.text
    assert "the body ran" in reply.text


@pytest.mark.parametrize("body", ["print('ran')", "import asyncio\nawait asyncio.sleep(0)\nprint('ran')"])
async def test_the_wait_can_be_interrupted_at_once(
    jupyter: JupyterInProcess, kernel: Cells, body: str
) -> None:
    other = await jupyter.start_kernel()
    await other.run("%gpu attach 0.9")
    waiting = kernel.start(f"%%gpu 0.2 --wait 60\n{body}")
    await jupyter.until(kernel.kernel_id, "queued")
    await kernel.says(waiting, "place 1")
    await jupyter.app.kernel_manager.interrupt_kernel(kernel.kernel_id)
    reply = await kernel.finish(waiting, 5)
    assert reply.status == "error"
    assert "stopped waiting for a GPU (place 1 in the queue)" in reply.text
    assert "ran" not in reply.text.split()
    assert reply.outputs[-1]["data"]["text/plain"] == "", "a saved notebook must not say that it waits"
    await jupyter.until(kernel.kernel_id, "none")
    assert jupyter.pool.waiting == []
    await other.run("%gpu detach")


async def test_a_long_wait_in_a_quiet_queue_is_no_dead_server(
    jupyter: JupyterInProcess, kernel: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_side, "_SIGN_OF_LIFE_SECONDS", 0.2)
    other = await jupyter.start_kernel()
    await other.run("%gpu attach 0.9")
    await kernel.run("import jupyter_gpupool.kernel.scope as scope; scope.STREAM_SECONDS = 1.0")
    reply = await kernel.run("%%gpu 0.5 --wait 3\nprint('the body ' + 'ran')")
    assert (reply.status, "the body ran" in reply.text) == ("error", False)
    assert "within 3 s" in reply.evalue


async def test_who_will_not_wait_does_not_wait_for_the_kernels_own_request_either(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    other = await jupyter.start_kernel()
    await other.run("%gpu attach 0.9")
    path = f"gpupool/api/kernels/{kernel.kernel_id}"
    status, view = await jupyter.json("POST", f"{path}/attach", {"share": "0.5", "wait": 60})
    assert (status, view["state"]) == (202, "queued")
    reply = await kernel.run("%%gpu 0.5 --wait 0\n1", seconds=10)
    assert "already asks for a GPU" in reply.evalue
    await jupyter.json("DELETE", f"{path}/queue")


async def test_a_waiting_cell_goes_on_with_what_is_taken_instead(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    other = await jupyter.start_kernel()
    await other.run("%gpu attach 0.6")
    path = f"gpupool/api/kernels/{kernel.kernel_id}"
    cell = asyncio.ensure_future(kernel.run("%%gpu 0.9 --wait forever\nprint('the body ' + 'ran')"))
    while (view := await jupyter.kernel(kernel.kernel_id))["queue"] is None:
        await asyncio.sleep(0.02)
    assert (view["queue"]["takes"], view["queue"]["cell"]) == (True, True)

    # Somebody may be quicker: then the cell waits for it, and does not fail.
    status, view = await jupyter.json("POST", f"{path}/take", {"share": "0.5", "wait": 0})
    assert status == 202
    while (view := await jupyter.kernel(kernel.kernel_id))["queue"] is None:
        await asyncio.sleep(0.02)
    status, _ = await jupyter.json("POST", f"{path}/take", {"share": "0.3", "wait": 0})
    assert status == 202
    reply = await asyncio.wait_for(cell, 20)
    assert reply.status == "ok", reply.text
    assert "the body ran" in reply.text
    assert "0.3 GPU (2380 MiB), GPU 0 on node1" in reply.text
    assert (await jupyter.kernel(kernel.kernel_id))["state"] == "parked"
    status, answer = await jupyter.json("POST", f"{path}/take", {"share": "0.3"})
    assert (status, answer["reason"]) == (409, "not-queued")
    await other.run("%gpu detach")


async def test_what_is_held_may_be_taken_smaller_too(jupyter: JupyterInProcess, kernel: Cells) -> None:
    other = await jupyter.start_kernel()
    await other.run("%gpu attach 0.6")
    path = f"gpupool/api/kernels/{kernel.kernel_id}"
    await jupyter.json("POST", f"{path}/attach", {"share": "0.9", "wait": 60})
    # A page that reads "none" here takes the wait for over, and gives up.
    status, view = await jupyter.json("POST", f"{path}/take", {"share": "0.4", "wait": 0})
    assert (status, view["state"] in ("queued", "attached")) == (202, True)
    while (view := await jupyter.kernel(kernel.kernel_id))["state"] != "attached":
        await asyncio.sleep(0.02)
    assert (view["share"]["milli"], view["by"], jupyter.pool.waiting) == (400, "sidebar", [])
    await other.run("%gpu detach")
