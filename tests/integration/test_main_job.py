"""The main job through the real stack: server, kernel, client runtime, wire, worker, software GPU."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from tests.support.stack import Kernel, Stack, wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
SETUP = """
import numpy as np
from numba import cuda

@cuda.jit
def add(a, b):
    i = cuda.grid(1)
    if i < a.size:
        a[i] += b
"""


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with Stack() as running:
        yield running


@pytest.fixture(scope="module")
def kernel(stack: Stack) -> Kernel:
    started = stack.kernel()
    assert started.run(SETUP).status == "ok"
    return started


@pytest.fixture(autouse=True)
def nothing_is_left_attached(stack: Stack) -> Iterator[None]:
    yield
    stack.wait_free()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_quickstart_runs_unchanged_in_under_two_minutes(stack: Stack) -> None:
    notebook = nbformat.read(ROOT / "examples" / "quickstart.ipynb", 4)
    kernel = stack.kernel()
    started = time.monotonic()
    texts = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            result = kernel.run(cell.source, seconds=120)
            assert result.status == "ok", result.text
            texts.append(result.text)
    assert time.monotonic() - started < 120
    everything = "\n".join(texts)
    accuracy = {
        where: float(value) for where, value in re.findall(r"accuracy on the (\w+): ([0-9.]+)", everything)
    }
    assert accuracy["GPU"] >= 0.93
    assert abs(accuracy["GPU"] - accuracy["CPU"]) <= 1e-3
    training = next(text for text in texts if "epoch  40" in text)
    for word in ("device time", "calls", "waits for the gpu", "peak"):
        assert word in training.lower(), f"the result line does not tell the {word}: {training}"


def test_device_arrays_of_one_cell_are_alive_in_the_next(kernel: Kernel) -> None:
    assert kernel.run("%%gpu 0.2\nx = cuda.to_device(np.arange(1000.0)); add[4, 256](x, 1.5)").status == "ok"
    assert kernel.state()["state"] == "parked"
    after = kernel.run("%%gpu 0.3\nadd[4, 256](x, 1.0); print(x.copy_to_host().sum())")
    assert after.status == "ok", after.text
    assert str(sum(range(1000)) + 2500.0) in after.text


def test_the_status_right_after_a_cell_counts_its_calls(kernel: Kernel) -> None:
    def calls(text: str) -> int:
        found = re.search(r"([\d,]+) calls|calls ([\d,]+)", text)
        assert found is not None, text
        return int((found[1] or found[2]).replace(",", ""))

    def status() -> int:
        return calls(kernel.run("%gpu status").text)

    assert kernel.run("%%gpu 0.2\nx = cuda.to_device(np.arange(10.0))").status == "ok"
    before = status()
    cell = kernel.run("%%gpu 0.2\nfor _ in range(20):\n    add[4, 256](x, 1.0)")
    assert calls(cell.text) >= 20
    assert status() == before + calls(cell.text)


def test_outside_an_attached_cell_a_cuda_call_names_the_way_out(kernel: Kernel) -> None:
    assert kernel.run("%%gpu 0.2\nx = cuda.to_device(np.arange(10.0))").status == "ok"
    outside = kernel.run("x.copy_to_host()")
    assert outside.status == "error"
    assert "%%gpu" in outside.text


def test_python_variables_and_arrays_survive_detach_and_attach_from_the_sidebar(
    stack: Stack, kernel: Kernel
) -> None:
    stack.api("POST", f"gpupool/api/kernels/{kernel.id}/attach", {"share": "0.25"})
    wait_until(lambda: kernel.state()["state"] == "attached", 20, "the sidebar's attach")
    assert kernel.state()["share"]["milli"] == 250
    assert kernel.run("y = cuda.to_device(np.arange(8.0)); z = 7").status == "ok"
    kernel.detach()
    wait_until(lambda: kernel.state()["state"] == "parked", 20, "the sidebar's detach")
    assert kernel.run("y.copy_to_host()").status == "error"
    stack.api("POST", f"gpupool/api/kernels/{kernel.id}/attach", {"share": "0.25"})
    wait_until(lambda: kernel.state()["state"] == "attached", 20, "the second attach")
    again = kernel.run("print(y.copy_to_host().sum(), z)")
    assert "28.0 7" in again.text
    kernel.detach()


def test_attach_from_the_sidebar_works_while_a_cell_runs(stack: Stack, kernel: Kernel) -> None:
    running = kernel.start(
        "import time\ntime.sleep(3)\nprint(cuda.to_device(np.arange(4.0)).copy_to_host().sum())"
    )
    stack.api("POST", f"gpupool/api/kernels/{kernel.id}/attach", {"share": "0.1"})
    result = kernel.finish(running)
    assert result.status == "ok", result.text
    assert "6.0" in result.text
    kernel.detach()


def test_line_magics_attach_resize_status_and_detach(kernel: Kernel) -> None:
    assert kernel.run("%gpu attach 0.2").status == "ok"
    assert kernel.state()["share"]["milli"] == 200
    assert kernel.run("%gpu resize 0.4").status == "ok"
    assert kernel.state()["share"]["milli"] == 400
    assert "0.4" in kernel.run("%gpu status").text
    assert "Software GPU" in kernel.run("%gpu list").text
    assert kernel.run("%gpu detach").status == "ok"
    assert kernel.state()["state"] == "parked"


def test_hold_keeps_the_share_after_the_cell(kernel: Kernel) -> None:
    assert kernel.run("%%gpu 0.2 --hold\nx = cuda.to_device(np.ones(3))").status == "ok"
    assert kernel.state()["state"] == "attached"
    assert "3.0" in kernel.run("print(x.copy_to_host().sum())").text
    assert kernel.run("%gpu detach").status == "ok"


def test_top_level_await_works(kernel: Kernel) -> None:
    result = kernel.run(
        "%%gpu 0.2\nimport asyncio\nawait asyncio.sleep(0.1)\nprint(cuda.to_device(np.ones(5)).copy_to_host().sum())"
    )
    assert result.status == "ok", result.text
    assert "5.0" in result.text


def test_the_memory_of_a_share_is_a_limit(kernel: Kernel) -> None:
    result = kernel.run("%%gpu 1GiB\nbig = cuda.device_array(2 << 30, np.uint8)")
    assert result.status == "error"
    assert "OUT_OF_MEMORY" in result.text
    shown = kernel.run(
        "%%gpu 1GiB\nfree, total = cuda.current_context().get_memory_info()\nprint(total <= (1 << 30))"
    )
    assert "True" in shown.text


def test_a_parked_session_keeps_nothing_that_was_freed(stack: Stack, kernel: Kernel) -> None:
    """The runtime keeps freed memory at hand for the next allocation, but only while there is a GPU."""
    again = "for _ in range(3):\n    big = cuda.device_array(512 << 20, np.uint8)\n    del big\n"
    result = kernel.run(f"%%gpu 0.5\n{again}    cuda.current_context().deallocations.clear()")
    assert result.status == "ok", result.text
    wait_until(
        lambda: sum(device["used_bytes"] for device in stack.devices()) < 64 << 20, 10, "the memory's end"
    )


def test_two_kernels_share_one_device(stack: Stack) -> None:
    first, second = stack.kernel(), stack.kernel()
    code = (
        "%%gpu 0.4 --hold\n"
        + SETUP
        + "\nx = cuda.to_device(np.zeros(100)); add[1, 128](x, 2.0); print(x.copy_to_host().sum())"
    )
    for kernel in (first, second):
        result = kernel.run(code)
        assert result.status == "ok", result.text
        assert "200.0" in result.text
    held = [share for device in stack.devices() for share in device["shares"]]
    assert len(held) == 2
    for kernel in (first, second):
        assert kernel.run("%gpu detach").status == "ok"


def test_two_shares_of_two_devices(stack: Stack) -> None:
    kernel = stack.kernel()
    result = kernel.run("%%gpu 0.5 -n 2\nfrom numba import cuda\nprint('devices', len(cuda.gpus.lst))")
    assert result.status == "ok", result.text
    assert "devices 2" in result.text
