"""Idle release with real kernels: who counts as busy, and what does not.

Each of these was got wrong by a simpler way: the server's `execution_state` and
`last_activity` say idle while a cell runs, and busy while nothing does.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from gpupool.client import holder
from gpupool.client.session.words import SILENT_POOL

from tests.support.jupyter import Cells, JupyterInProcess
from tests.support.patience import BUSY

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def settings() -> dict[str, object]:
    return {"idle_seconds": 4.0, "warn_seconds": 3.0}


def until(file: Path) -> str:
    """A cell that runs until the file is there."""
    return f"import os, time\nwhile not os.path.exists({str(file)!r}): time.sleep(0.02)"


async def hold(jupyter: JupyterInProcess, kernel: Cells) -> None:
    status, view = await jupyter.json(
        "POST", f"gpupool/api/kernels/{kernel.kernel_id}/attach", {"share": "0.2"}
    )
    assert (status, view["state"]) == (202, "attached")


async def test_warned_then_released_and_variables_stay(jupyter: JupyterInProcess, kernel: Cells) -> None:
    await kernel.run("kept = 'here'")
    await hold(jupyter, kernel)
    view = await jupyter.until(kernel.kernel_id, "warned")
    assert 0 < view["idle"]["countdown"] <= 3
    assert (view["idle"]["warn_at"], view["idle"]["release_at"]) == (1, 4)
    view = await jupyter.until(kernel.kernel_id, "parked")
    assert (view["reason"], view["held"]) == ("idle", False)
    assert "memory" in view["message"]
    assert jupyter.pool.free_milli == 1000
    assert "here" in (await kernel.run("kept")).text


async def test_keep_ends_the_countdown(jupyter: JupyterInProcess, kernel: Cells) -> None:
    await hold(jupyter, kernel)
    await jupyter.until(kernel.kernel_id, "warned")
    await jupyter.json("POST", f"gpupool/api/kernels/{kernel.kernel_id}/keep", {"minutes": 10})
    await asyncio.sleep(5)
    view = await jupyter.kernel(kernel.kernel_id)
    assert (view["state"], view["idle"]["countdown"]) == ("attached", None)


async def test_a_ticking_thread_does_not_keep_an_idle_gpu(jupyter: JupyterInProcess, kernel: Cells) -> None:
    await kernel.run(
        "import threading, time\n"
        "def tick():\n"
        "    while True:\n"
        "        print('tick'); display('tock'); time.sleep(0.2)\n"
        "threading.Thread(target=tick, daemon=True).start()"
    )
    await hold(jupyter, kernel)
    assert (await jupyter.until(kernel.kernel_id, "parked"))["reason"] == "idle"


async def test_a_widget_that_ticks_does_not_keep_an_idle_gpu(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    player = await kernel.run(
        "import threading, time\n"
        "from ipywidgets import IntSlider\n"
        "player = IntSlider()\n"
        "def play():\n"
        "    while True:\n"
        "        player.value = (player.value + 1) % 100; time.sleep(0.1)\n"
        "threading.Thread(target=play, daemon=True).start()\n"
        "print(player.model_id)"
    )

    async def page() -> None:
        """Moves it from the other side too, and reads the usage as the session's widget does."""
        for value in itertools.count():
            kernel.move(player.text.strip(), value % 100)
            await jupyter.json("GET", f"gpupool/api/kernels/{kernel.kernel_id}/usage?since=0")
            await asyncio.sleep(0.1)

    await hold(jupyter, kernel)
    ticking = asyncio.ensure_future(page())
    assert (await jupyter.until(kernel.kernel_id, "parked"))["reason"] == "idle"
    assert not ticking.done()
    ticking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await ticking


async def test_a_running_cell_is_never_touched(
    jupyter: JupyterInProcess, kernel: Cells, tmp_path: Path
) -> None:
    end = tmp_path / "end"
    await hold(jupyter, kernel)
    running = kernel.start(until(end))
    while not (await jupyter.kernel(kernel.kernel_id))["busy"]:
        await asyncio.sleep(0.02)
    for _ in range(12):
        await asyncio.sleep(0.5)
        view = await jupyter.kernel(kernel.kernel_id)
        assert (view["state"], view["busy"], view["idle"]["seconds"]) == ("attached", True, 0)
    end.touch()
    await kernel.finish(running)
    await jupyter.until(kernel.kernel_id, "warned")


