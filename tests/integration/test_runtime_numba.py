"""The interposition runtime: unmodified programs on a share, through client, wire, worker and software GPU.

The worker is started by hand and the session file is written here, so nothing but the runtime is between the program and
the driver. Every program runs in a process of its own and prints `ok` when its own checks hold.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from gpupool.bench.worker_process import WorkerProcess, boottime_ns, probe, software_driver
from gpupool.client.errors import RuntimeMissing
from gpupool.client.native import native_directory, native_file

from tests.support.frozen import frozen

MIB = 1 << 20
SHARE_MIB = 256
SOFTWARE = {"SOFTGPU_MEMORY_MIB": "1024"}

PRELUDE = """
import ctypes, json, os, sys, time
import numpy as np
from cuda.bindings import driver as cu

runtime = ctypes.CDLL("libcuda.so.1")
runtime.gpupool_last_message.restype = ctypes.c_char_p

def check(answer):
    assert answer[0] == 0, answer
    return answer[1] if len(answer) == 2 else answer[1:]

def counters():
    text = ctypes.create_string_buffer(1 << 16)
    runtime.gpupool_counters(text, len(text), 0)
    return json.loads(text.value)

def message():
    return runtime.gpupool_last_message().decode()

def session_file(**changes):
    path = os.environ["GPUPOOL_SESSION_FILE"]
    fields = dict(line.split(" ", 1) for line in open(path).read().splitlines())
    fields.update({key: str(value) for key, value in changes.items()})
    fields["generation"] = str(int(fields["generation"]) + 1)
    with open(path + ".new", "w") as out:
        out.write("".join(f"{key} {value}\\n" for key, value in fields.items()))
    os.replace(path + ".new", path)

def start():
    check(cu.cuInit(0))
    context = check(cu.cuDevicePrimaryCtxRetain(0))
    check(cu.cuCtxSetCurrent(context))

def upload(array):
    pointer = check(cu.cuMemAlloc(array.nbytes))
    check(cu.cuMemcpyHtoD(pointer, array.ctypes.data, array.nbytes))
    return pointer

def download(pointer, like):
    out = np.empty_like(like)
    check(cu.cuMemcpyDtoH(out.ctypes.data, pointer, out.nbytes))
    return out
"""


@dataclass
class Share:
    """A worker with one share of the software GPU, and the session file of the process that holds it."""

    worker: WorkerProcess
    file: Path
    log: Path
    fields: dict[str, str] = field(default_factory=dict)

    def write(self, **changes: str) -> None:
        self.fields |= changes
        text = "".join(f"{key} {value}\n" for key, value in self.fields.items())
        temporary = self.file.with_suffix(".new")
        temporary.write_text(text)
        temporary.chmod(0o600)
        temporary.replace(self.file)

    def start(self, program: str, prelude: str = PRELUDE, **environment: str) -> subprocess.Popen[str]:
        path = self.file.with_name("program.py")
        path.write_text(prelude + textwrap.dedent(program))
        return subprocess.Popen(
            [sys.executable, "-W", "ignore", str(path)],
            env=dict(
                os.environ,
                GPUPOOL_SESSION_FILE=str(self.file),
                LD_LIBRARY_PATH=str(native_directory() / "client"),
                LD_PRELOAD=str(native_directory() / "compat" / "libnvJitLink.so.13"),
                **environment,
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, program: str, prelude: str = PRELUDE, timeout: float = 120, **environment: str) -> str:
        process = self.start(program, prelude, **environment)
        out, errors = process.communicate(timeout=timeout)
        assert process.returncode == 0, out + errors
        assert out.splitlines()[-1] == "ok", out + errors
        return out

    def logged(self) -> str:
        return self.log.read_text() if self.log.exists() else ""


@pytest.fixture
def share(tmp_path: Path) -> Iterator[Share]:
    yield from share_of_a_worker(tmp_path)


def share_of_a_worker(tmp_path: Path) -> Iterator[Share]:
    """What the fixture does, for other files' fixtures."""
    try:
        native_file("client", "libcuda.so.1")
        driver = software_driver()
    except RuntimeMissing as missing:
        pytest.fail(str(missing))
    devices = probe(driver, SOFTWARE)[1]
    folder = tmp_path / "w"
    folder.mkdir()
    with WorkerProcess(folder, driver, [(devices[0], 500, SHARE_MIB)], environment=SOFTWARE) as worker:
        made = Share(worker, tmp_path / "session", tmp_path / "client.log")
        made.write(
            version="1",
            state="attached",
            session=worker.session,
            generation="1",
            epoch=str(worker.epoch),
            address=worker.address,
            token=worker.token,
            message="",
            software="1",
            log=str(made.log),
        )
        yield made


