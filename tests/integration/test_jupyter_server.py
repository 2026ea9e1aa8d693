"""The server extension with a real Jupyter server and real kernels, over a pool in memory."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from gpupool.client.errors import PoolRefusedError
from gpupool.client.session_file import SessionFile
from gpupool.client.types import Queue
from gpupool.sentences import Sentence, obstacles
from gpupool.shares import Share
from tornado.iostream import StreamClosedError

from jupyter_gpupool.server.handlers.kernel_side import AttachHandler
from tests.support.jupyter import Cells, JupyterInProcess, jupyter_in_process

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[JupyterInProcess]:
    async with jupyter_in_process(tmp_path_factory.mktemp("jupyter")) as running:
        yield running


# --- what a kernel is started with ------------------------------------------------------------


async def test_a_stock_kernel_gets_its_environment_and_the_magics(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    environment = jupyter.environment_of(kernel.kernel_id)
    assert environment["GPUPOOL_KERNEL_ID"] == kernel.kernel_id
    assert environment["GPUPOOL_SERVER_URL"] == jupyter.url
    file = Path(environment["GPUPOOL_SESSION_FILE"])
    capability = Path(environment["GPUPOOL_CAPABILITY_FILE"])
    assert len(capability.read_text()) == 64
    assert stat.S_IMODE(file.stat().st_mode) == stat.S_IMODE(capability.stat().st_mode) == 0o600
    assert SessionFile(file).read().state == "none"
    reply = await kernel.run("%gpu status")
    assert (reply.status, "state: no GPU" in reply.text) == ("ok", True)


async def test_the_capability_is_on_no_command_line_and_in_no_environment(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    pid = jupyter.app.kernel_manager.get_kernel(kernel.kernel_id).provisioner.pid
    capability = jupyter.kernel_headers(kernel.kernel_id)["Authorization"].rpartition(":")[2]
    for place in ("cmdline", "environ"):
        assert capability.encode() not in Path(f"/proc/{pid}/{place}").read_bytes()


# --- the front end's API --------------------------------------------------------------------------


async def test_attach_keep_resize_detach(jupyter: JupyterInProcess, kernel: Cells) -> None:
    path = f"gpupool/api/kernels/{kernel.kernel_id}"
    status, view = await jupyter.json("POST", f"{path}/attach", {"share": "0.2"})
    assert status == 202
    assert (view["state"], view["held"], view["by"]) == ("attached", True, "sidebar")
    assert view["share"] == {"milli": 200, "mib": 1587, "count": 1}
    file = SessionFile(Path(jupyter.environment_of(kernel.kernel_id)["GPUPOOL_SESSION_FILE"]))
    record = file.read()
    assert (record.state, record.address, record.token) == ("attached", "127.0.0.1:1", "ab" * 32)
    status, view = await jupyter.json("POST", f"{path}/keep", {"minutes": 10})
    assert (status, view["state"]) == (200, "attached")
    status, view = await jupyter.json("POST", f"{path}/resize", {"share": "0.3"})
    assert (status, view["share"]["milli"]) == (200, 300)
    assert file.read().epoch > record.epoch
    status, view = await jupyter.json("POST", f"{path}/detach", {})
    assert (status, view["state"], view["reason"], view["held"]) == (200, "parked", "release", False)
    assert file.read().state == "parked"
    assert file.read().token == ""
    assert jupyter.pool.free_milli == 1000


BAD_BODIES: list[tuple[dict[str, object], str]] = [
    ({"share": "banana"}, "banana"),
    ({"share": "1.7"}, "1.7"),
    ({"share": 1.7}, "1.7"),
    ({"share": True}, "True"),
    ({"share": "0"}, "0"),
    ({"share": []}, "[]"),
    ({"share": "0.2", "count": 0}, "0"),
    ({"share": "0.2", "count": 1.5}, "1.5"),
    ({"share": "0.2", "wait": "soon"}, "soon"),
    ({"share": "0.2", "wait": 1e99}, "1e+99"),
]
NO_OBJECTS = [b"{", b"[]", b'"x"', b"\xff\xfe", b"[" * 10_000, b"1" * 20_000]


async def test_bad_requests_name_the_value(jupyter: JupyterInProcess, kernel: Cells) -> None:
    path = f"gpupool/api/kernels/{kernel.kernel_id}/attach"
    for body, named in BAD_BODIES:
        status, answer = await jupyter.json("POST", path, body)
        assert status == 400, body
        assert named in answer["message"], body
    for raw in NO_OBJECTS:
        response = await jupyter.fetch("POST", path, raw=raw)
        assert response.code == 400, raw[:20]
        assert json.loads(response.body)["reason"] == "bad-request"
    assert jupyter.pool.held == {}


async def test_refusals_have_a_status_a_reason_and_a_sentence(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    path = f"gpupool/api/kernels/{kernel.kernel_id}"
    status, answer = await jupyter.json("POST", "gpupool/api/kernels/none-such/attach", {"share": "0.2"})
    assert (status, answer["reason"]) == (404, "unknown-kernel")
    for action in ("detach", "keep", "resize"):
        status, answer = await jupyter.json("POST", f"{path}/{action}", {"share": "0.2"})
        assert (status, answer["reason"]) == (409, "not-attached")
    jupyter.pool.quota_milli = 600
    status, answer = await jupyter.json("POST", f"{path}/attach", {"share": "0.7"})
    assert (status, answer["reason"]) == (409, "quota")
    assert "600" in answer["message"]
    jupyter.pool.down = True
    status, answer = await jupyter.json("POST", f"{path}/attach", {"share": "0.2"})
    assert (status, answer["reason"]) == (503, "pool-down")
    status, answer = await jupyter.json("GET", "gpupool/api/pool")
    assert (status, answer["ok"], answer["devices"]) == (200, False, [])
    assert "does not answer" in answer["error"]


async def test_where_memory_lies_is_shown_and_what_keeps_it_there_beforehand(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    async def memory() -> dict[str, Any] | None:
        view: dict[str, Any] = await jupyter.kernel(kernel.kernel_id)
        found: dict[str, Any] | None = view["memory"]
        return found

    async def until(place: str) -> dict[str, Any]:
        async with asyncio.timeout(10):
            while (found := await memory()) is None or found["place"] != place:
                await asyncio.sleep(0.05)
        return found

    jupyter.pool.memory_now = {"memory_place": "device", "park_obstacle": "managed", "enforcement": "soft"}
    path = f"gpupool/api/kernels/{kernel.kernel_id}"
    assert await memory() is None
    await jupyter.json("POST", f"{path}/attach", {"share": "0.2"})
    found = await until("device")
    assert [Sentence.from_json(said) for said in found["obstacles"]] == [obstacles.parking("managed")]
    assert found["enforcement"] == "soft"
    assert str(obstacles.parking("managed")) in (await kernel.run("%gpu status")).text

    jupyter.pool.memory_now = {"memory_place": "host"}
    await jupyter.json("POST", f"{path}/detach", {})
    assert (await until("host"))["obstacles"] == []
    assert "memory: in host memory" in (await kernel.run("%gpu status")).text


async def test_a_request_that_the_pool_has_not_answered_yet_counts_as_queued(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    """The page waits for what is `queued`: `none` would mean that nothing is asked for any more."""
    path = f"gpupool/api/kernels/{kernel.kernel_id}"
    jupyter.pool.silent = True
    status, view = await jupyter.json("POST", f"{path}/attach", {"share": "0.2"})
    assert (status, view["state"], view["queue"]) == (202, "queued", None)
    status, view = await jupyter.json("DELETE", f"{path}/queue")
    assert (status, view["state"]) == (200, "none")

    await jupyter.json("POST", f"{path}/attach", {"share": "0.2"})
    jupyter.pool.speak()
    while (view := await jupyter.kernel(kernel.kernel_id))["state"] == "queued":
        await asyncio.sleep(0.01)
    assert view["state"] == "attached"


async def test_the_queue_is_shown_and_can_be_left(jupyter: JupyterInProcess, kernel: Cells) -> None:
    other = await jupyter.start_kernel()
    path = f"gpupool/api/kernels/{kernel.kernel_id}"
    await jupyter.json("POST", f"gpupool/api/kernels/{other.kernel_id}/attach", {"share": "0.9"})
    status, view = await jupyter.json("POST", f"{path}/attach", {"share": "0.2", "wait": 60})
    assert (status, view["state"], view["queue"]["place"]) == (202, "queued", 1)
    assert "free" in view["queue"]["reason"]
    _, pool = await jupyter.json("GET", "gpupool/api/pool")
    assert [(entry["kernel_id"], entry["mine"]) for entry in pool["queue"]] == [(kernel.kernel_id, True)]
    status, answer = await jupyter.json("POST", f"{path}/attach", {"share": "0.2"})
    assert (status, answer["reason"]) == (409, "pending")
    status, view = await jupyter.json("DELETE", f"{path}/queue")
    assert (status, view["state"]) == (200, "none")
    await asyncio.sleep(0.05)
    assert jupyter.pool.waiting == []


async def test_a_grant_that_crosses_its_withdrawal_leaves_no_session(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    other = await jupyter.start_kernel()
    path = f"gpupool/api/kernels/{kernel.kernel_id}"
    await jupyter.json("POST", f"gpupool/api/kernels/{other.kernel_id}/attach", {"share": "0.6"})
    await jupyter.json("POST", f"{path}/attach", {"share": "0.5", "wait": 60})
    [waiting] = jupyter.pool.waiting
    crossed = await jupyter.pool.request(replace(waiting, share=Share(milli=100)))
    await jupyter.json("DELETE", f"{path}/queue")
    async with asyncio.timeout(5):
        while jupyter.pool.session_states[crossed.session_id] != "closed":
            await asyncio.sleep(0.02)
    assert jupyter.pool.held[crossed.lease_id].state == "ended"


async def test_an_interrupted_hold_leaves_what_the_sidebar_had_asked_for_before(
    jupyter: JupyterInProcess, kernel: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await jupyter.start_kernel()
    path = f"gpupool/api/kernels/{kernel.kernel_id}"
    await jupyter.json("POST", f"gpupool/api/kernels/{other.kernel_id}/attach", {"share": "0.9"})
    status, view = await jupyter.json("POST", f"{path}/attach", {"share": "0.2", "wait": 60})
    assert (status, view["state"]) == (202, "queued")
    begun = asyncio.Event()

    async def interrupted(_handler: object, attach: asyncio.Task[Any], *_: object) -> None:
        begun.set()
        await attach
        raise StreamClosedError

    monkeypatch.setattr(AttachHandler, "_tell", interrupted)
    body = {"share": "0.2", "scope": "a", "hold": True}
    headers = jupyter.kernel_headers(kernel.kernel_id)
    line = asyncio.create_task(jupyter.fetch("POST", "gpupool/self/attach", body, headers=headers))
    await asyncio.wait([line, asyncio.ensure_future(begun.wait())], return_when=asyncio.FIRST_COMPLETED)
    assert begun.is_set(), line.result().body
    await jupyter.json("POST", f"gpupool/api/kernels/{other.kernel_id}/detach", {})
    await line
    jupyter.wrong.clear()  # of an answer that really goes nowhere, nobody sees what it is
    view = await jupyter.kernel(kernel.kernel_id)
    assert (view["state"], view["held"], view["share"]["milli"]) == ("attached", True, 200)


async def test_the_pool_view_says_whose_share_is_whose(jupyter: JupyterInProcess, kernel: Cells) -> None:
    await jupyter.json("POST", f"gpupool/api/kernels/{kernel.kernel_id}/attach", {"share": "0.2"})
    _, pool = await jupyter.json("GET", "gpupool/api/pool")
    [device] = pool["devices"]
    [share] = device["shares"]
    assert (pool["ok"], pool["user"], device["free_milli"]) == (True, "ann", 800)
    assert (share["mine"], share["kernel_id"], share["milli"]) == (True, kernel.kernel_id, 200)
    assert pool["totals"] == {"milli": 1000, "free_milli": 800}


async def test_a_queue_that_cannot_be_read_is_no_pool_that_is_down(
    jupyter: JupyterInProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await jupyter.json("GET", "gpupool/api/pool"))[1]["queue_left_out"] == 0

    async def too_long() -> Queue:
        raise PoolRefusedError("full", "Received message larger than max")

    monkeypatch.setattr(jupyter.pool, "queue", too_long)
    _, pool = await jupyter.json("GET", "gpupool/api/pool")
    assert (pool["ok"], len(pool["devices"])) == (True, 1)
    assert (pool["queue"], pool["queue_left_out"]) == ([], None)


async def test_polls_are_no_activity_of_the_user(jupyter: JupyterInProcess, kernel: Cells) -> None:
    before = jupyter.app.web_app.settings.get("api_last_activity")
    for path in ("api/pool", "api/kernels", f"api/kernels/{kernel.kernel_id}/usage?since=0"):
        assert (await jupyter.fetch("GET", f"gpupool/{path}")).code == 200
    assert jupyter.app.web_app.settings.get("api_last_activity") == before


async def test_usage_since_a_time_that_is_none(jupyter: JupyterInProcess, kernel: Cells) -> None:
    for since in ("x", "nan", "inf"):
        path = f"gpupool/api/kernels/{kernel.kernel_id}/usage?since={since}"
        status, answer = await jupyter.json("GET", path)
        assert status == 400
        assert since in answer["message"]


async def test_kernels_bring_their_samples_when_asked_so_that_charts_survive_a_reload(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    async def samples(since: float | str) -> list[dict[str, float]]:
        status, answer = await jupyter.json("GET", f"gpupool/api/kernels?samples_since={since}")
        assert status == 200
        found: list[dict[str, float]] = answer["kernels"][0]["samples"]
        return found

    assert "samples" not in await jupyter.kernel(kernel.kernel_id)
    assert await samples(0) == []
    await attach(jupyter, kernel)
    async with asyncio.timeout(10):
        while len(found := await samples(-60)) < 2:
            await asyncio.sleep(0.1)
    assert set(found[0]) == {"t", "utilization", "memory_bytes", "to_device_bps", "from_device_bps"}
    assert found[0]["t"] < found[1]["t"]
    assert [sample["t"] for sample in await samples(found[0]["t"])][: len(found) - 1] == [
        sample["t"] for sample in found[1:]
    ]
    status, answer = await jupyter.json("GET", "gpupool/api/kernels?samples_since=soon")
    assert status == 400
    assert "soon" in answer["message"]


async def attach(jupyter: JupyterInProcess, kernel: Cells) -> str:
    """Takes a share from the sidebar; the session's id at the pool."""
    status, view = await jupyter.json(
        "POST", f"gpupool/api/kernels/{kernel.kernel_id}/attach", {"share": "0.2"}
    )
    assert (status, view["state"]) == (202, "attached")
    return str(view["session_id"])


