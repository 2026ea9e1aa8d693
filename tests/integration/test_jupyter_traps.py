"""Situations in which a simpler way goes wrong: two tabs on one kernel, Run all, a Hub that culls.

Those of the idle ladder are in `test_jupyter_idle.py`, that of a kernel that dies in `test_jupyter_server.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from tests.support.jupyter import Cells, JupyterInProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Tab:
    """A page on a kernel: it acts by requests, and hears of what others do by Jupyter's events."""

    def __init__(self, jupyter: JupyterInProcess, kernel_id: str, events: WebSocketClientConnection) -> None:
        self.jupyter = jupyter
        self.kernel_id = kernel_id
        self._events = events

    async def post(self, verb: str, body: object = None) -> tuple[int, Any]:
        return await self.jupyter.json("POST", f"gpupool/api/kernels/{self.kernel_id}/{verb}", body)

    async def hears(self, state: str) -> dict[str, Any]:
        """Waits for the event that the kernel went to this state; the kernel as it is then."""
        async with asyncio.timeout(5):
            while True:
                event = json.loads(str(await self._events.read_message()))
                if event.get("kernel_id") == self.kernel_id and event.get("state") == state:
                    return await self.jupyter.kernel(self.kernel_id)


@asynccontextmanager
async def tab(jupyter: JupyterInProcess, kernel_id: str) -> AsyncIterator[Tab]:
    address = jupyter.url.replace("http:", "ws:") + "api/events/subscribe"
    headers = {"Authorization": f"token {jupyter.token}"}
    events = await websocket_connect(HTTPRequest(address, headers=headers))
    try:
        yield Tab(jupyter, kernel_id, events)
    finally:
        events.close()


async def test_two_tabs_on_one_kernel_share_one_lease_and_see_the_same(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    async with tab(jupyter, kernel.kernel_id) as one, tab(jupyter, kernel.kernel_id) as two:
        answers = await asyncio.gather(
            one.post("attach", {"share": "0.2"}), two.post("attach", {"share": "0.2"})
        )
        assert {status for status, _ in answers} <= {202, 409}  # 409: the other one's request is under way
        seen = [await page.hears("attached") for page in (one, two)]
        assert seen[0]["share"] == seen[1]["share"] == {"milli": 200, "mib": 1587, "count": 1}
        status, again = await two.post("attach", {"share": "0.2"})
        assert (status, again["session_id"]) == (202, seen[0]["session_id"])
        assert jupyter.pool.free_milli == 800

        await two.post("detach")
        for page in (one, two):
            view = await page.hears("parked")
            assert (view["reason"], view["released"]["undo_seconds"] > 0) == ("release", True)
        assert jupyter.pool.free_milli == 1000
        status, refused = await one.post("detach")
        assert (status, refused["reason"]) == (409, "not-attached")

        answers = await asyncio.gather(one.post("undo"), two.post("undo"))
        assert 202 in {status for status, _ in answers}
        assert [(await page.hears("attached"))["released"] for page in (one, two)] == [None, None]
        assert jupyter.pool.free_milli == 800


FAILURES = {
    "an exception": "%%gpu 0.2\n1 / 0",
    "a share that there is not": "%%gpu 7\npass",
    "a full pool": "%%gpu 1 --wait 0\npass",
    "a syntax error": "%%gpu 0.2\nif",
    "an option that there is not": "%%gpu 0.2 --nonsense\npass",
}


async def test_a_cell_that_fails_under_gpu_stops_run_all(jupyter: JupyterInProcess, kernel: Cells) -> None:
    other = await jupyter.start_kernel()
    await jupyter.json("POST", f"gpupool/api/kernels/{other.kernel_id}/attach", {"share": "0.5"})
    await kernel.run("ran = []")
    for why, failing in FAILURES.items():
        # Run all sends every cell at once, and leaves it to the kernel to stop.
        cells = [
            kernel.start(code)
            for code in (
                f"%%gpu 0.2\nran.append({why!r})",
                failing,
                f"%%gpu 0.2\nran.append('after ' + {why!r})",
            )
        ]
        replies = [(await kernel.finish(cell)).status for cell in cells]
        assert replies == ["ok", "error", "aborted"], why
    assert (await kernel.run("print(ran)")).text.strip() == str(list(FAILURES))
    assert jupyter.pool.free_milli == 500


async def test_a_hub_culls_a_server_that_is_only_looked_at_but_not_one_whose_gpu_works(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    async def last_activity() -> str:
        _, status = await jupyter.json("GET", "api/status")
        return str(status["last_activity"])

    async def look() -> None:
        """What pages and widgets repeat."""
        for path in ("api/pool", "api/kernels", f"api/kernels/{kernel.kernel_id}/usage?since=0"):
            assert (await jupyter.fetch("GET", f"gpupool/{path}")).code == 200
        for path in ("self/status", "self/pool"):
            headers = jupyter.kernel_headers(kernel.kernel_id)
            assert (await jupyter.fetch("GET", f"gpupool/{path}", headers=headers)).code == 200

    async def moves() -> bool:
        before = await last_activity()
        for _ in range(6):
            await look()
            await asyncio.sleep(0.25)
        return await last_activity() != before

    await jupyter.json("POST", f"gpupool/api/kernels/{kernel.kernel_id}/attach", {"share": "0.2"})
    async with asyncio.timeout(10):  # what the start of the kernel left behind
        while await moves():
            pass
    # No cell runs and nothing is printed, but what was submitted is not finished.
    jupyter.pool.usage_now = replace(jupyter.pool.usage_now, in_flight=True)
    known = jupyter.app.kernel_manager.get_kernel(kernel.kernel_id)
    noted = known.last_activity
    async with asyncio.timeout(10):
        while not await moves():
            pass
    assert known.last_activity > noted  # the server's own culler of kernels looks at this
    jupyter.pool.usage_now = replace(jupyter.pool.usage_now, in_flight=False)
    async with asyncio.timeout(10):
        while await moves():
            pass
