"""A kernel that holds a share without using it is warned, may keep it, and else gives it back."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from tests.support.stack import Kernel, Stack, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with Stack("--idle-seconds", "8", "--warn-seconds", "5") as running:
        yield running


@pytest.fixture
def kernel(stack: Stack) -> Kernel:
    return stack.kernel()


def test_warned_with_a_countdown_then_released_and_undone(stack: Stack, kernel: Kernel) -> None:
    code = "import numpy as np\nfrom numba import cuda\nx = cuda.to_device(np.full(2**20, 3, np.int8)); kept = 'here'"
    assert kernel.run(f"%%gpu 0.2 --hold\n{code}").status == "ok"
    wait_until(lambda: kernel.state()["state"] == "warned", 15, "the warning")
    countdown = kernel.state()["idle"]["countdown"]
    assert 0 < countdown <= 5
    wait_until(lambda: kernel.state()["state"] == "parked", 15, "the release")
    state = kernel.state()
    stack.wait_free()
    assert "here" in kernel.run("print(kept)").text

    wait_until(lambda: not kernel.state()["released"]["draining"], 10, "the page to say so")
    released = kernel.state()["released"]
    assert (state["reason"], released["reason"]) == ("idle", "idle")
    said = r"Released after \d+ s without use: 0\.2 of GPU \d on \S+ is free again; [\d.]+ MiB of arrays are kept\b.*\."
    assert re.fullmatch(said, released["message"]), released["message"]
    assert released["memory"]["bytes"] >= 2**20
    assert released["undo_seconds"] > 100

    stack.api("POST", f"gpupool/api/kernels/{kernel.id}/undo")
    wait_until(
        lambda: kernel.state()["state"] == "attached", 15, "the share again"
    )  # it may have been queued
    again = kernel.state()
    assert again["session_id"] == state["session_id"]
    assert (again["by"], again["share"]["milli"], again["released"]) == ("attach", 200, None)
    # Held as before, so without a magic; and its memory is what it was.
    assert str(3 * 2**20) in kernel.run("print(x.copy_to_host().sum(dtype='int64'))").text
    assert kernel.run("%gpu detach").status == "ok"
    stack.wait_free()


def test_keep_puts_the_release_off(stack: Stack, kernel: Kernel) -> None:
    assert kernel.run("%gpu attach 0.2").status == "ok"
    wait_until(lambda: kernel.state()["state"] == "warned", 15, "the warning")
    stack.api("POST", f"gpupool/api/kernels/{kernel.id}/keep", {"minutes": 10})
    time.sleep(10)
    assert kernel.state()["state"] == "attached"
    assert kernel.run("%gpu detach").status == "ok"


def test_a_running_cell_is_never_touched(kernel: Kernel) -> None:
    result = kernel.run("%%gpu 0.2\nimport time\ntime.sleep(14)\nprint('undisturbed')", seconds=40)
    assert result.status == "ok"
    assert "undisturbed" in result.text


def test_a_gpu_kernel_that_runs_for_long_is_neither_warned_nor_released(stack: Stack, kernel: Kernel) -> None:
    """Twice the idle time, with no cell running and nothing submitted."""
    code = (
        "import numpy as np\nfrom numba import cuda\n"
        "@cuda.jit\ndef forever(a):\n    while a[0] < 1.0:\n        a[1] += 1.0\n        cuda.nanosleep(1000000)\n"
        "z = cuda.to_device(np.zeros(2))\nforever[1, 1](z)\nprint('launched')"
    )
    assert kernel.run("%gpu attach 0.2").status == "ok"
    assert "launched" in kernel.run(code, 120).text

    def runs() -> bool:
        usage = kernel.state()["usage"]
        return usage is not None and usage["work"] == "running" and "forever" in usage["kernel"]

    wait_until(runs, 30, "the kernel to be named")
    charged = kernel.state()["usage"]["device_seconds"]
    until = time.monotonic() + 16
    while time.monotonic() < until:
        state = kernel.state()
        assert (state["state"], state["idle"]["gpu_seconds"]) == ("attached", 0), state
        time.sleep(0.5)
    assert kernel.state()["usage"]["device_seconds"] > charged
    after = stack.api("POST", f"gpupool/api/kernels/{kernel.id}/reset")
    assert (after["state"], after["reason"], after["usage"]) == ("none", "reset", None)
    stack.wait_free()