NUMBA = """
import numpy as np
from numba import cuda

@cuda.jit
def add(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]
"""


def test_numba_adds_reduces_and_times(share: Share) -> None:
    share.run(
        """
        x = np.arange(100_000, dtype=np.float32)
        out = np.zeros_like(x)
        add[(x.size + 255) // 256, 256](x, 2 * x, out)
        np.testing.assert_allclose(out, 3 * x)

        total = cuda.reduce(lambda a, b: a + b)
        assert total(np.arange(1000, dtype=np.float64)) == 499500

        stream, first, last = cuda.stream(), cuda.event(), cuda.event()
        on_device = cuda.to_device(x, stream=stream)
        first.record(stream)
        add[400, 256, stream](on_device, on_device, on_device)
        last.record(stream)
        last.synchronize()
        assert first.elapsed_time(last) >= 0
        np.testing.assert_allclose(on_device.copy_to_host(stream=stream), 2 * x)
        print("ok")
        """,
        NUMBA,
    )


def test_numba_slices_of_a_matrix_come_back(share: Share) -> None:
    share.run(
        """
        matrix = np.arange(64 * 48, dtype=np.int32).reshape(64, 48)
        there = cuda.to_device(matrix)
        assert there[3, 5] == matrix[3, 5]
        np.testing.assert_array_equal(there[:, 2].copy_to_host(), matrix[:, 2])
        there[10:20] = 7
        assert (there.copy_to_host()[10:20] == 7).all()
        print("ok")
        """,
        NUMBA,
    )


def test_what_a_kernel_prints_appears_in_the_program_s_output(share: Share) -> None:
    out = share.run(
        """
        @cuda.jit
        def speak():
            print("thread", cuda.threadIdx.x)
        speak[1, 3]()
        cuda.synchronize()
        print("ok")
        """,
        NUMBA,
    )
    assert sorted(out.splitlines()) == ["ok", "thread 0", "thread 1", "thread 2"]


def test_a_kernel_that_is_linked_and_allocates_on_the_device_heap(share: Share) -> None:
    # The linker's output is loaded again, so its length must be told from its bytes; and what malloc
    # returns lies outside the arena that the client places its memory in.
    out = share.run(
        """
        from numba import cuda

        @cuda.jit
        def kernel(out):
            turned = out[::-1].copy()
            for n in range(len(out)):
                out[n] = 10 * turned[n]

        numbers = cuda.to_device(np.arange(5.0))
        kernel[1, 1](numbers)
        assert numbers.copy_to_host().tolist() == [40, 30, 20, 10, 0]
        print("ok")
        """,
        NUMBA_CUDA_ENABLE_NRT="1",
    )
    assert out.endswith("ok\n")


def test_bytes_come_back_as_they_went_for_every_way_of_copying(share: Share) -> None:
    share.run(
        f"""
        start()
        rng = np.random.default_rng(1)
        for size in (1, 100, 16384, 16385, 1 << 20, 50_000_001):
            data = rng.integers(0, 256, size, dtype=np.uint8)
            pointer = upload(data)
            assert (download(pointer, data) == data).all(), size
            copy = check(cu.cuMemAlloc(size))
            check(cu.cuMemcpyDtoD(copy, pointer, size))
            assert (download(copy, data) == data).all(), size
            check(cu.cuMemFree(pointer)); check(cu.cuMemFree(copy))
        rows = rng.integers(0, 256, (33, 100), dtype=np.uint8)
        pointer, pitch = check(cu.cuMemAllocPitch(70, 33, 4))
        c = cu.CUDA_MEMCPY2D()
        c.srcMemoryType, c.srcHost, c.srcPitch = cu.CUmemorytype.CU_MEMORYTYPE_HOST, rows.ctypes.data, 100
        c.dstMemoryType, c.dstDevice, c.dstPitch = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE, pointer, pitch
        c.WidthInBytes, c.Height = 70, 33
        check(cu.cuMemcpy2D(c))
        back = np.zeros((33, 80), dtype=np.uint8)
        c = cu.CUDA_MEMCPY2D()
        c.srcMemoryType, c.srcDevice, c.srcPitch = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE, pointer, pitch
        c.dstMemoryType, c.dstHost, c.dstPitch = cu.CUmemorytype.CU_MEMORYTYPE_HOST, back.ctypes.data, 80
        c.WidthInBytes, c.Height = 70, 33
        check(cu.cuMemcpy2D(c))
        assert (back[:, :70] == rows[:, :70]).all() and (back[:, 70:] == 0).all()
        free, total = check(cu.cuMemGetInfo())
        assert total == {SHARE_MIB * MIB}
        print("ok")
        """
    )