async def test_a_slider_moved_during_a_cell_does_not_make_it_idle(
    jupyter: JupyterInProcess, kernel: Cells, tmp_path: Path
) -> None:
    heard, over = tmp_path / "heard", tmp_path / "over"
    slider = await kernel.run(
        "import os, time\n"
        "from ipywidgets import IntSlider\n"
        "slider = IntSlider()\n"
        f"slider.observe(lambda change: open({str(heard)!r}, 'w').write(str(change.new)), 'value')\n"
        "print(slider.model_id)"
    )
    subshell = await kernel.subshell()
    # Used once before, as a person does: from then on the kernel hears it while a cell runs.
    kernel.move(slider.text.strip(), 1, subshell)
    async with asyncio.timeout(10):
        while not heard.exists():
            await asyncio.sleep(0.05)
    await hold(jupyter, kernel)
    running = kernel.start(f"while not os.path.exists({str(over)!r}): time.sleep(0.05)")
    # The situation: the server takes the end of the slider's message for the cell's.
    async with asyncio.timeout(20):
        for value in itertools.count(2):
            kernel.move(slider.text.strip(), value, subshell)
            await asyncio.sleep(0.2)
            _, model = await jupyter.json("GET", f"api/kernels/{kernel.kernel_id}")
            if model["execution_state"] == "idle" and (await jupyter.kernel(kernel.kernel_id))["busy"]:
                break
    assert int(heard.read_text()) > 1  # its callback ran while the cell did
    await asyncio.sleep(5)
    view = await jupyter.kernel(kernel.kernel_id)
    assert (view["state"], view["busy"]) == ("attached", True)
    over.touch()
    await kernel.finish(running)
    async with asyncio.timeout(5):  # the server hears of the end over a subscription of its own
        while (await jupyter.kernel(kernel.kernel_id))["busy"]:
            await asyncio.sleep(0.05)


