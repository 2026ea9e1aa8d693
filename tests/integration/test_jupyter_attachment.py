"""`gpupool.attach` and `gpupool.gpu` in real kernels of a Jupyter server, and other magics below `%%gpu` that fail.

The pool is in memory and the client runtime a stand-in; over the real ones see test_own_share.py and test_main_job.py.
"""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from jupyter_gpupool.server.watching import watch
from tests.support.jupyter import Cells, JupyterInProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def kernel(jupyter: JupyterInProcess) -> Cells:
    started = await jupyter.start_kernel()
    assert (await started.run("import asyncio, gpupool, os, threading, time")).status == "ok"
    return started


def requests(jupyter: JupyterInProcess) -> int:
    return sum(1 for call, _ in jupyter.pool.calls if call == "request")


async def test_a_block_is_a_scope_of_the_kernels_session(jupyter: JupyterInProcess, kernel: Cells) -> None:
    reply = await kernel.run(
        "status = lambda: get_ipython().run_line_magic('gpu', 'status')\n"
        "@gpupool.gpu(0.2)\n"
        "def work(): status()\n"
        "with gpupool.attach(0.2, project='a/b'):\n    work()\n"
        "status()"
    )
    assert reply.text.count("state: attached") == 1
    assert "state: no GPU, memory kept (since the cell ended)" in reply.text
    assert requests(jupyter) == 1
    assert jupyter.pool.requests[0].project == "a/b"
    inside = await kernel.run("%%gpu 0.4\nwith gpupool.attach(0.2): status()\nstatus()")
    assert inside.text.count("state: attached") == 2
    assert requests(jupyter) == 2


async def test_a_thread_that_outlives_its_cell_keeps_its_share(
    jupyter: JupyterInProcess, kernel: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SCOPE_GRACE_SECONDS", 0.2)
    reply = await kernel.run(
        "go_on = threading.Event()\n"
        "@gpupool.gpu(0.2)\n"
        "def work(): go_on.wait(30)\n"
        "thread = threading.Thread(target=work); thread.start()\n"
        "while 'attached' not in open(os.environ['GPUPOOL_SESSION_FILE']).read(): time.sleep(0.01)"
    )
    assert reply.status == "ok", reply.text
    await asyncio.sleep(2.5)  # the watch looks every second
    assert (await jupyter.kernel(kernel.kernel_id))["state"] == "attached"
    assert (await kernel.run("go_on.set(); thread.join()")).status == "ok"
    assert (await jupyter.kernel(kernel.kernel_id))["state"] == "parked"


async def test_an_interrupt_of_an_async_block_leaves_the_queue(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    other = await jupyter.start_kernel()
    assert (await other.run("%gpu attach 1")).status == "ok"
    waiting = kernel.start("async with gpupool.attach(0.2, wait='1h'): print('the body ' + 'ran')")
    await jupyter.until(kernel.kernel_id, "queued")
    await jupyter.app.kernel_manager.interrupt_kernel(kernel.kernel_id)
    reply = await kernel.finish(waiting)
    assert reply.status == "error"
    assert "the body ran" not in reply.text
    await jupyter.until(kernel.kernel_id, "none")
    assert (await kernel.run("1 + 1")).status == "ok"


async def test_a_refusal_names_what_was_asked_and_the_body_never_runs(kernel: Cells) -> None:
    reply = await kernel.run("with gpupool.attach('900GiB', wait=0): print('the body ' + 'ran')")
    assert (reply.status, reply.ename) == ("error", "AttachError")
    assert "900GiB" in reply.evalue
    assert "the body ran" not in reply.text


@pytest.mark.parametrize(
    ("cell", "error"),
    [
        ("%%gpu 0.2\n%%capture\n1 / 0", "ZeroDivisionError"),
        ("%%gpu 0.2\n%%time\n%%capture\n1 / 0", "ZeroDivisionError"),
        ("%%gpu 0.2\n%%capture\n1 +", "SyntaxError"),
        ("%%time\n%%gpu 0.2\n1 / 0", "ZeroDivisionError"),
        ("%%gpu 0.2\n%%bash\nexit 3", "CalledProcessError"),
        ("%%gpu 0.2\n%%nosuch\n1", "UsageError"),
    ],
)
async def test_a_failure_below_another_magic_stops_run_all(
    jupyter: JupyterInProcess, kernel: Cells, cell: str, error: str
) -> None:
    first, second = kernel.start(cell), kernel.start("print('the next ' + 'cell')")
    reply = await kernel.finish(first)
    assert (reply.status, reply.ename) == ("error", error)
    assert (await kernel.finish(second)).status == "aborted"
    assert (await jupyter.kernel(kernel.kernel_id))["state"] == "parked"


async def test_magics_below_that_succeed_give_their_value_and_leave_earlier_failures_alone(
    kernel: Cells,
) -> None:
    reply = await kernel.run("%%gpu 0.2\nget_ipython().run_cell('1 / 0')\nprint('went ' + 'on')")
    assert reply.status == "ok"
    assert "went on" in reply.text
    assert (await kernel.run("%%gpu 0.2\n%%capture kept\nprint('said')")).status == "ok"
    assert (await kernel.run("kept.stdout")).text.strip() == "'said\\n'"
    assert (await kernel.run("%%gpu 0.2\n%%writefile /dev/null\nx")).status == "ok"
