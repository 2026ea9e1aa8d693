"""Interrupts of a call that waits behind a kernel which never ends: the first says what runs, the second ends the session.

Programs, client runtime and workers are real; the session file is written by the test.
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.support.runtime_share import Share, share, share_of_a_worker
from tests.support.several_shares import several_shares
from tests.support.stack import wait_until

__all__ = ["share"]  # the fixture

#: A kernel that never ends, launched; `interruptible` runs a call that waits for it, and tells how it ended.
ENDLESS = """
import ctypes, json, os, sys, threading, time
import numpy as np
from numba import cuda

runtime = ctypes.CDLL("libcuda.so.1")
runtime.gpupool_last_message.restype = ctypes.c_char_p

@cuda.jit
def forever(a):
    while a[0] < 1.0:
        a[1] += 1.0
        cuda.nanosleep(1_000_000)

kept = {"epochs": 12}
a = cuda.to_device(np.zeros(2))
cuda.synchronize()

def launch():
    forever[1, 1](a)

def waits(call):
    print("waiting", flush=True)
    try:
        result = call()
    except KeyboardInterrupt:
        result = "interrupt"
    except Exception as error:
        result = error
    try:
        time.sleep(0.2)  # the interpreter deals with what has come
    except KeyboardInterrupt:
        pass
    return result
"""


@dataclass
class Program:
    """A program that has said that it waits now."""

    process: subprocess.Popen[str]
    said: list[str] = field(default_factory=list)  #: lines on standard error

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)

    def heard(self, pattern: str, times: int = 1) -> bool:
        return sum(re.search(pattern, line) is not None for line in self.said) >= times

    def await_line(self, line: str) -> None:
        assert self.process.stdout is not None
        for found in self.process.stdout:
            if found.strip() == line:
                return
        self._reader.join(5)
        pytest.fail(f"the program ended without saying {line!r}: " + "".join(self.said))

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def rest(self, seconds: float = 60) -> str:
        assert self.process.stdout is not None
        ended = threading.Timer(seconds, self.process.kill)
        ended.start()
        try:
            out = self.process.stdout.read()
            self.process.wait()
        finally:
            ended.cancel()
        self._reader.join(5)
        assert self.process.returncode == 0, out + "".join(self.said)
        return out


def interrupt_until_it_says(program: Program, times: int = 1) -> None:
    """What runs, so many times in all."""
    deadline = time.monotonic() + 60
    while not program.heard("Interrupt again", times):
        assert time.monotonic() < deadline, "no line that says what runs"
        time.sleep(0.5)  # in the wait, or soon; outside of it the program takes no notice
        program.interrupt()
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: program.heard("Interrupt again", times), 3, "the line that says what runs")


def interrupt_until_it_ends(program: Program, *shares: Share) -> None:
    """Once, and when the line is there again: then the workers are gone with exit status 10."""
    interrupt_until_it_says(program)
    workers = [one.worker.process for one in shares]
    assert all(worker is not None and worker.poll() is None for worker in workers)
    time.sleep(0.3)  # a key press that is passed on twice is one
    program.interrupt()
    assert [worker.wait(10) for worker in workers if worker] == [10] * len(shares)


def await_running(share: Share) -> None:
    """The worker looks every second."""
    wait_until(lambda: share.worker.stats()["work"] == "running", 20, "the kernel")


def start(share: Share, program: str, **environment: str) -> Program:
    made = Program(share.start(program, ENDLESS, NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS="0", **environment))
    made.await_line("waiting")
    return made


ENDED = """
assert "DEVICE_UNAVAILABLE" in str(result) or result in ("interrupt", 46), repr(result)
assert kept == {"epochs": 12}
assert b"session was ended" in runtime.gpupool_last_message(), runtime.gpupool_last_message()
print("ok")
"""

#: What waits, as a program sees it.
CALLS = {
    "context": "cuda.synchronize",
    "stream": "cuda.default_stream().synchronize",
    "copy": "a.copy_to_host",
    "event": "event.synchronize",
    "drain": "lambda: runtime.gpupool_drain(600_000)",
    "host page": "lambda: managed[0]",
    "window": "post_for_ever",
    "allocation": "lambda: driver_free()",
}


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("call", CALLS)
def test_a_second_interrupt_ends_the_session_and_the_call(share: Share, transport: str, call: str) -> None:
    program = start(
        share,
        f"""
