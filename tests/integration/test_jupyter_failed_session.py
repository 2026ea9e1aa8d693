"""A GPU session that failed, that is reset, or whose work its user will not wait for: what the kernel says and does.

The client runtime is a stand-in; tests/integration/test_endless_cells.py has the same with kernels that really run.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.support.jupyter import Cells, JupyterInProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")

SET = "import ctypes; setenv, unset = ctypes.CDLL(None).setenv, ctypes.CDLL(None).unsetenv\n"
BREAK = "%%gpu 0.2\n" + SET + "setenv(b'STAND_IN_FAILURE', b'700', 1)"
MEND = SET + "unset(b'STAND_IN_FAILURE'), unset(b'STAND_IN_DRAIN')"
ENDLESS = SET + "setenv(b'STAND_IN_KERNEL', b'forever', 1)\nprint('the cell ' + 'is over')"


def attaches(jupyter: JupyterInProcess) -> int:
    return sum(call == "request" for call, _ in jupyter.pool.calls)


async def number_of_next(kernel: Cells) -> int:
    """The execution count of the cell that is sent next, which the front end shows beside it."""
    return int((await kernel.run("0")).outputs[-1]["execution_count"]) + 1


async def test_the_cell_that_broke_the_session_is_named_and_nothing_is_attached_any_more(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    number = await number_of_next(kernel)
    broke = await kernel.run(BREAK)
    assert f"cell [{number}]" in broke.text
    assert "illegal address" in broke.text
    assert "CUDA error 700" not in broke.text
    shown = (await jupyter.kernel(kernel.kernel_id))["usage"]
    assert shown is None or shown["failed_cell"] in ("", f"[{number}]")
    before = attaches(jupyter)
    for cell in (
        "%%gpu 0.2\nprint('r' + 'an')",
        "%gpu attach 0.2",
        "import gpupool\nwith gpupool.attach(): 1",
    ):
        refused = await kernel.run(cell)
        assert refused.status == "error"
        assert f"cell [{number}]" in refused.evalue
        assert "ran" not in refused.text
    assert attaches(jupyter) == before
    assert (await kernel.run("%gpu status")).text.count(f"cell [{number}]") == 1


async def test_the_error_of_the_last_wait_is_enough(jupyter: JupyterInProcess, kernel: Cells) -> None:
    number = await number_of_next(kernel)
    broke = await kernel.run("%%gpu 0.2\n" + SET + "setenv(b'STAND_IN_DRAIN', b'719', 1)")
    assert f"cell [{number}]" in broke.text
    assert "the worker says why" not in broke.text
    assert (await kernel.run("%%gpu 0.2\n1")).status == "error"


async def test_a_reset_begins_anew(jupyter: JupyterInProcess, kernel: Cells) -> None:
    await kernel.run("kept = 'here'")
    await kernel.run(BREAK)
    session = (await jupyter.kernel(kernel.kernel_id))["session_id"]
    assert session is not None
    reset = await kernel.run("%gpu reset")
    assert reset.status == "ok", reset.text
    assert jupyter.pool.session_states[session] == "closed"
    await kernel.run(MEND)
    again = await kernel.run("%%gpu 0.2\nprint(kept)")
    assert (again.status, "here" in again.text, "failed" in again.text) == ("ok", True, False)
    assert (await jupyter.kernel(kernel.kernel_id))["session_id"] != session


async def test_a_reset_from_outside_is_noticed(jupyter: JupyterInProcess, kernel: Cells) -> None:
    await kernel.run(BREAK)
    await kernel.run(MEND)
    assert (await kernel.run("%%gpu 0.2\n1")).status == "error"
    status, _ = await jupyter.json("POST", f"gpupool/api/kernels/{kernel.kernel_id}/reset")
    assert status == 200
    assert (await kernel.run("%%gpu 0.2\n1")).status == "ok"


async def test_under_a_hold_the_failure_is_said_too_and_auto_does_not_attach(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    assert (await kernel.run("%gpu auto on 0.2")).status == "ok"
    assert (await kernel.run("%gpu attach 0.2")).status == "ok"
    number = await number_of_next(kernel)
    broke = await kernel.run(SET + "setenv(b'STAND_IN_FAILURE', b'710', 1)")
    assert f"cell [{number}]" in broke.text
    # What a framework's call fails with is explained again; other cells are left alone.
    later = await kernel.run("raise RuntimeError('CUDA_ERROR_ASSERT')")
    assert f"cell [{number}]" in later.text
    assert f"cell [{number}]" not in (await kernel.run("1 / 0")).text
    wishing = await kernel.run(
        "import ctypes; from gpupool.client import runtime\n"
        "print('wishes', ctypes.c_int.in_dll(runtime._library, 'gpupool_stand_in_wishes').value)"
    )
    assert "wishes 0" in wishing.text


async def test_a_reset_without_a_session_changes_nothing(jupyter: JupyterInProcess, kernel: Cells) -> None:
    assert (await kernel.run("%gpu reset")).status == "ok"
    assert [call for call, _ in jupyter.pool.calls if call == "close_session"] == []
    assert "takes no argument" in (await kernel.run("%gpu reset now")).evalue


async def interrupt(jupyter: JupyterInProcess, kernel: Cells) -> None:
    await jupyter.app.kernel_manager.interrupt_kernel(kernel.kernel_id)


@pytest.mark.parametrize("ending", ["", "import time; time.sleep(60)"], ids=["over", "in the cell"])
async def test_a_first_interrupt_says_what_runs_and_a_second_ends_the_session(
    jupyter: JupyterInProcess, kernel: Cells, ending: str
) -> None:
    await kernel.run("kept = 'here'")
    running = kernel.start(f"%%gpu 0.2\n{ENDLESS}\n{ending}")
    await kernel.says(running, "the cell is over")
    session = (await jupyter.kernel(kernel.kernel_id))["session_id"]
    await asyncio.sleep(1)
    await interrupt(jupyter, kernel)
    await kernel.says(running, 'kernel "forever" (since 14 s)')
    assert (await jupyter.kernel(kernel.kernel_id))["state"] == "attached"
    await asyncio.sleep(0.5)
    await interrupt(jupyter, kernel)
    reply = await kernel.finish(running, 10)
    assert reply.status == "error"
    assert "KeyboardInterrupt" in reply.text
    line = str(reply.outputs[-1]["data"]["text/plain"])
    assert "forever" in line
    assert "interrupted" in line
    assert jupyter.pool.session_states[session] == "closed"
    again = await kernel.run("%%gpu 0.2\nprint(kept)")
    assert (again.status, "here" in again.text) == ("ok", True)


async def test_what_is_done_after_one_interrupt_is_no_reset(jupyter: JupyterInProcess, kernel: Cells) -> None:
    beside = await kernel.subshell()
    running = kernel.start(f"%%gpu 0.2\n{ENDLESS}")
    await kernel.says(running, "the cell is over")
    session = (await jupyter.kernel(kernel.kernel_id))["session_id"]
    await asyncio.sleep(1)
    await interrupt(jupyter, kernel)
    await kernel.says(running, "forever")
    kernel.send(beside, "execute_request", {"code": "unset(b'STAND_IN_KERNEL')", "silent": False})
    reply = await kernel.finish(running, 10)
    # Run All stops: the user wanted it to.
    assert (reply.status, "KeyboardInterrupt" in reply.text) == ("error", True)
    assert jupyter.pool.session_states[session] != "closed"


@pytest.mark.parametrize("line", ["%gpu help", "%gpu --help", "%gpu -h", "%%gpu --help\nprint('r' + 'an')"])
async def test_help_is_printed_and_nothing_runs(jupyter: JupyterInProcess, kernel: Cells, line: str) -> None:
    reply = await kernel.run(line)
    assert reply.status == "ok"
    assert "%gpu reset" in reply.text
    assert "ran" not in reply.text.replace("%gpu --help", "").split()
    assert attaches(jupyter) == 0
