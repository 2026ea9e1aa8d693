"""Reset, and what a kernel reports of its session: routes, session file, the session that follows."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from gpupool.client.session_file import SessionFile

from tests.support.jupyter import Cells, JupyterInProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")

REFUSED = {
    "asked": 3 << 30,
    "share": 1587 << 20,
    "used": 0,
    "largest_free": 1587 << 20,
    "needed": 3 << 30,
    "device": 0,
}


async def attached(jupyter: JupyterInProcess, kernel: Cells, share: str = "0.2") -> str:
    path = f"gpupool/api/kernels/{kernel.kernel_id}/attach"
    status, view = await jupyter.json("POST", path, {"share": share})
    assert (status, view["state"]) == (202, "attached")
    return str(view["session_id"])


def file_of(jupyter: JupyterInProcess, kernel: Cells) -> SessionFile:
    return SessionFile(Path(jupyter.environment_of(kernel.kernel_id)["GPUPOOL_SESSION_FILE"]))


async def test_a_reset_closes_the_session_and_keeps_the_kernel(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    await kernel.run("kept = 'here'")
    before = await attached(jupyter, kernel)
    status, view = await jupyter.json("POST", f"gpupool/api/kernels/{kernel.kernel_id}/reset")
    assert (status, view["state"], view["reason"], view["session_id"]) == (200, "none", "reset", None)
    assert view["released"] is None
    assert jupyter.pool.session_states[before] == "closed"
    # The session ends with its lease: a release would wait for what runs.
    assert [call for call, _ in jupyter.pool.calls if call in ("release", "close_session")] == [
        "close_session"
    ]
    record = file_of(jupyter, kernel).read()
    assert (record.state, record.reason, record.token) == ("closed", "reset", "")
    assert jupyter.pool.free_milli == 1000
    after = await attached(jupyter, kernel)
    assert after != before
    assert "here" in (await kernel.run("kept")).text


async def test_a_kernel_resets_its_own_session_while_a_cell_runs(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    running = kernel.start("%%gpu 0.2\nimport time\ntime.sleep(2)\nprint('went ' + 'on')")
    session_id = (await jupyter.until(kernel.kernel_id, "attached"))["session_id"]
    headers = jupyter.kernel_headers(kernel.kernel_id)
    status, view = await jupyter.json("POST", "gpupool/self/reset", headers=headers)
    assert (status, view["state"], view["reason"]) == (200, "none", "reset")
    assert jupyter.pool.session_states[session_id] == "closed"
    assert "went on" in (await kernel.finish(running)).text
    assert (await jupyter.kernel(kernel.kernel_id))["state"] == "none"


async def test_a_reset_ends_what_waits_and_a_second_one_changes_nothing(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    other = await jupyter.start_kernel()
    await attached(jupyter, other, "0.9")
    waiting = kernel.start("%%gpu 0.5 --wait 60\n1")
    await jupyter.until(kernel.kernel_id, "queued")
    for _ in range(2):
        status, view = await jupyter.json("POST", f"gpupool/api/kernels/{kernel.kernel_id}/reset")
        assert (status, view["state"]) == (200, "none")
    assert (await kernel.finish(waiting)).status == "error"
    assert jupyter.pool.waiting == []


async def test_only_who_may_can_reset(jupyter: JupyterInProcess, kernel: Cells) -> None:
    session_id = await attached(jupyter, kernel)
    path = f"gpupool/api/kernels/{kernel.kernel_id}/reset"
    assert (await jupyter.fetch("POST", path, headers={})).code == 403
    other = await jupyter.start_kernel()
    stolen = jupyter.kernel_headers(other.kernel_id)["Authorization"].rpartition(":")[2]
    for route in ("reset", "report"):
        for shown in ("", "00", stolen):
            headers = {"Authorization": f"gpupool-kernel {kernel.kernel_id}:{shown}"}
            assert (await jupyter.fetch("POST", f"gpupool/self/{route}", headers=headers)).code == 403
    assert jupyter.pool.session_states[session_id] == "attached"
    status, answer = await jupyter.json("POST", "gpupool/api/kernels/none-such/reset")
    assert (status, answer["reason"]) == (404, "unknown-kernel")


async def test_without_the_pool_a_reset_says_that_it_comes_later(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    session_id = await attached(jupyter, kernel)
    jupyter.pool.down = True
    status, answer = await jupyter.json("POST", f"gpupool/api/kernels/{kernel.kernel_id}/reset")
    assert (status, answer["reason"]) == (503, "pool-down")
    assert file_of(jupyter, kernel).read().state == "closed"
    jupyter.pool.down = False
    async with asyncio.timeout(10):
        while jupyter.pool.session_states[session_id] != "closed":
            await asyncio.sleep(0.05)


async def test_a_session_that_the_client_ended_is_a_reset_too(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    await attached(jupyter, kernel)
    lease_id = next(iter(jupyter.pool.held))
    jupyter.pool.end(lease_id, "reset", lost=True)
    view = await jupyter.until(kernel.kernel_id, "none")
    assert (view["reason"], view["session_id"], view["released"]) == ("reset", None, None)


async def test_a_failed_session_says_what_broke_it_until_it_is_reset(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    await attached(jupyter, kernel)
    jupyter.pool.usage_now = replace(jupyter.pool.usage_now, failure=700, failed_kernel="bad")
    headers = jupyter.kernel_headers(kernel.kernel_id)
    status, _ = await jupyter.json("POST", "gpupool/self/report", {"failed_cell": "[3]"}, headers=headers)
    assert status == 200
    async with asyncio.timeout(10):
        while not ((usage := (await jupyter.kernel(kernel.kernel_id))["usage"]) and usage["failure"]):
            await asyncio.sleep(0.05)
    assert (usage["failure"], usage["failure_name"]) == (700, "illegal address")
    assert (usage["failed_kernel"], usage["failed_cell"]) == ("bad", "[3]")
    jupyter.pool.usage_now = replace(jupyter.pool.usage_now, failure=0, failed_kernel="")
    await jupyter.json("POST", f"gpupool/api/kernels/{kernel.kernel_id}/reset")
    assert (await jupyter.kernel(kernel.kernel_id))["usage"] is None


async def test_out_of_memory_is_told_until_the_share_changes(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    await attached(jupyter, kernel)
    headers = jupyter.kernel_headers(kernel.kernel_id)
    report = "gpupool/self/report"
    status, view = await jupyter.json("POST", report, {"out_of_memory": REFUSED}, headers=headers)
    told = view["usage"]["out_of_memory"]
    larger = told.pop("larger_share")
    assert (status, told) == (200, REFUSED)
    assert larger["mib"] >= 3 * 1024
    # What a report leaves out stays.
    _, view = await jupyter.json("POST", report, {"failed_cell": None}, headers=headers)
    assert view["usage"]["out_of_memory"] == {**REFUSED, "larger_share": larger}
    path = f"gpupool/api/kernels/{kernel.kernel_id}"
    _, view = await jupyter.json("POST", f"{path}/resize", {"share": "0.5"})
    assert view["state"] == "attached"
    assert (view["usage"] or {"out_of_memory": None})["out_of_memory"] is None
    await jupyter.json("POST", report, {"out_of_memory": REFUSED}, headers=headers)
    _, view = await jupyter.json("POST", report, {"out_of_memory": None}, headers=headers)
    assert (view["usage"] or {"out_of_memory": None})["out_of_memory"] is None


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"out_of_memory": "much"}, "much"),
        ({"out_of_memory": {**REFUSED, "asked": -1}}, "-1"),
        ({"out_of_memory": {**REFUSED, "used": 1.5}}, "1.5"),
        ({"out_of_memory": {**REFUSED, "share": True}}, "True"),
        ({"out_of_memory": {"asked": 1}}, "share"),
        ({"failed_cell": 3}, "failed_cell"),
        ({"failed_cell": "x" * 65}, "64"),
    ],
)
async def test_a_bad_report_names_the_value(
    jupyter: JupyterInProcess, kernel: Cells, body: dict[str, object], named: str
) -> None:
    headers = jupyter.kernel_headers(kernel.kernel_id)
    status, answer = await jupyter.json("POST", "gpupool/self/report", body, headers=headers)
    assert (status, answer["reason"]) == (400, "bad-request")
    assert named in answer["message"]


async def test_a_share_is_not_called_free_while_something_runs_on_it(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    await attached(jupyter, kernel)
    jupyter.pool.usage_now = replace(
        jupyter.pool.usage_now, work="running", kernel="forever", work_seconds=12.0, memory_used=(2 << 20,)
    )
    async with asyncio.timeout(10):
        while not (usage := (await jupyter.kernel(kernel.kernel_id))["usage"]) or not usage["work"]:
            await asyncio.sleep(0.05)
    assert (usage["work"], usage["kernel"], usage["work_seconds"]) == ("running", "forever", 12.0)
    jupyter.pool.drains = True
    _, view = await jupyter.json("POST", f"gpupool/api/kernels/{kernel.kernel_id}/detach")
    assert (view["state"], view["released"]["draining"]) == ("parked", True)
    for said in ("forever", "12 s", "4 s"):
        assert said in view["released"]["message"]
    assert "free again" not in view["released"]["message"]
    jupyter.pool.usage_now = replace(jupyter.pool.usage_now, work="stopped")
    jupyter.pool.drained()
    async with asyncio.timeout(10):
        while (view := await jupyter.kernel(kernel.kernel_id))["released"]["draining"]:
            await asyncio.sleep(0.05)
    assert "free again" in view["released"]["message"]
    async with asyncio.timeout(10):
        while (view := await jupyter.kernel(kernel.kernel_id))["usage"]["work"] != "stopped":
            await asyncio.sleep(0.05)