event = cuda.event()
managed = cuda.managed_array(4)
managed[:] = 1.0
other = cuda.to_device(np.zeros(1 << 20))
def post_for_ever():  # until no more posts may be under way; by ctypes, as numba takes its time for each
    address, size = ctypes.c_uint64(other.__cuda_array_interface__["data"][0]), ctypes.c_size_t(8)
    while True:
        try:
            if (code := runtime.cuMemsetD8Async(address, 0, size, None)) != 0:
                return code
        except KeyboardInterrupt:
            pass
def driver_free():
    from cuda.bindings import driver as cu
    return int(cu.cuMemFree(other.__cuda_array_interface__["data"][0])[0]) or cuda.synchronize()
cuda.synchronize()
launch()
event.record()
result = waits({CALLS[call]})
{ENDED if call != "host page" else 'print("ok")'}
""",
        GPUPOOL_TRANSPORT=transport,
    )
    interrupt_until_it_ends(program, share)
    assert program.rest().strip().endswith("ok")


def test_all_threads_return_when_the_session_ends(share: Share) -> None:
    program = start(
        share,
        f"""
results = []
def wait_too():
    try:
        cuda.synchronize()
        results.append(None)
    except Exception as error:
        results.append(str(error))
launch()
threads = [threading.Thread(target=wait_too) for _ in range(4)]
for thread in threads: thread.start()
result = waits(cuda.synchronize)
for thread in threads: thread.join(10)
assert len(results) == 4 and all(results), results
assert cuda.current_context() is not None
try:
    cuda.synchronize()
except Exception as error:
    pass
{ENDED}
""",
    )
    interrupt_until_it_ends(program, share)
    assert program.rest().strip().endswith("ok")


def test_a_worker_that_stands_still_is_said_and_left(share: Share) -> None:
    program = start(share, "launch()\nresult = waits(cuda.synchronize)\n" + ENDED)
    assert share.worker.process is not None
    share.worker.process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(0.5)
        program.interrupt()
        wait_until(lambda: program.heard("does not answer"), 10, "the line")
        program.interrupt()
        assert program.rest(30).strip().endswith("ok")
    finally:
        share.worker.process.send_signal(signal.SIGCONT)


def test_any_thread_may_ask_and_end_while_the_main_thread_sleeps(share: Share) -> None:
    program = start(
        share,
        """
def ask():
    text = ctypes.create_string_buffer(4096)
    assert runtime.gpupool_inquire(text, len(text)) < len(text)
    return json.loads(text.value)
results = []
def wait():
    try:
        cuda.synchronize()
    except Exception as error:
        results.append(str(error))
launch()
waiting = threading.Thread(target=wait)
waiting.start()
time.sleep(0.5)
said = ask()
assert said["answers"] is True and said["failure"] == 0, said
assert runtime.gpupool_end_session() == 0
waiting.join(10)
assert results and not waiting.is_alive(), results
assert ask()["answers"] is False
print("waiting", flush=True)
print("ok")
""",
    )
    assert program.rest().strip().endswith("ok")
    assert share.worker.process is not None
    assert share.worker.process.wait(10) == 10


def test_a_program_without_a_handler_dies_as_ever(share: Share) -> None:
    program = start(
        share,
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\nlaunch()\nwaits(cuda.synchronize)\n",
    )
    time.sleep(0.5)
    program.interrupt()
    assert program.process.wait(10) == -signal.SIGINT


def test_an_interrupt_ends_the_workers_of_all_nodes(tmp_path: Path) -> None:
    with several_shares(tmp_path) as share:
        program = start(share, "launch()\nresult = waits(cuda.synchronize)\n" + ENDED)
        interrupt_until_it_ends(program, *(replace(share, worker=worker) for worker in share.workers))
        assert program.rest().strip().endswith("ok")


def test_over_tls_too(tmp_path: Path) -> None:
    for encrypted in share_of_a_worker(tmp_path, options=("--tls", "on")):
        waits = "launch()\nresult = waits(cuda.synchronize)\n"
        program = start(encrypted, waits + ENDED, GPUPOOL_TRANSPORT="tcp", GPUPOOL_DEBUG="1")
        interrupt_until_it_ends(program, encrypted)
        assert program.rest().strip().endswith("ok")
        assert "connected by tls" in encrypted.logged()


def test_behind_a_graph(share: Share) -> None:
    program = start(
        share,
        """