async def test_work_in_flight_keeps_the_gpu_without_any_cell(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    jupyter.pool.usage_now = replace(jupyter.pool.usage_now, in_flight=True)
    await hold(jupyter, kernel)
    await asyncio.sleep(5)
    assert (await jupyter.kernel(kernel.kernel_id))["state"] == "attached"
    # It was submitted long ago, but not unused since: the warning comes first, with its time.
    jupyter.pool.usage_now = replace(jupyter.pool.usage_now, in_flight=False)
    view = await jupyter.until(kernel.kernel_id, "warned")
    assert 1 < view["idle"]["countdown"] <= 3
    assert view["idle"]["kernel_seconds"] > view["idle"]["gpu_seconds"]
    await jupyter.until(kernel.kernel_id, "parked")


async def test_who_shortens_the_time_is_warned_all_the_same(jupyter: JupyterInProcess, kernel: Cells) -> None:
    await hold(jupyter, kernel)
    await asyncio.sleep(0.8)
    path = f"gpupool/api/kernels/{kernel.kernel_id}/idle"
    _, view = await jupyter.json("POST", path, {"minutes": 1 / 60})
    # Not after the one second that was chosen: the warning has its time.
    assert (view["idle"]["choice_minutes"], view["idle"]["release_at"] > 1) == (1 / 60, True)
    view = await jupyter.until(kernel.kernel_id, "warned")
    assert view["idle"]["countdown"] > 1


async def test_who_has_the_time_shortened_by_an_administrator_is_warned_too(
    jupyter: JupyterInProcess, kernel: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    await jupyter.json("POST", f"gpupool/api/kernels/{kernel.kernel_id}/idle", {"minutes": 10})
    await hold(jupyter, kernel)
    await asyncio.sleep(1.5)
    monkeypatch.setattr(jupyter.extension, "idle_seconds", 0.5)
    monkeypatch.setattr(jupyter.extension, "idle_seconds_most", 0.5)
    view = await jupyter.until(kernel.kernel_id, "warned")
    assert (view["idle"]["countdown"] > 1, view["idle"]["choice_minutes"]) == (True, 10)


async def test_an_event_that_anybody_may_post_does_not_hide_a_running_cell(
    jupyter: JupyterInProcess, kernel: Cells, tmp_path: Path
) -> None:
    end = tmp_path / "end"
    running = kernel.start(until(end))
    while not (await jupyter.kernel(kernel.kernel_id))["busy"]:
        await asyncio.sleep(0.02)
    for action in ("start", "restart"):
        event = {
            "schema_id": "https://events.jupyter.org/jupyter_server/kernel_actions/v1",
            "version": "1",
            "data": {"action": action, "kernel_id": kernel.kernel_id, "msg": "as if"},
        }
        response = await jupyter.fetch("POST", "api/events", event)
        assert response.code == 204, response.body
    await jupyter.app.event_logger.gather_listeners()
    assert (await jupyter.kernel(kernel.kernel_id))["busy"]
    end.touch()
    await kernel.finish(running)


async def test_use_during_the_countdown_ends_it(
    jupyter: JupyterInProcess, kernel: Cells, tmp_path: Path
) -> None:
    await hold(jupyter, kernel)
    await jupyter.until(kernel.kernel_id, "warned")
    end = tmp_path / "end"
    running = kernel.start(until(end))
    await jupyter.until(kernel.kernel_id, "attached")
    end.touch()
    await kernel.finish(running)


async def test_overlapping_cells_of_two_shells_share_one_lease(
    jupyter: JupyterInProcess, kernel: Cells, tmp_path: Path
) -> None:
    subshell = await kernel.subshell()
    end = tmp_path / "end"
    long = kernel.start(f"%%gpu 0.2\n{until(end)}\nprint('long done')")
    await jupyter.until(kernel.kernel_id, "attached")
    short = kernel.send(
        subshell, "execute_request", {"code": "%%gpu 0.2\nprint('short done')", "silent": False}
    )
    reply = await kernel.finish(short)
    assert "short done" in reply.text
    view = await jupyter.kernel(kernel.kernel_id)
    assert (view["state"], len(jupyter.pool.held)) == ("attached", 1)
    end.touch()
    assert "long done" in (await kernel.finish(long)).text
    assert (await jupyter.kernel(kernel.kernel_id))["state"] == "parked"


async def test_samples_of_use_once_a_second(jupyter: JupyterInProcess, kernel: Cells) -> None:
    jupyter.pool.usage_now = replace(jupyter.pool.usage_now, in_flight=True, memory_used=(2048,))
    await hold(jupyter, kernel)
    for second in range(1, 4):
        await asyncio.sleep(1)
        jupyter.pool.usage_now = replace(
            jupyter.pool.usage_now, device_seconds=0.5 * second, bytes_to_device=1000 * second
        )
    await asyncio.sleep(1.2)
    _, view = await jupyter.json("GET", f"gpupool/api/kernels/{kernel.kernel_id}/usage?since=0")
    samples = view["samples"]
    assert len(samples) >= 3
    assert all(0 <= sample["utilization"] <= 1 for sample in samples)
    assert any(0.3 < sample["utilization"] < 0.7 for sample in samples)
    assert samples[-1]["memory_bytes"] == 2048
    newest = samples[-1]["t"]
    _, later = await jupyter.json("GET", f"gpupool/api/kernels/{kernel.kernel_id}/usage?since={newest}")
    assert all(sample["t"] > newest for sample in later["samples"])


async def test_a_cell_waits_for_a_pool_that_stays_silent_and_that_is_shown(
    jupyter: JupyterInProcess, kernel: Cells, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = tmp_path / "end"
    monkeypatch.setattr(holder, "LEASE_SECONDS", 1.0)
    await hold(jupyter, kernel)
    running = kernel.start(until(end))
    while not (await jupyter.kernel(kernel.kernel_id))["busy"]:
        await asyncio.sleep(0.02)
    jupyter.pool.down = True
    async with asyncio.timeout(20 * BUSY):
        while not (view := await jupyter.kernel(kernel.kernel_id))["silent"]:
            await asyncio.sleep(0.05)
        assert (view["state"], view["message"]) == ("attached", SILENT_POOL)
        await kernel.says(running, SILENT_POOL)
        jupyter.pool.down = False
        while (view := await jupyter.kernel(kernel.kernel_id))["silent"]:
            await asyncio.sleep(0.05)
    assert (view["state"], view["message"]) == ("attached", None)
    end.touch()
    cell = await kernel.finish(running)
    assert SILENT_POOL in cell.text


async def test_what_the_pool_said_last_keeps_no_gpu_while_it_is_silent(
    jupyter: JupyterInProcess, kernel: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holder, "LEASE_SECONDS", 1.0)
    jupyter.pool.usage_now = replace(jupyter.pool.usage_now, in_flight=True)
    await hold(jupyter, kernel)
    jupyter.pool.down = True
    view = await jupyter.until(kernel.kernel_id, "parked", seconds=20)
    assert (view["reason"], view["silent"]) == ("idle", False)
    jupyter.pool.down = False


async def test_a_kernel_that_runs_for_long_is_never_idle(jupyter: JupyterInProcess, kernel: Cells) -> None:
    """Fifteen minutes, shortened: no cell runs, and what runs was submitted long before the idle time."""
    jupyter.pool.usage_now = replace(
        jupyter.pool.usage_now, work="running", kernel="forever", idle_seconds=900.0, in_flight=False
    )
    await hold(jupyter, kernel)
    for second in range(1, 11):
        await asyncio.sleep(1)
        jupyter.pool.usage_now = replace(jupyter.pool.usage_now, work_seconds=float(second))
        view = await jupyter.kernel(kernel.kernel_id)
        assert (view["state"], view["idle"]["gpu_seconds"]) == ("attached", 0)
    # Over: from now on it counts, with the whole time of a warning.
    jupyter.pool.usage_now = replace(jupyter.pool.usage_now, work="", kernel="", work_seconds=0.0)
    view = await jupyter.until(kernel.kernel_id, "warned")
    assert view["idle"]["countdown"] > 1
