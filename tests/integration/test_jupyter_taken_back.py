"""A kernel's GPU is taken back for others: what is shown, and that it comes again by itself. The pool is in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from gpupool.client.session_file import SessionFile
from gpupool.client.types import Grant, LeaseRequest, Notice
from gpupool.shares import Share

from tests.support.jupyter import Cells, JupyterInProcess
from tests.support.patience import BUSY

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def settings() -> dict[str, object]:
    return {"renew_seconds": 0.2}


def file_of(jupyter: JupyterInProcess, kernel: Cells) -> SessionFile:
    return SessionFile(Path(jupyter.environment_of(kernel.kernel_id)["GPUPOOL_SESSION_FILE"]))


async def attached(jupyter: JupyterInProcess, kernel: Cells) -> str:
    """Holds the whole device; the lease's id."""
    await jupyter.json("POST", f"gpupool/api/kernels/{kernel.kernel_id}/attach", {"share": "1"})
    await jupyter.until(kernel.kernel_id, "attached")
    return next(lease for lease, held in jupyter.pool.held.items() if held.state == "attached")


async def taken_by_another(jupyter: JupyterInProcess, lease: str) -> Grant:
    """The pool takes the lease back, and somebody else has all of it."""
    jupyter.pool.end(lease, "reclaim")
    return await jupyter.pool.request(LeaseRequest(Share(1000), on_behalf_of="bob"))


async def until(jupyter: JupyterInProcess, kernel: Cells, what: str, seconds: float = 10) -> dict[str, Any]:
    async with asyncio.timeout(seconds * BUSY):
        while not (view := await jupyter.kernel(kernel.kernel_id))[what]:
            await asyncio.sleep(0.05)
    return view


async def test_a_notice_is_shown_and_calls_rest_before_the_end(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    lease = await attached(jupyter, kernel)
    jupyter.pool.tell(lease, Notice("reclaim", 3.0, "Project b needs 1 GPU that it deserves."))
    view = await until(jupyter, kernel, "notice")
    assert (view["state"], view["reason"]) == ("warned", "reclaim")
    assert view["notice"]["explanation"] == "Project b needs 1 GPU that it deserves."
    assert view["notice"]["returns"]
    assert 0 < view["notice"]["seconds_left"] <= 3
    file = file_of(jupyter, kernel)
    assert (file.read().state, file.read().resumes) == ("attached", True)
    async with asyncio.timeout(4):
        while file.read().state != "waiting":
            await asyncio.sleep(0.05)
    # The process says that its work is done: the lease goes back at once, for the pool's reason.
    file.path.with_name(f"{file.path.name}.settled").write_text(f"{file.read().generation}\n")
    async with asyncio.timeout(2):
        while jupyter.pool.held[lease].state != "ended":
            await asyncio.sleep(0.05)
    assert jupyter.pool.held[lease].reason == "reclaim"
    assert (await jupyter.until(kernel.kernel_id, "attached"))["held"]  # nobody else has come


async def test_a_notice_that_is_withdrawn_leaves_everything_as_it_was(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    lease = await attached(jupyter, kernel)
    jupyter.pool.tell(lease, Notice("preempt", 0.2, "More important work waits."))
    file = file_of(jupyter, kernel)
    async with asyncio.timeout(4):
        while file.read().state != "waiting":
            await asyncio.sleep(0.05)
    jupyter.pool.tell(lease, None)
    view = await jupyter.until(kernel.kernel_id, "attached")
    assert (view["notice"], view["reason"]) == (None, None)
    assert file.read().state == "attached"


async def test_what_was_taken_back_comes_again_with_the_same_session(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    lease = await attached(jupyter, kernel)
    before = await jupyter.kernel(kernel.kernel_id)
    other = await taken_by_another(jupyter, lease)
    view = await jupyter.until(kernel.kernel_id, "queued")
    assert (view["returning"], view["reason"], view["held"]) == (True, "reclaim", True)
    view = await until(jupyter, kernel, "queue")
    record = file_of(jupyter, kernel).read()
    assert (record.state, record.session) == ("waiting", before["session_id"])
    assert "waits" in record.message
    await jupyter.pool.release(other.lease_id)
    view = await jupyter.until(kernel.kernel_id, "attached")
    assert (view["session_id"], view["held"], view["by"]) == (before["session_id"], True, "sidebar")


async def test_a_cell_that_starts_meanwhile_waits_with_it(jupyter: JupyterInProcess, kernel: Cells) -> None:
    other = await taken_by_another(jupyter, await attached(jupyter, kernel))
    await until(jupyter, kernel, "returning")
    running = kernel.start("%%gpu 0.5 --wait 20\nprint('the body ' + 'ran')")
    await kernel.says(running, "place 1")
    await jupyter.pool.release(other.lease_id)
    reply = await kernel.finish(running)
    assert reply.status == "ok", reply.text
    assert "the body ran" in reply.text
    assert (await jupyter.kernel(kernel.kernel_id))["state"] == "attached"  # the hold is as it was


async def test_waiting_for_it_can_be_stopped(jupyter: JupyterInProcess, kernel: Cells) -> None:
    other = await taken_by_another(jupyter, await attached(jupyter, kernel))
    await until(jupyter, kernel, "returning")
    await jupyter.json("DELETE", f"gpupool/api/kernels/{kernel.kernel_id}/queue")
    view = await jupyter.until(kernel.kernel_id, "parked")
    assert (view["held"], view["returning"]) == (False, False)
    assert file_of(jupyter, kernel).read().state == "parked"
    assert jupyter.pool.waiting == []
    await jupyter.pool.release(other.lease_id)