async def test_a_gpu_that_works_in_short_bursts_counts_as_activity_and_one_that_rests_does_not(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    """A Hub's culler goes by this; work is rarely under way at the moment of a look."""
    settings = jupyter.app.web_app.settings
    jupyter.pool.usage_now = replace(jupyter.pool.usage_now, idle_seconds=0.8, in_flight=False)
    await attach(jupyter, kernel)
    (session,) = await jupyter.extension.sessions()
    session.attached_at -= 1000.0  # the attach itself is long ago
    settings.pop("jupyter_gpupool_last_activity", None)
    async with asyncio.timeout(5):
        while "jupyter_gpupool_last_activity" not in settings:
            await asyncio.sleep(0.1)
    jupyter.pool.usage_now = replace(jupyter.pool.usage_now, idle_seconds=60.0)
    await asyncio.sleep(2.5)  # a look may be under way, and the first after the change counts no more
    before = settings["jupyter_gpupool_last_activity"]
    await asyncio.sleep(2.5)
    assert settings["jupyter_gpupool_last_activity"] == before


# --- how kernels end --------------------------------------------------------------------------------


async def test_a_restart_closes_the_session_and_changes_the_capability(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    session_id = await attach(jupyter, kernel)
    old = jupyter.kernel_headers(kernel.kernel_id)
    await jupyter.app.kernel_manager.restart_kernel(kernel.kernel_id)
    view = await jupyter.kernel(kernel.kernel_id)
    # A person who restarts a kernel knows that its memory is gone.
    assert (view["state"], view["session_id"], view["released"]) == ("none", None, None)
    assert jupyter.pool.free_milli == 1000
    assert jupyter.pool.session_states[session_id] == "closed"
    assert (await jupyter.fetch("GET", "gpupool/self/status", headers=old)).code == 403
    new = jupyter.kernel_headers(kernel.kernel_id)
    assert (await jupyter.fetch("GET", "gpupool/self/status", headers=new)).code == 200


async def test_a_shutdown_closes_the_session_and_removes_its_file(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    session_id = await attach(jupyter, kernel)
    file = Path(jupyter.environment_of(kernel.kernel_id)["GPUPOOL_SESSION_FILE"])
    await jupyter.app.kernel_manager.shutdown_kernel(kernel.kernel_id)
    for _ in range(100):
        if not file.exists():
            break
        await asyncio.sleep(0.05)
    assert not file.exists()
    assert jupyter.pool.session_states[session_id] == "closed"


async def test_a_killed_kernel_comes_back_under_its_id_without_the_old_lease(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    session_id = await attach(jupyter, kernel)
    manager = jupyter.app.kernel_manager.get_kernel(kernel.kernel_id)
    pid, old = manager.provisioner.pid, jupyter.kernel_headers(kernel.kernel_id)
    kernel.start("import time; time.sleep(600)")
    async with asyncio.timeout(5):
        while not (await jupyter.kernel(kernel.kernel_id))["busy"]:
            await asyncio.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    # The share is free before the server has looked whether the kernel lives, which it does each 3 s.
    async with asyncio.timeout(2.5):
        while jupyter.pool.free_milli < 1000 or jupyter.pool.session_states[session_id] != "closed":
            await asyncio.sleep(0.02)
    async with asyncio.timeout(60):
        while manager.provisioner.pid in (pid, None):
            await asyncio.sleep(0.1)
    view = await jupyter.kernel(kernel.kernel_id)
    # Nor does the cell run for ever that died with its kernel.
    assert (view["state"], view["session_id"], view["busy"]) == ("none", None, False)
    # Its row says where the share is, until the next attach.
    released = view["released"]
    assert (released["reason"], released["undo_seconds"]) == ("died", 0)
    assert released["freed"]["milli"] == 200
    assert released["memory"] == {"bytes": 0, "place": "none"}
    assert released["message"].startswith("The kernel died: ")
    assert (await jupyter.fetch("GET", "gpupool/self/status", headers=old)).code == 403
    new = jupyter.kernel_headers(kernel.kernel_id)
    assert (await jupyter.fetch("GET", "gpupool/self/status", headers=new)).code == 200
    # The same notebook goes on: a new session, in the kernel under the old id.
    kernel.client.stop_channels()  # two clients of one manager have one identity: the kernel answers the first
    again = await jupyter.client_of(kernel.kernel_id)
    reply = await again.run("%gpu status")
    assert (reply.status, "state: no GPU" in reply.text) == ("ok", True)
    running = again.start("import time; time.sleep(0.5)")
    async with asyncio.timeout(5):  # its cells are seen
        while not (await jupyter.kernel(kernel.kernel_id))["busy"]:
            await asyncio.sleep(0.02)
    await again.finish(running)


async def test_the_end_of_a_launch_does_not_take_the_file_of_the_next(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    await attach(jupyter, kernel)
    old = Path(jupyter.environment_of(kernel.kernel_id)["GPUPOOL_SESSION_FILE"])
    jupyter.pool.down = True  # closing the old session goes on in the background
    await jupyter.app.kernel_manager.restart_kernel(kernel.kernel_id)
    new = Path(jupyter.environment_of(kernel.kernel_id)["GPUPOOL_SESSION_FILE"])
    jupyter.pool.down = False
    async with asyncio.timeout(20):
        while old.exists() or jupyter.pool.free_milli < 1000:
            await asyncio.sleep(0.05)
    assert SessionFile(new).read().state == "none"


# --- events -------------------------------------------------------------------------------------------


async def test_changes_are_told_as_events_without_secrets(jupyter: JupyterInProcess, kernel: Cells) -> None:
    seen: list[dict[str, object]] = []

    async def listen(logger: object, schema_id: str, data: dict[str, object]) -> None:
        seen.append(data)

    jupyter.app.event_logger.add_listener(
        schema_id="https://events.jupyter-gpupool.dev/session/v1", listener=listen
    )
    path = f"gpupool/api/kernels/{kernel.kernel_id}"
    await jupyter.json("POST", f"{path}/attach", {"share": "0.2"})
    await jupyter.json("POST", f"{path}/detach", {})
    await jupyter.app.event_logger.gather_listeners()
    # Where memory lies is told, too; on a slow machine that may come between them.
    told = dict.fromkeys((event["state"], event["reason"], event["share_milli"]) for event in seen)
    assert list(told) == [("attached", None, 200), ("parked", "release", None)]
    assert "ab" * 32 not in json.dumps(seen)