def test_memory_over_the_share_is_refused_without_asking_the_worker(share: Share) -> None:
    share.run(
        f"""
        start()
        check(cu.cuMemAlloc(1))
        before = counters()
        assert cu.cuMemAlloc({(SHARE_MIB + 1) * MIB})[0] == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY
        held = [check(cu.cuMemAlloc({16 * MIB})) for _ in range({SHARE_MIB // 16 - 1})]
        assert cu.cuMemAlloc({16 * MIB})[0] == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY
        assert counters()["asks"] == before["asks"]
        for pointer in held: check(cu.cuMemFree(pointer))
        check(cu.cuMemAlloc({(SHARE_MIB - 4) * MIB}))
        check(cu.cuCtxSynchronize())
        assert counters()["worker"]["memory_used"][0] <= {SHARE_MIB * MIB}
        print("ok")
        """
    )


def test_memory_goes_with_its_context_and_with_no_other(share: Share) -> None:
    share.run(
        f"""
        start()
        first = check(cu.cuCtxGetCurrent())
        data = np.arange(1000)
        here = upload(data)
        free = check(cu.cuMemGetInfo())[0]
        for _ in range(8):
            context = check(cu.cuCtxCreate(None, 0, 0))
            big = check(cu.cuMemAlloc({SHARE_MIB // 4 * MIB}))
            check(cu.cuMemsetD8(big, 1, 1000))
            check(cu.cuCtxDestroy(context))
            check(cu.cuCtxSetCurrent(first))
        check(cu.cuCtxSynchronize())
        assert check(cu.cuMemGetInfo())[0] == free
        assert (download(here, data) == data).all()

        other = check(cu.cuCtxCreate(None, 0, 0))
        there = upload(data)
        check(cu.cuDevicePrimaryCtxReset(0))
        assert (download(there, data) == data).all()
        assert cu.cuMemFree(here)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        attribute = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_CONTEXT
        assert int(check(cu.cuPointerGetAttribute(attribute, there))) == int(other)
        check(cu.cuMemFree(there))
        check(cu.cuCtxSynchronize())
        print("ok")
        """
    )


def test_creating_things_and_launching_needs_no_round_trip(share: Share) -> None:
    share.run(
        """
        x = cuda.to_device(np.ones(1000, dtype=np.float32))
        add[4, 256](x, x, x)
        cuda.synchronize()
        import ctypes, json
        runtime = ctypes.CDLL("libcuda.so.1")
        def asks():
            text = ctypes.create_string_buffer(1 << 16)
            runtime.gpupool_counters(text, len(text), 0)
            return json.loads(text.value)["asks"]
        before = asks()
        stream, event = cuda.stream(), cuda.event()
        for _ in range(100):
            y = cuda.device_array(1000, np.float32)
            add[4, 256, stream](x, x, y)
            event.record(stream)
            stream.wait(event) if hasattr(stream, "wait") else event.wait(stream)
        assert asks() == before
        stream.synchronize()
        assert asks() == before + 1
        print("ok")
        """,
        NUMBA,
    )


def test_a_lone_post_reaches_the_worker_without_a_further_call(share: Share) -> None:
    process = share.start(
        """
        start()
        pointer = check(cu.cuMemAlloc(16))
        for _ in range(100):
            check(cu.cuCtxSynchronize())
            time.sleep(0.01)  # so that the thread that sends posts sleeps
            check(cu.cuMemsetD8(pointer, 0, 16))
        check(cu.cuCtxSynchronize())
        print("ready", flush=True)
        input()
        check(cu.cuMemsetD8(pointer, 1, 16))
        print("posted", flush=True)
        input()
        print("ok")
        """
    )
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == "ready\n"
    before = int(share.worker.stats()["posts"])
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "posted\n"
    deadline = time.monotonic() + 1
    while int(share.worker.stats()["posts"]) == before:
        assert time.monotonic() < deadline, "the post was not sent"
        time.sleep(0.02)
    out, errors = process.communicate("\n", timeout=60)
    assert out == "ok\n", out + errors


