"""Wrong requests and failing cells: one clear message, nothing leaked, the next cell works."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.support.stack import Kernel, Stack, wait_until


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with Stack("--quota", "*=0.6") as running:
        yield running


@pytest.fixture(scope="module")
def kernel(stack: Stack) -> Kernel:
    return stack.kernel()


@pytest.fixture(autouse=True)
def nothing_is_left(stack: Stack, kernel: Kernel) -> Iterator[None]:
    yield
    stack.wait_free()
    after = kernel.run("%%gpu 0.2\nprint('still works')")
    assert "still works" in after.text, after.text
    stack.wait_free()


@pytest.mark.parametrize(
    ("first_line", "named"),
    [
        ("%%gpu 1.7", "1.7"),
        ("%%gpu banana", "banana"),
        ("%%gpu 0", "0"),
        ("%%gpu -0.2", "-0.2"),
        ("%%gpu nan", "nan"),
        ("%%gpu 300%", "300%"),
        ("%%gpu 0.2 -n 0", "0"),
        ("%%gpu 0.2 -n many", "many"),
        ("%%gpu 0.2 --wait soon", "soon"),
        ("%%gpu 0.2 --fro 3", "--fro"),
        ("%%gpu 900GiB", "900GiB"),
    ],
)
def test_a_wrong_request_names_the_value_and_the_cell_does_not_run(
    kernel: Kernel, first_line: str, named: str
) -> None:
    result = kernel.run(f"{first_line}\nprint('the body ' + 'ran')")
    assert result.status == "error"
    assert named in result.text
    assert "the body ran" not in result.text
    assert result.text.count("\n") < 15, f"not one clear message:\n{result.text}"


def test_without_quota_the_refusal_has_numbers(kernel: Kernel) -> None:
    result = kernel.run("%%gpu 0.9\nprint('the body ' + 'ran')")
    assert result.status == "error"
    assert "600" in result.text or "0.6" in result.text
    assert "quota" in result.text.lower()
    assert "the body ran" not in result.text


def test_a_syntax_error_attaches_nothing(kernel: Kernel) -> None:
    result = kernel.run("%%gpu 0.2\nfor for in")
    assert result.status == "error"
    assert "SyntaxError" in result.text
    assert kernel.state()["state"] in ("none", "parked")


def test_an_exception_ends_the_lease_and_keeps_its_own_traceback(kernel: Kernel) -> None:
    result = kernel.run("%%gpu 0.2\nx = 1\nraise KeyError('mine')")
    assert result.status == "error"
    assert result.ename == "KeyError"
    assert "line 3" in result.text or "3 raise KeyError" in result.text


def test_an_interrupt_ends_the_cell_and_the_lease(kernel: Kernel) -> None:
    running = kernel.start("%%gpu 0.2\nimport time\nfor _ in range(600):\n    time.sleep(0.1)")
    wait_until(lambda: kernel.state()["state"] == "attached", 20, "the cell's share")
    kernel.interrupt()
    result = kernel.finish(running, 20)
    assert result.ename == "KeyboardInterrupt"


def test_a_cell_that_waits_in_the_queue_says_so_and_can_be_interrupted(stack: Stack, kernel: Kernel) -> None:
    # Ten people with a fifth each: within everybody's quota, and nothing is left.
    for person in range(10):
        stack.gpupool("lease", "request", "-p", "0.2", "--user", f"person{person}")
    assert stack.free_milli() == 0
    try:
        running = kernel.start("%%gpu 0.2\nprint('the body ' + 'ran')")
        wait_until(lambda: kernel.state()["queue"], 20, "the place in the queue")
        place = kernel.state()["queue"]
        assert place["place"] == 1
        assert place["reason"]
        kernel.interrupt()
        result = kernel.finish(running, 20)
        assert result.ename == "GpuWaitInterrupted"
        assert "the body ran" not in result.text
        full = kernel.run("%%gpu 0.2 --wait 1\nprint('the body ' + 'ran')")
        assert full.status == "error"
        assert "the body ran" not in full.text
        assert re.search(r"has 0\.00 \(\d+ MiB\) left; person\d holds 0\.20", full.evalue), full.evalue
    finally:
        release_all(stack)


def release_all(stack: Stack) -> None:
    for device in stack.devices():
        for share in device["shares"]:
            stack.gpupool("lease", "release", share["lease_id"])


def test_errors_of_the_http_interface_name_the_value(stack: Stack, kernel: Kernel) -> None:
    status, body = stack.api_error("POST", f"gpupool/api/kernels/{kernel.id}/attach", {"share": "banana"})
    assert status == 400
    assert "banana" in body["message"]
    status, body = stack.api_error("POST", "gpupool/api/kernels/none-such/attach", {"share": "0.2"})
    assert status == 404
    status, body = stack.api_error("POST", f"gpupool/api/kernels/{kernel.id}/resize", {"share": "0.2"})
    assert status == 409


NEIGHBOUR = """%%gpu 0.2
import numpy as np
from numba import cuda

@cuda.jit
def squares(a):
    i = cuda.grid(1)
    a[i] = i * i

a = cuda.to_device(np.zeros(64))
squares[2, 32](a)
print("sum", int(a.copy_to_host().sum()))
"""


def test_a_crashing_kernel_in_a_cuda_program_is_an_error_not_a_hang(stack: Stack, kernel: Kernel) -> None:
    neighbour = stack.kernel()
    assert "sum 85344" in neighbour.run(NEIGHBOUR).text
    code = """%%gpu 0.2
import numpy as np
from numba import cuda

@cuda.jit
def wild(a):
    a[cuda.grid(1) + (1 << 40)] = 1.0

a = cuda.to_device(np.zeros(4))
wild[1, 32](a)
cuda.synchronize()
"""
    result = kernel.run(code)
    assert result.status == "error"
    assert "ILLEGAL_ADDRESS" in result.text
    # What went wrong, in the cell's own output.
    assert "write of 8 bytes at 0x" in result.text
    assert "wild" in result.text
    assert "block (0, 0, 0), thread (0, 0, 0)" in result.text
    # Who shares the device computes on.
    assert "sum 85344" in neighbour.run(NEIGHBOUR).text
    restarted = kernel.stack.api("POST", f"api/kernels/{kernel.id}/restart")
    assert restarted["id"] == kernel.id
    kernel.reconnect()
