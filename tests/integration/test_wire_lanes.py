"""Threads, streams, completion and copies that nobody waits for: real client runtime, worker and software GPU."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks.lone_session import LoneSession, lone_session
from benchmarks.worker_process import software_driver
from tests.support.pool_node import native_worker_is_built

pytestmark = [
    pytest.mark.skipif(not native_worker_is_built(), reason="native parts not built"),
    pytest.mark.slow,
]

#: `spin` takes so many steps, `held` runs until the word at its argument is not 0, `scale` multiplies floats.
#: What has to be under way while something else is checked is held by a gate, and no time is measured: where the
#: product waits for what it must not wait for, the program never ends.
PRELUDE = r'''
import ctypes, json, sys, threading, time
import numpy as np
from cuda.bindings import driver as cu

PTX = b"""
.version 7.0
.target sm_50
.address_size 64
.visible .entry spin(.param .u64 steps)
{
  .reg .pred %p; .reg .u64 %n;
  ld.param.u64 %n, [steps];
again:
  sub.u64 %n, %n, 1;
  setp.ne.u64 %p, %n, 0;
  @%p bra again;
  ret;
}
.visible .entry held(.param .u64 flag)
{
  .reg .pred %p; .reg .u64 %a; .reg .u32 %x;
  ld.param.u64 %a, [flag];
again:
  ld.volatile.global.u32 %x, [%a];
  setp.eq.u32 %p, %x, 0;
  @%p bra again;
  ret;
}
.visible .entry scale(.param .u64 data, .param .f32 by, .param .u32 count)
{
  .reg .pred %p; .reg .u64 %a, %o; .reg .f32 %x, %y; .reg .u32 %i, %b, %t, %d, %c;
  ld.param.u64 %a, [data]; ld.param.f32 %y, [by]; ld.param.u32 %c, [count];
  mov.u32 %b, %ctaid.x; mov.u32 %d, %ntid.x; mov.u32 %t, %tid.x;
  mad.lo.u32 %i, %b, %d, %t;
  setp.ge.u32 %p, %i, %c;
  @%p bra done;
  mul.wide.u32 %o, %i, 4;
  add.u64 %a, %a, %o;
  ld.global.f32 %x, [%a];
  mul.f32 %x, %x, %y;
  st.global.f32 [%a], %x;
done:
  ret;
}
"""
runtime = ctypes.CDLL("libcuda.so.1")

def check(answer):
    assert answer[0] == 0, answer
    return answer[1] if len(answer) == 2 else answer[1:]

def asks():
    text = ctypes.create_string_buffer(1 << 16)
    runtime.gpupool_counters(text, len(text), 0)
    return json.loads(text.value)["asks"]

check(cu.cuInit(0))
context = check(cu.cuDevicePrimaryCtxRetain(0))
check(cu.cuCtxSetCurrent(context))
module = check(cu.cuModuleLoadData(PTX))
spin_function = check(cu.cuModuleGetFunction(module, b"spin"))
held_function = check(cu.cuModuleGetFunction(module, b"held"))
scale_function = check(cu.cuModuleGetFunction(module, b"scale"))

def spin(steps, stream):
    check(cu.cuLaunchKernel(spin_function, 1, 1, 1, 1, 1, 1, 0, stream, ((steps,), (ctypes.c_uint64,)), 0))

class Gate:
    def __init__(self):
        self.flag, self.opener = check(cu.cuMemAlloc(4)), new_stream()
        self.is_open = False
        check(cu.cuMemsetD32(self.flag, 0, 1))
        check(cu.cuCtxSynchronize())
    def hold(self, stream):
        arguments = ((int(self.flag),), (ctypes.c_void_p,))
        check(cu.cuLaunchKernel(held_function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0))
    def open(self):
        self.is_open = True
        check(cu.cuMemsetD32Async(self.flag, 1, 1, self.opener))
    def open_later(self, seconds=0.5):  # so that who waits has begun to
        def body():
            time.sleep(seconds)
            self.open()
        return in_thread(body)

def until_done(ask):
    start = time.perf_counter()
    while (answer := ask()[0]) == cu.CUresult.CUDA_ERROR_NOT_READY:
        assert time.perf_counter() - start < 60
    assert answer == 0, answer

def scale(pointer, by, count, stream):
    arguments = ((int(pointer), by, count), (ctypes.c_uint64, ctypes.c_float, ctypes.c_uint32))
    check(cu.cuLaunchKernel(scale_function, (count + 255) // 256, 1, 1, 256, 1, 1, 0, stream, arguments, 0))

def new_stream():
    return check(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING))

def pinned(count, dtype=np.float32):
    size = count * np.dtype(dtype).itemsize
    address = int(check(cu.cuMemHostAlloc(size, 0)))
    return np.frombuffer((ctypes.c_byte * size).from_address(address), dtype=dtype), address

def steps_for(seconds):
    stream, steps = new_stream(), 1 << 16
    while True:
        start = time.perf_counter()
        spin(steps, stream)
        check(cu.cuStreamSynchronize(stream))
        took = time.perf_counter() - start
        if took > 0.05:
            return int(steps * seconds / took)
        steps *= 2

def in_thread(work, *arguments):
    def body():
        try:
            check(cu.cuCtxSetCurrent(context))
            work(*arguments)
        except BaseException as failure:
            failures.append(failure)
    thread = threading.Thread(target=body)
    thread.start()
    return thread

failures = []
'''


@pytest.fixture
def session(tmp_path: Path) -> Iterator[LoneSession]:
    with lone_session(
        tmp_path, software_driver(), 512, environment={"GPUPOOL_SOFTGPU_MEMORY_MIB": "1024"}
    ) as made:
        yield made


@pytest.fixture(params=["shm", "tcp"])
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Has a test run over both ways to a worker on this machine."""
    chosen: str = request.param
    monkeypatch.setenv("GPUPOOL_TRANSPORT", chosen)
    return chosen