def test_a_launch_that_cuda_refuses_at_once_is_refused_at_once(share: Share) -> None:
    share.run(
        """
        start()
        ptx = b'.version 7.0\\n.target sm_70\\n.address_size 64\\n.visible .entry nothing() { ret; }\\n'
        function = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(ptx)), b"nothing"))
        def launch(grid, block, shared=0):
            return cu.cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared, 0, 0, 0)[0]
        assert launch(1, 1) == 0
        assert launch(0, 1) == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        assert launch(1, 4096) == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        assert launch(1, 1, 1 << 20) == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        assert cu.cuModuleLoadData(b".version 7.0 nonsense")[0] != 0
        check(cu.cuCtxSynchronize())
        print("ok")
        """
    )


def test_an_error_of_a_post_comes_back_at_the_next_ask_with_its_name(share: Share) -> None:
    share.run(
        """
        start()
        check(cu.cuMemAlloc(1))
        check(cu.cuMemcpyDtoD(0x1000, 0x2000, 16))   # accepted: nobody has looked yet
        assert cu.cuCtxSynchronize()[0] != 0
        assert "cuMemcpyDtoD_v2" in message()
        check(cu.cuCtxSynchronize())
        print("ok")
        """
    )


def test_an_error_of_a_post_is_told_once_whichever_answer_brought_it(share: Share) -> None:
    process = share.start(
        """
        start()
        check(cu.cuMemAlloc(1))
        check(cu.cuCtxSynchronize())
        def fail():
            check(cu.cuMemsetD8(0x1000, 0, 16))
        def told():
            assert cu.cuCtxSynchronize()[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
            assert "cuMemsetD8" in message()
            check(cu.cuCtxSynchronize())

        fail(); counters(); told()
        fail(); runtime.gpupool_detach(); assert runtime.gpupool_attach() == 0; told()
        fail(); assert runtime.gpupool_drain(5000) == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        check(cu.cuCtxSynchronize())

        fail(); check(cu.cuMemcpyDtoD(0x1000, 0x2000, 16)); counters(); told()  # the first of two

        print("freeze", flush=True); input()
        fail(); assert counters()["worker"] is None  # its answer comes late
        print("thaw", flush=True); input()
        told()

        fail(); counters()
        print("revoke", flush=True); input()
        assert cu.cuCtxSynchronize()[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        assert cu.cuCtxSynchronize()[0] == cu.CUresult.CUDA_ERROR_DEVICE_UNAVAILABLE
        assert "idle" in message()
        print("ok")
        """
    )
    assert process.stdout is not None and process.stdin is not None
    assert share.worker.process is not None
    answer = process.stdout.readline()
    if answer == "freeze\n":
        with frozen(share.worker.process.pid):
            process.stdin.write("\n")
            process.stdin.flush()
            answer = process.stdout.readline()
    if answer == "thaw\n":
        process.stdin.write("\n")
        process.stdin.flush()
        answer = process.stdout.readline()
    if answer == "revoke\n":
        assert share.worker.ask(f"revoke epoch={share.worker.epoch}").startswith("ok")
        share.write(state="parked", generation="2", message="idle for 10 minutes")
        process.stdin.write("\n")
        process.stdin.flush()
    out, errors = process.communicate(timeout=60)
    assert out == "ok\n", out + errors


