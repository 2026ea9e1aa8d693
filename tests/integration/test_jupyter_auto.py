"""CUDA calls outside of an attached block: an error that says what to do, or `%gpu auto on`.

Real server, pool, worker, kernel and numba; where threads and interrupts meet, the calls are made by ctypes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from tests.support.stack import Kernel, Stack, wait_until

SETUP = """
import ctypes, threading, time
import numpy as np
from numba import cuda

@cuda.jit
def add(a, b):
    i = cuda.grid(1)
    if i < a.size:
        a[i] += b

def total(array):
    add[1, 128](array, 1.0)
    return array.copy_to_host().sum()
"""


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with Stack("--software-gpus", "1") as running:
        yield running


@pytest.fixture(scope="module")
def kernel(stack: Stack) -> Kernel:
    started = stack.kernel()
    assert started.run(SETUP).status == "ok"
    return started


@pytest.fixture(scope="module")
def other(stack: Stack) -> Kernel:
    """Somebody who can have the whole device."""
    return stack.kernel()


@pytest.fixture(autouse=True)
def off_and_free(stack: Stack, kernel: Kernel, other: Kernel) -> Iterator[None]:
    yield
    assert kernel.run("%gpu auto off").status == "ok"
    for each in (kernel, other):
        if each.state()["state"] in ("attached", "warned"):
            each.detach()
    stack.wait_free(10)


def take_all(stack: Stack, kernel: Kernel) -> None:
    stack.api("POST", f"gpupool/api/kernels/{kernel.id}/attach", {"share": "1"})
    wait_until(lambda: kernel.state()["state"] == "attached", 10, "the whole device")


def test_off_by_default_a_call_takes_no_gpu_and_names_the_way_out(kernel: Kernel) -> None:
    outside = kernel.run("x = cuda.to_device(np.ones(8))")
    assert outside.status == "error"
    assert "%%gpu 0.2" in outside.text
    assert "sidebar" in outside.text
    assert kernel.state()["state"] == "none"


def test_on_a_call_attaches_by_itself_says_so_once_and_is_shown(stack: Stack, kernel: Kernel) -> None:
    assert "0.3 GPU" in kernel.run("%gpu auto on 0.3").text
    cell = kernel.run("x = cuda.to_device(np.zeros(8)); print('sum', total(x))")
    assert cell.status == "ok", cell.text
    assert "sum 8.0" in cell.text
    assert cell.text.count("by itself") == 1
    state = kernel.state()
    assert (state["state"], state["by"], state["share"]["milli"]) == ("attached", "auto", 300)
    assert state["auto"] == {"share": "0.3", "count": 1, "strict": False}
    assert "by itself" not in kernel.run("total(x)").text

    # Given back from outside, it attaches again: memory and handles are the same.
    kernel.detach()
    again = kernel.run("print('sum', total(x))")
    assert "sum 24.0" in again.text
    assert again.text.count("by itself") == 1


def test_off_again_a_parked_session_says_that_its_memory_is_kept(stack: Stack, kernel: Kernel) -> None:
    assert kernel.run("%gpu auto on 0.3").status == "ok"
    assert kernel.run("y = cuda.to_device(np.zeros(8))").status == "ok"
    assert kernel.run("%gpu auto off").status == "ok"
    assert kernel.state()["auto"] is None
    assert "is kept" in kernel.run("%gpu detach").text
    refused = kernel.run("total(y)")
    assert refused.status == "error"
    assert "what is in its memory is kept" in refused.text
    assert "%%gpu 0.2" in refused.text


@pytest.mark.parametrize(
    "cell_text",
    ["try:\n    total(z)\nfinally:\n    total(z)", "import asyncio\nawait asyncio.sleep(0)\ntotal(z)"],
    ids=["sync", "await"],
)
def test_an_interrupt_ends_the_wait_in_the_queue_and_the_kernel_goes_on(
    stack: Stack, kernel: Kernel, other: Kernel, cell_text: str
) -> None:
    kernel.run("%gpu auto on 0.2 --wait 600")
    assert kernel.run("z = cuda.to_device(np.zeros(8))").status == "ok"
    kernel.run("%gpu detach")
    take_all(stack, other)
    running = kernel.start(cell_text)
    kernel.await_text(running, "Waiting for a GPU: place 1", 10)
    kernel.interrupt()
    cell = kernel.finish(running, 10)  # the clean-up of the interrupted cell does not wait again
    assert cell.status == "error"
    assert "stopped waiting for a GPU (place 1 in the queue)" in cell.text
    wait_until(lambda: kernel.state()["state"] == "parked", 5, "the end of its place in the queue")
    assert stack.api("GET", "gpupool/api/pool")["queue"] == []

    other.detach()
    assert "8.0" in kernel.run("print(total(z))").text


def test_a_wait_in_vain_is_one_clear_error(stack: Stack, kernel: Kernel, other: Kernel) -> None:
    take_all(stack, other)
    kernel.run("%gpu auto on 0.2 --wait 1")
    started = time.monotonic()
    cell = kernel.run("x = cuda.to_device(np.ones(8))")
    assert time.monotonic() - started >= 1
    assert cell.status == "error"
    assert "%gpu auto is on, but no GPU could be attached: " in cell.text
    assert "1 s" in cell.text
    assert kernel.run("%gpu auto off").status == "ok"
    assert "put %%gpu 0.2 above the cell" in kernel.run("cuda.to_device(np.ones(8))").text.lower()


def test_threads_that_outlive_their_cell_wait_for_one_attempt(
    stack: Stack, kernel: Kernel, other: Kernel
) -> None:
    kernel.run(
        "runtime = ctypes.CDLL('libcudart.so.12')\n"
        "answers = []\n"
        "def allocate():\n"
        "    time.sleep(0.3)\n"
        "    answers.append(runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(1024)))\n"
        "def start(count=3):\n"
        "    answers.clear()\n"
        "    for _ in range(count): threading.Thread(target=allocate, daemon=True).start()\n"
        "def collect(count=3):\n"
        "    until = time.monotonic() + 20\n"
        "    while len(answers) < count and time.monotonic() < until: time.sleep(0.01)\n"
        "    return sorted(answers)"
    )
    kernel.run("start()")
    assert "[46, 46, 46]" in kernel.run("print(collect())").text

    kernel.run("%gpu auto on 0.2 --wait 30")
    take_all(stack, other)
    kernel.run("start()")
    wait_until(lambda: kernel.state()["state"] == "queued", 10, "a place in the queue")
    assert len(stack.api("GET", "gpupool/api/pool")["queue"]) == 1
    other.detach()
    assert "[0, 0, 0]" in kernel.run("print(collect())").text
    assert kernel.state()["by"] == "auto"


def test_a_thread_that_slept_while_the_share_was_given_back_loses_nothing(
    stack: Stack, kernel: Kernel
) -> None:
    """Its first call is one that nobody waits for, which a worker without a lease would drop."""
    flag = stack.home / "wake"
    kernel.run("%gpu auto on 0.2")
    slept = kernel.run(
        "runtime = ctypes.CDLL('libcudart.so.12')\n"
        "place, host, size = ctypes.c_void_p(), (ctypes.c_ubyte * 64)(), ctypes.c_size_t(64)\n"
        "print('allocated', runtime.cudaMalloc(ctypes.byref(place), size))\n"
        "def sleep_and_fill():\n"
        "    import pathlib\n"
        f"    while not pathlib.Path({str(flag)!r}).exists(): time.sleep(0.01)\n"
        "    told.append(runtime.cudaMemsetAsync(place, 7, size, None))\n"
        "    told.append(runtime.cudaMemcpy(host, place, size, 2))\n"
        "told = []\n"
        "sleeper = threading.Thread(target=sleep_and_fill, daemon=True)\n"
        "sleeper.start()"
    )
    assert "allocated 0" in slept.text
    kernel.detach()
    flag.touch()
    wait_until(lambda: kernel.state()["state"] == "attached", 10, "the thread's own attach")
    woken = kernel.run("sleeper.join(10); print(told, set(host))")
    assert "[0, 0] {7}" in woken.text


def test_nothing_of_the_program_runs_while_a_call_waits(stack: Stack, kernel: Kernel, other: Kernel) -> None:
    """Whoever waits for a GPU may hold a lock that another thread wants, with Python's lock in its hand: a framework's
    allocator has such locks. So a GPU must come, and the work begin, while no Python code of the program can run."""
    kernel.run("%gpu auto on 0.2 --wait 30")
    ready = kernel.run(
        "runtime = ctypes.CDLL('libcudart.so.12')\n"
        "place, size, told = ctypes.c_void_p(), ctypes.c_size_t(1024), []\n"
        "print('allocated', runtime.cudaMalloc(ctypes.byref(place), size))\n"
        "def copy(): told.append(runtime.cudaMemcpy((ctypes.c_ubyte * 64)(), place, ctypes.c_size_t(64), 2))"
    )
    assert "allocated 0" in ready.text
    assert kernel.run("%gpu detach").status == "ok"
    take_all(stack, other)
    kernel.run("waiter = threading.Thread(target=copy, daemon=True); waiter.start()")
    wait_until(lambda: kernel.state()["state"] == "queued", 10, "a place in the queue")
    before = kernel.state()["usage"]["calls"]
    # PyDLL keeps Python's lock during the call, which ends when somebody opens the other end.
    held = stack.home / "held"
    os.mkfifo(held)
    frozen = kernel.start(f"ctypes.PyDLL(None).open({str(held).encode()!r}, 0); print('on ' + 'again')")
    try:
        time.sleep(0.5)
        other.detach()
        wait_until(lambda: kernel.state()["usage"]["calls"] > before, 15, "a call that reached the worker")
    finally:
        held.open("w").close()
    assert "on again" in kernel.finish(frozen, 30).text
    assert "[0]" in kernel.run("waiter.join(10); print(told)").text


@pytest.mark.parametrize("words", ["", "maybe", "on 1.7", "on 0.2 --for 3", "off 0.2"])
def test_words_that_make_no_sense_are_named(kernel: Kernel, words: str) -> None:
    refused = kernel.run(f"%gpu auto {words}")
    assert (refused.status, refused.ename) == ("error", "GpuUsageError")
    assert "%gpu auto" in refused.evalue or words.split()[-1] in refused.evalue
