"""A kernel that holds a share without using it is warned, may keep it, and else gives it back."""

from __future__ import annotations

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


def test_warned_with_a_countdown_then_released_and_variables_stay(stack: Stack, kernel: Kernel) -> None:
    code = "%%gpu 0.2 --hold\nimport numpy as np\nfrom numba import cuda\nx = cuda.to_device(np.arange(5.0)); kept = 'here'"
    assert kernel.run(code).status == "ok"
    wait_until(lambda: kernel.state()["state"] == "warned", 15, "the warning")
    countdown = kernel.state()["idle"]["countdown"]
    assert 0 < countdown <= 5
    wait_until(lambda: kernel.state()["state"] == "parked", 15, "the release")
    assert kernel.state()["reason"] == "idle"
    stack.wait_free()
    assert "here" in kernel.run("print(kept)").text
    assert "10.0" in kernel.run("%%gpu 0.2\nprint(x.copy_to_host().sum())").text


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