def test_what_reports_an_earlier_error_works_at_the_next_try(share: Share) -> None:
    # The call itself succeeded at the worker, so what it made has to be undone or kept.
    share.run(
        """
        start()
        ptx = b'.version 7.0\\n.target sm_70\\n.address_size 64\\n.visible .entry nothing() { ret; }\\n'
        stream = check(cu.cuStreamCreate(1))
        check(cu.cuMemAlloc(1))
        check(cu.cuCtxSynchronize())
        def twice(call):
            check(cu.cuMemsetD8(0x1000, 0, 16))
            assert call()[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE, call
            assert "cuMemsetD8" in message()
            answer = check(call())
            check(cu.cuCtxSynchronize())
            return answer
        module = twice(lambda: cu.cuModuleLoadData(ptx))
        check(cu.cuModuleGetFunction(module, b"nothing"))
        library = twice(lambda: cu.cuLibraryLoadData(ptx, [], [], 0, [], [], 0))
        check(cu.cuLibraryGetKernel(library, b"nothing"))
        graph = twice(lambda: cu.cuGraphCreate(0))
        twice(lambda: cu.cuGraphInstantiate(graph, 0))
        twice(lambda: cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED) + (0,))
        check(cu.cuStreamEndCapture(stream))
        check(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        check(cu.cuMemsetD8(0x1000, 0, 16))
        assert cu.cuStreamEndCapture(stream)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        check(cu.cuStreamSynchronize(stream))
        assert check(cu.cuStreamIsCapturing(stream)) == cu.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
        link = check(cu.cuLinkCreate(0, [], []))
        kind = cu.CUjitInputType.CU_JIT_INPUT_PTX
        check(cu.cuLinkAddData(link, kind, ptx, len(ptx), b"it", 0, [], []))
        image, size = twice(lambda: cu.cuLinkComplete(link))
        check(cu.cuModuleLoadData(image))
        print("ok")
        """
    )


def test_an_unsupported_call_says_so_once_and_harms_nothing(share: Share) -> None:
    share.run(
        """
        start()
        for _ in range(3):
            refused = cu.cuGraphicsUnregisterResource(cu.CUgraphicsResource(0))
            assert refused[0] == cu.CUresult.CUDA_ERROR_NOT_SUPPORTED
        assert (download(upload(np.arange(10)), np.arange(10)) == np.arange(10)).all()
        print("ok")
        """
    )
    assert share.logged().count("cuGraphicsUnregisterResource") == 1


def test_without_a_share_a_call_is_refused_and_after_attaching_it_works(share: Share) -> None:
    share.write(state="none", message="Press Attach in the sidebar.")
    share.run(
        """
        check(cu.cuInit(0))
        assert check(cu.cuDeviceGetCount()) == 0
        assert runtime.gpupool_attach() == cu.CUresult.CUDA_ERROR_DEVICE_UNAVAILABLE
        assert "Press Attach" in message()
        session_file(state="attached")
        start()
        data = np.arange(1000)
        assert (download(upload(data), data) == data).all()
        assert counters()["state"] == "attached"
        print("ok")
        """
    )
    assert share.logged().count("Press Attach") == 1


def test_what_is_on_the_device_outlives_the_lease(share: Share) -> None:
    process = share.start(
        """
        start()
        data = np.arange(100_000)
        pointer = upload(data)
        print("up", flush=True)
        input()
        assert cu.cuMemcpyDtoH(data.ctypes.data, pointer, data.nbytes)[0] == cu.CUresult.CUDA_ERROR_DEVICE_UNAVAILABLE
        assert cu.cuMemAlloc(1 << 20)[0] != 0
        print("down", flush=True)
        input()
        assert (download(pointer, data) == np.arange(100_000)).all()
        print("ok")
        """
    )
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == "up\n"
    epoch = share.worker.epoch
    assert share.worker.ask(f"revoke epoch={epoch}").startswith("ok")
    share.write(state="parked", generation="2", message="idle for 10 minutes")
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "down\n"
    deadline = boottime_ns() + 600 * 10**9
    answer = share.worker.ask(f"lease epoch={epoch + 1} deadline_ns={deadline} share=0:500:{SHARE_MIB}")
    assert answer.startswith("ok"), answer
    share.write(state="attached", generation="3", epoch=str(epoch + 1))
    out, errors = process.communicate("\n", timeout=60)
    assert out == "ok\n", out + errors
    assert "idle for 10 minutes" in share.logged()


def test_a_dead_worker_is_an_error_and_not_a_hang(share: Share) -> None:
    process = share.start(
        """
        start()
        pointer = upload(np.arange(10))
        print("up", flush=True)
        input()
        began = time.monotonic()
        for _ in range(3):
            assert cu.cuCtxSynchronize()[0] == cu.CUresult.CUDA_ERROR_DEVICE_UNAVAILABLE
            assert cu.cuMemcpyHtoD(pointer, np.arange(10).ctypes.data, 80)[0] == cu.CUresult.CUDA_ERROR_DEVICE_UNAVAILABLE
        assert time.monotonic() - began < 2
        assert "lost" in message() and counters()["state"] == "lost"
        print("ok")
        """
    )
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == "up\n"
    assert share.worker.process is not None
    share.worker.process.kill()
    share.worker.process.wait()
    out, errors = process.communicate("\n", timeout=60)
    assert out == "ok\n", out + errors