from cuda.bindings import driver as cu
b, stream = cuda.to_device(np.ones(2)), cuda.stream()
forever[1, 1](b)  # ends at once: what is captured has been loaded
cuda.synchronize()
handle = int(stream.handle)
assert cu.cuStreamBeginCapture(handle, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)[0] == 0
forever[1, 1, stream](a)
graph = cu.cuStreamEndCapture(handle)[1]
error, executable = cu.cuGraphInstantiate(graph, 0)
assert error == 0 and cu.cuGraphLaunch(executable, handle)[0] == 0
result = waits(stream.synchronize)
"""
        + ENDED,
    )
    await_running(share)
    interrupt_until_it_ends(program, share)
    assert program.heard('kernel "forever"')
    assert program.rest().strip().endswith("ok")


#: The kernel ends when the program is told so, by another thread.
ENDS_BY_ITSELF = """
import signal
from cuda.bindings import driver as cu
WAIT = b'''.version 7.0
.target sm_75
.address_size 64
.visible .entry wait_for(.param .u64 flag)
{ .reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %rd<2>; ld.param.u64 %rd1, [flag];
AGAIN: nanosleep.u32 1000000; ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra AGAIN; ret; }'''
def check(answer):
    assert answer[0] == 0, answer
    return answer[1] if len(answer) == 2 else answer[1:]
function = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(WAIT)), b"wait_for"))
stream, beside, context = check(cu.cuStreamCreate(1)), check(cu.cuStreamCreate(1)), check(cu.cuCtxGetCurrent())
flag = int(check(cu.cuMemAlloc(4)))
libc = ctypes.CDLL(None)
def handler():
    action = (ctypes.c_void_p * 32)()
    assert libc.sigaction(signal.SIGINT, None, ctypes.byref(action)) == 0
    return action[0], action[17]
got = []
signal.signal(signal.SIGINT, lambda *_: got.append(1))
before = handler()
def end_when_told():
    sys.stdin.readline()
    check(cu.cuCtxSetCurrent(context))
    check(cu.cuMemsetD32Async(flag, 1, 1, beside))
    check(cu.cuStreamSynchronize(beside))
for turn in range(2):
    check(cu.cuMemsetD32(flag, 0, 1))
    check(cu.cuCtxSynchronize())
    check(cu.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, ((flag,), (ctypes.c_uint64,)), 0))
    ending = threading.Thread(target=end_when_told)
    ending.start()
    assert waits(lambda: cu.cuStreamSynchronize(stream)[0]) == 0
    assert handler() == before
    assert got, "the program's own handler was not called"
    got.clear()
    ending.join()
    print("went on", flush=True)
print("ok")
"""


def test_a_wait_that_ends_by_itself_after_one_interrupt_has_changed_nothing(share: Share) -> None:
    """And the next wait's first interrupt is a first one again."""
    program = start(share, ENDS_BY_ITSELF)
    assert program.process.stdin is not None
    for turn in range(2):
        if turn:
            program.await_line("waiting")
        interrupt_until_it_says(program, turn + 1)
        program.process.stdin.write("end\n")
        program.process.stdin.flush()
        program.await_line("went on")
    assert program.rest().strip().endswith("ok")
    assert share.worker.process is not None
    assert share.worker.process.poll() is None
    assert share.worker.stats()["state"] == "attached"
