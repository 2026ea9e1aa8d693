"""`%%gpu` cells that fail, or whose end nobody hears of: the share goes back, and the error is the cell's own."""

from __future__ import annotations

import asyncio
from textwrap import indent

import pytest

from tests.support.jupyter import Cells, JupyterInProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_an_exception_keeps_its_traceback_and_line(jupyter: JupyterInProcess, kernel: Cells) -> None:
    reply = await kernel.run("%%gpu 0.2\nx = 1\nraise KeyError('mine')")
    assert (reply.status, reply.ename) == ("error", "KeyError")
    assert "line 3" in reply.text or "3 raise KeyError" in reply.text.replace("\x1b[0m", "")
    assert (await jupyter.kernel(kernel.kernel_id))["state"] == "parked"


async def test_a_syntax_error_never_attaches(jupyter: JupyterInProcess, kernel: Cells) -> None:
    reply = await kernel.run("%%gpu 0.2\nfor for in")
    assert reply.ename == "SyntaxError"
    assert jupyter.pool.held == {}


@pytest.mark.parametrize(
    "body",
    ["import time\ntime.sleep(60)", "import asyncio\nfor _ in range(600):\n    await asyncio.sleep(0.1)"],
    ids=["sync", "await"],
)
async def test_an_interrupt_gives_the_share_back(jupyter: JupyterInProcess, kernel: Cells, body: str) -> None:
    running = kernel.start(f"%%gpu 0.2\n{body}")
    await jupyter.until(kernel.kernel_id, "attached")
    await asyncio.sleep(0.3)
    await jupyter.app.kernel_manager.interrupt_kernel(kernel.kernel_id)
    reply = await kernel.finish(running, 15)
    assert reply.status == "error"
    assert reply.ename in ("KeyboardInterrupt", "CancelledError")
    assert (await jupyter.kernel(kernel.kernel_id))["state"] == "parked"


async def test_failed_device_work_is_said_at_the_end(jupyter: JupyterInProcess, kernel: Cells) -> None:
    reply = await kernel.run("%%gpu 0.2\nimport ctypes; ctypes.CDLL(None).setenv(b'STAND_IN_DRAIN', b'1', 1)")
    assert "the worker says why" in reply.text


async def test_a_worker_that_cannot_be_reached_fails_the_cell_and_gives_back(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    await kernel.run("import ctypes; ctypes.CDLL(None).setenv(b'STAND_IN_ATTACH', b'46', 1)")
    reply = await kernel.run("%%gpu 0.2\nprint('the body ' + 'ran')")
    assert (reply.status, reply.ename) == ("error", "GpuError")
    assert "the body ran" not in reply.text
    assert (await jupyter.kernel(kernel.kernel_id))["state"] == "parked"


#: What keeps a kernel from telling its server anything; `scopes._connect = reach` ends it.
BREAK = """from jupyter_gpupool.kernel.errors import GpuError
scopes = get_ipython().gpupool
reach = scopes._connect
def broken():
    raise GpuError("no descriptors left", "server-down")
scopes._connect = broken
"""
BROKEN = f"%%gpu 0.2\n{BREAK}"


async def test_a_cell_that_cannot_say_that_it_ended_loses_its_share_all_the_same(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    reply = await kernel.run(BROKEN)
    assert "not given back" in reply.text
    assert (await jupyter.kernel(kernel.kernel_id))["state"] == "attached"
    view = await jupyter.until(kernel.kernel_id, "parked", seconds=20)
    assert (view["reason"], jupyter.pool.free_milli) == ("exit", 1000)


async def test_a_cell_under_way_is_not_taken_for_one_that_ended(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    running = kernel.start("%%gpu 0.2\nimport time; time.sleep(9)")
    await jupyter.until(kernel.kernel_id, "attached")
    await asyncio.sleep(7.5)
    assert (await jupyter.kernel(kernel.kernel_id))["state"] == "attached"
    await kernel.finish(running)


async def test_the_next_cell_says_what_the_last_one_could_not(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    await kernel.run(BROKEN)
    reply = await kernel.run("scopes._connect = reach")
    assert reply.status == "ok"
    assert (await kernel.run("%%gpu 0.3\n1")).status == "ok"
    view = await jupyter.kernel(kernel.kernel_id)
    assert (view["state"], jupyter.pool.free_milli) == ("parked", 1000)


async def test_the_end_of_a_block_that_could_not_be_told_is_said_and_told_by_the_next_cell(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    reply = await kernel.run(f"import gpupool\nwith gpupool.attach(0.2):\n{indent(BREAK, '    ')}")
    assert (reply.status, "not given back" in reply.text) == ("ok", True)
    assert (await jupyter.kernel(kernel.kernel_id))["state"] == "attached"
    assert (await kernel.run("scopes._connect = reach")).status == "ok"
    view = await jupyter.kernel(kernel.kernel_id)
    assert (view["state"], jupyter.pool.free_milli) == ("parked", 1000)


async def test_a_block_in_a_share_that_is_held_ends_without_a_word(kernel: Cells) -> None:
    await kernel.run("%gpu attach 0.2")
    reply = await kernel.run("import gpupool\nwith gpupool.attach(0.2): pass")
    assert (reply.status, reply.text) == ("ok", "")
    await kernel.run("%gpu detach")


async def test_a_share_that_the_kernel_cannot_use_is_not_kept(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    await kernel.run(
        "import jupyter_gpupool.kernel.magics as magics\n"
        "def fails(**options): raise RuntimeError('another driver is loaded')\n"
        "magics.attach_runtime = fails"
    )
    reply = await kernel.run("%gpu attach 0.4")
    assert "another driver is loaded" in reply.evalue
    view = await jupyter.kernel(kernel.kernel_id)
    assert (view["held"], jupyter.pool.free_milli) == (False, 1000)