def test_counters_and_drain_return_in_time_when_the_worker_does_not(share: Share) -> None:
    process = share.start(
        """
        start()
        data = np.arange(1000)
        pointer = upload(data)
        check(cu.cuCtxSynchronize())
        print("up", flush=True)
        input()
        began = time.monotonic()
        assert counters()["worker"] is None
        assert time.monotonic() - began < 2
        began = time.monotonic()
        assert runtime.gpupool_drain(300) == cu.CUresult.CUDA_ERROR_NOT_READY
        assert 0.25 < time.monotonic() - began < 1
        print("waited", flush=True)
        input()
        assert (download(pointer, data) == data).all()  # the late answers are not taken for this one
        assert counters()["worker"]["memory_used"][0] > 0
        print("ok")
        """
    )
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == "up\n"
    assert share.worker.process is not None
    with frozen(share.worker.process.pid):
        process.stdin.write("\n")
        process.stdin.flush()
        answer = process.stdout.readline()
    out, errors = process.communicate("\n" if answer else None, timeout=60)
    assert answer == "waited\n", errors
    assert out == "ok\n", out + errors


def test_a_worker_that_accepts_and_stays_silent_delays_a_call_and_nothing_else(share: Share) -> None:
    attach = """
        import threading
        check(cu.cuInit(0))
        {before}
        began = time.monotonic()
        answers = []
        def attach():
            answers.append(runtime.gpupool_attach())
            answers.append(message())
        thread = threading.Thread(target=attach)
        thread.start()
        time.sleep(0.5)
        for call in (counters, runtime.gpupool_detach):
            start_of_call = time.monotonic()
            call()
            assert time.monotonic() - start_of_call < 2, call
        thread.join()
        assert time.monotonic() - began < 15
        assert answers[0] == cu.CUresult.CUDA_ERROR_DEVICE_UNAVAILABLE
        assert "does not answer" in answers[1]
        print("ok")
        """
    lease = share.start(
        attach.format(
            before='start(); check(cu.cuMemAlloc(1)); print("up", flush=True); input()'
            "; runtime.gpupool_detach()"
        )
    )
    assert lease.stdout is not None and lease.stdin is not None and share.worker.process is not None
    processes = [lease]
    try:
        assert lease.stdout.readline() == "up\n"
        with frozen(share.worker.process.pid), socket.create_server(("127.0.0.1", 0)) as silent:
            lease.stdin.write("\n")
            lease.stdin.flush()
            share.write(address=f"127.0.0.1:{silent.getsockname()[1]}")
            processes.append(share.start(attach.format(before="pass")))
            for process in processes:
                out, errors = process.communicate(timeout=30)
                assert out == "ok\n", out + errors
    finally:
        for process in processes:
            process.kill()


def test_a_forked_child_is_not_initialised_and_leaves_its_parent_alone(share: Share) -> None:
    share.run(
        """
        start()
        data = np.arange(1000)
        pointer = upload(data)
        child = os.fork()
        if child == 0:
            answers = [cu.cuCtxSynchronize()[0], cu.cuMemAlloc(8)[0], cu.cuInit(0)[0]]
            os._exit(0 if all(a == cu.CUresult.CUDA_ERROR_NOT_INITIALIZED for a in answers) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert (download(pointer, data) == data).all()
        print("ok")
        """
    )


def test_a_second_process_is_told_that_the_session_serves_one(share: Share) -> None:
    share.run(
        """
        import subprocess

        start()
        data = np.arange(1000)
        pointer = upload(data)
        second = "from cuda.bindings import driver as cu; cu.cuInit(0); print(cu.cuDeviceGetCount())"
        child = subprocess.run([sys.executable, "-c", second], capture_output=True, text=True, timeout=60)
        assert child.stdout.endswith(" 0)\\n"), child  # it has no device
        assert (download(pointer, data) == data).all()
        print("ok")
        """
    )
    assert "a session serves one process" in share.log.read_text()