def start(session: LoneSession, body: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", PRELUDE + textwrap.dedent(body)],
        env=session.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(session: LoneSession, body: str, timeout: float = 120) -> str:
    process = start(session, body)
    out, errors = process.communicate(timeout=timeout)
    assert process.returncode == 0, out + errors + session.log()
    assert out.splitlines()[-1] == "ok", out + errors
    return out


@pytest.mark.usefixtures("transport")
def test_eight_threads_with_eight_streams_each_get_their_own_results(session: LoneSession) -> None:
    run(
        session,
        """
        COUNT = 2000
        def work(number):
            streams = [new_stream() for _ in range(8)]
            memory = [check(cu.cuMemAlloc(COUNT * 4)) for _ in streams]
            out = [pinned(COUNT)[0] if n % 2 else np.empty(COUNT, np.float32) for n in range(8)]
            for turn in range(10):
                for n, stream in enumerate(streams):
                    values = np.arange(COUNT, dtype=np.float32) + number * 100 + n
                    check(cu.cuMemcpyHtoDAsync(memory[n], values.ctypes.data, COUNT * 4, stream))
                    scale(memory[n], float(turn + 2), COUNT, stream)
                    check(cu.cuMemcpyDtoHAsync(out[n].ctypes.data, memory[n], COUNT * 4, stream))
                for n, stream in enumerate(streams):
                    check(cu.cuStreamSynchronize(stream))
                    wanted = (np.arange(COUNT, dtype=np.float32) + number * 100 + n) * (turn + 2)
                    np.testing.assert_array_equal(out[n], wanted)
        threads = [in_thread(work, number) for number in range(8)]
        for thread in threads:
            thread.join()
        assert not failures, failures
        print("ok")
        """,
    )


def test_a_thread_behind_a_long_kernel_does_not_delay_anothers_copies(session: LoneSession) -> None:
    run(
        session,
        """
        gate, busy, free = Gate(), new_stream(), new_stream()
        memory = check(cu.cuMemAlloc(4096))
        sent, got = pinned(1024)[0], pinned(1024)[0]
        waited = []
        def wait():
            check(cu.cuCtxSynchronize())
            waited.append(gate.is_open)
        gate.hold(busy)
        thread = in_thread(wait)
        time.sleep(0.1)
        for copies in range(100):
            sent[:] = copies
            check(cu.cuMemcpyHtoDAsync(memory, sent.ctypes.data, 4096, free))
            check(cu.cuMemcpyDtoHAsync(got.ctypes.data, memory, 4096, free))
            check(cu.cuStreamSynchronize(free))
            assert got[7] == copies
        assert not waited, "the kernel was not waited for"
        gate.open()
        thread.join()
        assert not failures and waited == [True], (failures, waited)
        print("ok")
        """,
    )


@pytest.mark.usefixtures("transport")
def test_asking_in_a_loop_costs_no_round_trip(session: LoneSession) -> None:
    run(
        session,
        """
        NOT_READY = cu.CUresult.CUDA_ERROR_NOT_READY
        gates = [Gate() for _ in range(5)]
        stream, event = new_stream(), check(cu.cuEventCreate(0))
        check(cu.cuStreamSynchronize(stream))
        before = asks()
        assert cu.cuEventQuery(event)[0] == 0  # never recorded
        def asked_in_a_loop(ask):
            for _ in range(100):
                assert ask()[0] == NOT_READY
            gate.open()
            until_done(ask)
        for turn in range(2):
            gate = gates.pop()
            gate.hold(stream)
            check(cu.cuEventRecord(event, stream))
            asked_in_a_loop(lambda: cu.cuEventQuery(event))
            check(cu.cuEventSynchronize(event))
            gate = gates.pop()
            gate.hold(stream)
            asked_in_a_loop(lambda: cu.cuStreamQuery(stream))
            check(cu.cuStreamSynchronize(stream))
        gate = gates.pop()
        gate.hold(0)
        asked_in_a_loop(lambda: cu.cuStreamQuery(0))
        assert asks() == before, asks() - before
        # What a wait has told is known too.
        spin(1000, stream)
        check(cu.cuEventRecord(event, stream))
        check(cu.cuCtxSynchronize())
        before = asks()
        assert cu.cuEventQuery(event)[0] == 0 and cu.cuStreamQuery(stream)[0] == 0
        check(cu.cuStreamSynchronize(stream))
        check(cu.cuEventSynchronize(event))
        assert asks() == before
        print("ok")
        """,
    )


@pytest.mark.usefixtures("transport")
def test_an_asynchronous_copy_lets_the_program_go_on_and_has_landed_when_that_is_said(
    session: LoneSession,
) -> None:
    run(
        session,
        """
        COUNT = 5 << 20  # 20 MiB: several pieces
        stream, other, event = new_stream(), new_stream(), check(cu.cuEventCreate(0))
        memory = check(cu.cuMemAlloc(COUNT * 4))
        values = np.random.default_rng(1).random(COUNT, dtype=np.float32)
        got, address = pinned(COUNT)
        def begin():
            got[:] = -1
            check(cu.cuMemcpyHtoDAsync(memory, values.ctypes.data, COUNT * 4, stream))
            check(cu.cuStreamSynchronize(stream))
            gate = Gate()
            gate.hold(stream)
            check(cu.cuMemcpyDtoHAsync(address, memory, COUNT * 4, stream))
            check(cu.cuEventRecord(event, stream))
            # What comes later in the stream does not change what was copied.
            check(cu.cuMemsetD8Async(memory, 0, COUNT * 4, stream))
            assert got[0] == -1
            gate.open_later()
        def asked():
            while (answer := cu.cuEventQuery(event)[0]) != 0:
                assert answer == cu.CUresult.CUDA_ERROR_NOT_READY
        def through_another_stream():
            check(cu.cuStreamWaitEvent(other, event, 0))
            check(cu.cuStreamSynchronize(other))
        waits = {
            "stream": lambda: cu.cuStreamSynchronize(stream),
            "event": lambda: cu.cuEventSynchronize(event),
            "context": lambda: cu.cuCtxSynchronize(),
            "query": asked,
            "other stream": through_another_stream,
        }
        for name, wait in waits.items():
            begin()
            wait()
            np.testing.assert_array_equal(got, values, err_msg=name)
        # The memory is not given back under a copy, nor read before it.
        begin()
        check(cu.cuMemcpyHtoDAsync(memory, address, COUNT * 4, other))
        assert got[0] == values[0] and got[-1] == values[-1]
        begin()
        check(cu.cuMemFreeHost(address))
        check(cu.cuCtxSynchronize())
        print("ok")
        """,
    )


def test_the_per_thread_stream_belongs_to_the_thread(session: LoneSession) -> None:
    run(
        session,
        """
        gate, per_thread = Gate(), 2
        held, times = threading.Event(), []
        def long():
            gate.hold(per_thread)
            held.set()
            check(cu.cuStreamSynchronize(per_thread))
            times.append(gate.is_open)
        def short():
            spin(1, per_thread)
            check(cu.cuStreamSynchronize(per_thread))
            times.append(gate.is_open)
        first = in_thread(long)
        assert held.wait(60)
        in_thread(short).join()
        gate.open()
        first.join()
        assert not failures and times == [False, True], (failures, times)
        print("ok")
        """,
    )


def test_neither_side_grows_while_the_device_is_slower_than_the_client(session: LoneSession) -> None:
    process = start(
        session,
        """
        stream = new_stream()
        memory = check(cu.cuMemAlloc(32 << 20))
        big, address = pinned(8 << 20)
        print("ready", flush=True)
        steps = steps_for(0.002)
        end = time.perf_counter() + 6
        turns = 0
        while time.perf_counter() < end:
            for _ in range(50):
                spin(steps, stream)
            check(cu.cuMemcpyHtoDAsync(memory, address, 32 << 20, stream))
            check(cu.cuMemcpyDtoHAsync(address, memory, 32 << 20, stream))
            for _ in range(1000):
                check(cu.cuMemsetD8Async(memory, 1, 16, stream))
            turns += 1
        check(cu.cuCtxSynchronize())
        print("turns", turns, "ok")
        """,
    )
    assert process.stdout is not None and session.worker.process is not None
    worker_pid = session.worker.process.pid
    assert process.stdout.readline() == "ready\n"
    workers = [psutil.Process(worker_pid), psutil.Process(process.pid)]
    before = [each.memory_info().rss for each in workers]
    highest = [0, 0]
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.1):
            for n, each in enumerate(workers):
                try:
                    highest[n] = max(highest[n], each.memory_info().rss - before[n])
                except psutil.NoSuchProcess:
                    return

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, errors = process.communicate(timeout=100)
    stop.set()
    watcher.join()
    assert process.returncode == 0, out + errors + session.log()
    # Windows of 64 MiB, the 32 MiB of the copies themselves on each side, and what the system's buffers hold.
    assert max(highest) < 256 << 20, [size >> 20 for size in highest]
    assert Path(f"/proc/{worker_pid}").exists(), "the worker has died"
