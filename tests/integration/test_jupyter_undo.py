"""After an idle release or a Detach: what is said, Undo, and how long each kernel may be idle."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from gpupool.device_names import device_name

from jupyter_gpupool.server.session import released
from jupyter_gpupool.server.session.words import KERNEL_WORDS
from tests.support.jupyter import Cells, JupyterInProcess, jupyter_in_process

pytestmark = pytest.mark.asyncio(loop_scope="module")

GIB = 1024**3


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[JupyterInProcess]:
    folder = tmp_path_factory.mktemp("jupyter")
    settings = {"idle_seconds": 60.0, "warn_seconds": 2.0, "idle_seconds_most": 3_600.0}
    async with jupyter_in_process(folder, **settings) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def jupyter(server: JupyterInProcess) -> AsyncIterator[JupyterInProcess]:
    yield server
    await server.clear()
    server.extension.never_release_allowed = False


@pytest_asyncio.fixture(loop_scope="module")
async def kernel(jupyter: JupyterInProcess) -> Cells:
    return await jupyter.start_kernel()


def path(kernel: Cells, verb: str) -> str:
    return f"gpupool/api/kernels/{kernel.kernel_id}/{verb}"


async def test_a_choice_for_one_kernel_releases_it_and_undo_brings_it_back(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    status, view = await jupyter.json("POST", path(kernel, "idle"), {"minutes": 4 / 60})
    assert (status, view["idle"], view["released"]) == (200, None, None)  # nothing is held yet
    jupyter.pool.usage_now = replace(jupyter.pool.usage_now, memory_used=(GIB,))
    jupyter.pool.memory_now = {"memory_place": "host"}
    asked = {"share": "0.2", "project": "research/vision", "priority": 3, "for": 7200}
    _, held = await jupyter.json("POST", path(kernel, "attach"), asked)
    assert (held["idle"]["release_at"], held["idle"]["warn_at"]) == (4, 2)
    assert (held["idle"]["choice_minutes"], held["idle"]["default_minutes"]) == (4 / 60, 1)
    warned = await jupyter.until(kernel.kernel_id, "warned")
    assert warned["idle"]["kernel_seconds"] >= 2
    assert warned["idle"]["gpu_seconds"] >= 2
    gone = (await jupyter.until(kernel.kernel_id, "parked"))["released"]
    async with asyncio.timeout(5):  # where memory lies is asked every two seconds
        while gone["memory"]["place"] != "host" or gone["draining"]:
            await asyncio.sleep(0.1)
            gone = (await jupyter.kernel(kernel.kernel_id))["released"]
    assert gone["reason"] == "idle"
    said = re.fullmatch(
        r"Released after (\d+) s without use: 0\.2 of (GPU \d on \S+) is free again; "
        r"1\.0 GiB of arrays are kept in host memory\.",
        gone["message"],
    )
    assert said is not None, gone["message"]
    assert (int(said[1]) >= 4, said[2]) == (True, device_name(held["device"]))
    assert gone["freed"] == {"milli": 200, "mib": 1587, "count": 1, "device": held["device"]}
    assert gone["memory"] == {"bytes": GIB, "place": "host"}
    assert 110 < gone["undo_seconds"] <= 120
    assert 0 <= gone["age_seconds"] <= 120 - gone["undo_seconds"] + 1
    assert jupyter.pool.free_milli == 1000

    status, back = await jupyter.json("POST", path(kernel, "undo"))
    assert (status, back["state"], back["released"]) == (202, "attached", None)
    assert (back["session_id"], back["held"], back["by"]) == (held["session_id"], True, "sidebar")
    first, second = jupyter.pool.requests
    # The same but for the session, which is there already.
    assert second == replace(first, session_id=held["session_id"], idempotency_key=second.idempotency_key)
    assert first.idempotency_key != second.idempotency_key
    status, refused = await jupyter.json("POST", path(kernel, "undo"))
    assert (status, refused["reason"]) == (409, "nothing-to-undo")


async def test_a_detach_can_be_undone_the_end_of_a_cell_says_nothing(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    await jupyter.json("POST", path(kernel, "attach"), {"share": "0.3", "count": 2})
    _, view = await jupyter.json("POST", path(kernel, "detach"))
    assert view["released"]["message"].startswith("Detached: 2 × 0.3 of ")
    status, view = await jupyter.json("POST", path(kernel, "undo"))
    assert (status, view["share"]["milli"], view["share"]["count"]) == (202, 300, 2)


async def test_undo_waits_in_the_queue_when_others_were_faster(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    other = await jupyter.start_kernel()
    await jupyter.json("POST", path(kernel, "attach"), {"share": "0.5"})
    await jupyter.json("POST", path(kernel, "detach"))
    await jupyter.json("POST", path(other, "attach"), {"share": "0.9"})
    status, view = await jupyter.json("POST", path(kernel, "undo"))
    assert (status, view["state"], view["released"]) == (202, "queued", None)
    status, refused = await jupyter.json("POST", path(kernel, "undo"))
    assert (status, refused["reason"]) == (409, "pending")
    _, view = await jupyter.json("DELETE", path(kernel, "queue"))
    assert view["released"]["undo_seconds"] > 0
    await jupyter.json("POST", path(other, "detach"))
    status, view = await jupyter.json("POST", path(kernel, "undo"))
    assert (status, view["state"]) == (202, "attached")


async def test_undo_is_not_offered_for_ever_nor_without_the_memory(
    jupyter: JupyterInProcess, kernel: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, refused = await jupyter.json("POST", path(kernel, "undo"))
    assert (status, refused["reason"]) == (409, "nothing-to-undo")
    _, held = await jupyter.json("POST", path(kernel, "attach"), {"share": "0.2"})
    await jupyter.json("POST", path(kernel, "detach"))
    with monkeypatch.context() as later:
        later.setattr(released, "UNDO_SECONDS", 0.0)
        status, refused = await jupyter.json("POST", path(kernel, "undo"))
        assert (status, refused["reason"]) == (409, "nothing-to-undo")
    jupyter.pool.session_states[held["session_id"]] = "lost"
    await (await jupyter.extension.sessions()).check_parked()
    view = await jupyter.until(kernel.kernel_id, "lost")
    assert view["released"]["undo_seconds"] == 0
    # Nothing is said of the Detach any more: the memory went away later, for a reason of its own.
    assert view["released"]["message"] == view["message"] == KERNEL_WORDS.gone("lost")
    assert view["released"]["memory"] == {"bytes": 0, "place": "none"}
    status, refused = await jupyter.json("POST", path(kernel, "undo"))
    assert (status, refused["reason"]) == (409, "nothing-to-undo")


async def test_a_choice_outlives_restarts_and_ends_with_the_kernel(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    await jupyter.json("POST", path(kernel, "idle"), {"minutes": 30})
    await jupyter.app.kernel_manager.restart_kernel(kernel.kernel_id)
    _, view = await jupyter.json("POST", path(kernel, "attach"), {"share": "0.2"})
    assert (view["idle"]["choice_minutes"], view["idle"]["release_at"]) == (30, 1800)
    _, view = await jupyter.json("POST", path(kernel, "idle"), {"minutes": None})
    assert (view["idle"]["choice_minutes"], view["idle"]["release_at"]) == (None, 60)
    await jupyter.json("POST", path(kernel, "idle"), {"minutes": 30})
    sessions = await jupyter.extension.sessions()
    sessions.forget({"another"})
    assert sessions._idle_choices == {}


async def test_the_server_enforces_what_the_administrator_allows(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    async def refused(minutes: object, verb: str = "idle") -> str:
        status, answer = await jupyter.json("POST", path(kernel, verb), {"minutes": minutes})
        assert status == 400, answer
        return str(answer["message"])

    assert "at most 1 h without use, 1 h 1 min is more" in await refused(61)
    assert "never released" in await refused(0)
    assert "shortest" in await refused(1 / 600)
    for wrong, named in ((-1, "-1"), ("ten", "'ten'"), (True, "True"), (10**9, "1000000000")):
        assert named in await refused(wrong)
    status, answer = await jupyter.json("POST", path(kernel, "idle"), {})
    assert (status, answer["reason"]) == (400, "bad-request")
    await jupyter.json("POST", path(kernel, "attach"), {"share": "0.2"})
    assert "at most 1 h" in await refused(61, "keep")
    own = jupyter.kernel_headers(kernel.kernel_id)
    status, answer = await jupyter.json("POST", "gpupool/self/keep", {"minutes": 61}, headers=own)
    assert (status, answer["reason"]) == (400, "not-allowed")
    status, _ = await jupyter.json("POST", path(kernel, "keep"), {})
    assert status == 200
    jupyter.extension.never_release_allowed = True
    status, view = await jupyter.json("POST", path(kernel, "idle"), {"minutes": 0})
    assert (status, view["idle"]["release_at"], view["idle"]["choice_minutes"]) == (200, None, 0)
    # Taken back by the administrator: what was chosen counts as far as it is allowed now.
    jupyter.extension.never_release_allowed = False
    assert (await jupyter.kernel(kernel.kernel_id))["idle"]["release_at"] == 3600


@pytest.mark.parametrize(
    ("said", "reason", "words"),
    [
        ("release", "release", "its session was ended on request"),
        ("admin", "admin", "an administrator ended its session"),
        ("exit", "lost", "its worker or node failed"),
        ("", "lost", "its worker or node failed"),
    ],
)
async def test_the_page_says_who_ended_a_parked_session(
    jupyter: JupyterInProcess, kernel: Cells, said: str, reason: str, words: str
) -> None:
    _, held = await jupyter.json("POST", path(kernel, "attach"), {"share": "0.2"})
    await jupyter.json("POST", path(kernel, "detach"))
    jupyter.pool.session_states[held["session_id"]] = "closed"
    jupyter.pool.session_reasons[held["session_id"]] = said
    await (await jupyter.extension.sessions()).check_parked()
    view = await jupyter.until(kernel.kernel_id, "lost")
    assert view["reason"] == reason
    assert words in view["message"]