def test_threads_share_the_session(share: Share) -> None:
    share.run(
        """
        import threading
        start()
        context = check(cu.cuCtxGetCurrent())
        failures = []
        def work(seed):
            try:
                check(cu.cuCtxSetCurrent(context))
                rng = np.random.default_rng(seed)
                for _ in range(50):
                    data = rng.integers(0, 256, int(rng.integers(1, 200_000)), dtype=np.uint8)
                    pointer = upload(data)
                    assert (download(pointer, data) == data).all()
                    check(cu.cuMemFree(pointer))
            except BaseException as failure:
                failures.append(failure)
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert not failures, failures
        print("ok")
        """
    )


def test_threads_that_create_and_destroy_do_not_disturb_each_other(share: Share) -> None:
    share.run(
        """
        import threading
        start()
        context = check(cu.cuCtxGetCurrent())
        errors = []
        def work():
            cu.cuCtxSetCurrent(context)
            for n in range(20_000):
                cu.cuEventDestroy(check(cu.cuEventCreate(0)))
                if n % 200 == 0:
                    errors.append(cu.cuCtxSynchronize()[0])
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert set(errors) == {cu.CUresult.CUDA_SUCCESS}, (set(errors), message())
        check(cu.cuCtxSynchronize())
        print("ok")
        """
    )


def test_counters_name_the_calls_that_waited(share: Share) -> None:
    out = share.run(
        """
        start()
        data = np.arange(100_000)
        pointer = upload(data)
        download(pointer, data)
        for n in range(3):
            download(pointer, data[:1])
        check(cu.cuCtxSynchronize())
        text = json.dumps(counters())
        print(text)
        print("ok")
        """
    )
    counters = json.loads(out.splitlines()[-2])
    assert counters["asks_by_name"]["cuMemcpyDtoH_v2"][0] == 4
    assert counters["asks_by_name"]["cuCtxSynchronize"][0] == 1
    assert counters["copies_to_host"] == [3, 0, 1, 0]
    assert (counters["bytes_to_device"], counters["bytes_from_device"]) == (800_000, 800_024)
    assert counters["calls"] == counters["posts"] + counters["asks"]
    assert counters["worker"]["memory_used"][0] > 0
    assert counters["software"] is True


def test_a_stream_that_is_known_to_be_done_is_not_asked_for(share: Share) -> None:
    """What .item() does: an asynchronous copy to the host, then a synchronization that has nothing left to wait for."""
    out = share.run(
        """
        start()
        data = np.arange(1000)
        pointer, out = upload(data), np.empty_like(data)
        stream, other = check(cu.cuStreamCreate(0)), check(cu.cuStreamCreateWithPriority(0, -1))

        def asked(before):
            after = counters()["asks_by_name"].get("cuStreamSynchronize", [0])[0]
            return after - before, after
        def copy():
            check(cu.cuMemcpyDtoHAsync(out.ctypes.data, pointer, out.nbytes, stream))

        n, total = asked(0)
        copy(); check(cu.cuStreamSynchronize(stream))
        n, total = asked(total); assert n == 0, n
        assert (out == data).all()
        check(cu.cuStreamSynchronize(other))
        n, total = asked(total); assert n == 0, n  # it was never given anything
        check(cu.cuMemsetD8Async(pointer, 0, 8, other)); copy(); check(cu.cuStreamSynchronize(other))
        n, total = asked(total); assert n == 1, n
        copy(); check(cu.cuMemsetD8Async(pointer, 0, 8, stream)); check(cu.cuStreamSynchronize(stream))
        n, total = asked(total); assert n == 1, n
        copy(); check(cu.cuStreamSynchronize(stream)); check(cu.cuStreamSynchronize(stream))
        n, total = asked(total); assert n == 0, n
        assert "cuCtxGetStreamPriorityRange" not in counters()["asks_by_name"]
        print("ok")
        """
    )
    assert out


def test_without_a_session_file_there_is_no_device() -> None:
    program = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
    environment = {key: value for key, value in os.environ.items() if key != "GPUPOOL_SESSION_FILE"}
    environment["LD_LIBRARY_PATH"] = str(native_file("client", "libcuda.so.1").parent)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=30
    )
    assert done.stdout == "100\n", done.stderr  # CUDA_ERROR_NO_DEVICE
