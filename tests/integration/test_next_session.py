"""Another GPU session in the same process, after one that was ended or lost: programs, runtime and workers are real."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.client.native import native_directory, native_file

from benchmarks.worker_process import WorkerProcess
from tests.integration.test_interrupted_waits import ENDLESS, Program, interrupt_until_it_ends
from tests.integration.test_runtime_api import SAID, build
from tests.support.runtime_share import Share, share
from tests.support.several_shares import several_shares

__all__ = ["share"]  # the fixture


@contextlib.contextmanager
def next_worker(share: Share, number: int = 2) -> Iterator[WorkerProcess]:
    """Another session's worker on the same devices, named by the session file."""
    folder = share.file.parent / f"w-next{number}"
    folder.mkdir()
    old = share.worker
    with WorkerProcess(folder, old.driver, old.devices, environment=old.environment) as worker:
        name(share, worker)
        yield worker


def name(share: Share, worker: WorkerProcess) -> None:
    share.write(
        state="attached",
        session=worker.session,
        epoch=str(worker.epoch),
        address=worker.address,
        token=worker.token,
        generation=str(int(share.fields["generation"]) + 1),
    )


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def kill(worker: WorkerProcess) -> None:
    assert worker.process is not None
    worker.process.kill()
    worker.process.wait()


#: Everything of the driver API that a program may still have of a session, and what each is good for afterwards.
OLD_THINGS = """
PTX = b\"\"\"
.version 8.0
.target sm_75
.address_size 64
.visible .global .u32 table[4];
.visible .entry one(.param .u64 word)
{
    .reg .b32 %r<2>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [word]; mov.u32 %r1, 1; st.global.u32 [%rd1], %r1;
    ret;
}
\\0\"\"\"
E = cu.CUresult

def things():
    module = check(cu.cuModuleLoadData(PTX))
    array = cu.CUDA_ARRAY_DESCRIPTOR()
    array.Width, array.Height, array.NumChannels = 16, 16, 1
    array.Format = cu.CUarray_format.CU_AD_FORMAT_FLOAT
    graph = check(cu.cuGraphCreate(0))
    check(cu.cuGraphAddEmptyNode(graph, None, 0))
    managed = check(cu.cuMemAllocManaged(8192, cu.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value))
    return dict(
        stream=check(cu.cuStreamCreate(0)), event=check(cu.cuEventCreate(0)), module=module,
        function=check(cu.cuModuleGetFunction(module, b"one")), graph=graph,
        exec=check(cu.cuGraphInstantiate(graph, 0)), array=check(cu.cuArrayCreate(array)),
        memory=check(cu.cuMemAlloc(4096)), managed=managed,
        pinned=check(cu.cuMemHostAlloc(4096, 0)), table=check(cu.cuModuleGetGlobal(module, b"table"))[0],
        pool=check(cu.cuMemAllocAsync(4096, 0)), context=check(cu.cuCtxCreate(None, 0, 0)),
    )

def launch(function, memory, stream=0):
    return cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, ((int(memory),), (ctypes.c_uint64,)), 0)[0]

def use(t):
    check(cu.cuCtxSetCurrent(check(cu.cuDevicePrimaryCtxRetain(0))))
    assert launch(t["function"], t["memory"], t["stream"]) == 0
    check(cu.cuEventRecord(t["event"], t["stream"]))
    check(cu.cuEventSynchronize(t["event"]))
    word = np.zeros(1, np.uint32)
    check(cu.cuMemcpyDtoH(word.ctypes.data, t["memory"], 4))
    assert word[0] == 1
    (ctypes.c_uint8 * 8192).from_address(int(t["managed"]))[5] = 77
    check(cu.cuGraphLaunch(t["exec"], t["stream"]))
    check(cu.cuCtxSynchronize())

def refused(t):
    word = np.zeros(1, np.uint32)
    calls = [
        lambda: cu.cuStreamSynchronize(t["stream"]), lambda: cu.cuStreamDestroy(t["stream"]),
        lambda: cu.cuEventSynchronize(t["event"]), lambda: cu.cuEventQuery(t["event"]),
        lambda: cu.cuEventDestroy(t["event"]), lambda: cu.cuEventRecord(t["event"], 0),
        lambda: cu.cuModuleGetFunction(t["module"], b"one"), lambda: cu.cuModuleUnload(t["module"]),
        lambda: (launch(t["function"], t["memory"]),), lambda: cu.cuGraphLaunch(t["exec"], 0),
        lambda: cu.cuGraphDestroy(t["graph"]), lambda: cu.cuArrayDestroy(t["array"]),
        lambda: cu.cuMemFree(t["memory"]), lambda: cu.cuMemFree(t["managed"]), lambda: cu.cuMemFreeAsync(t["pool"], 0),
        lambda: cu.cuMemcpyDtoH(word.ctypes.data, t["memory"], 4),
        lambda: (cu.cuMemsetD8(t["memory"], 1, 4)[0] or cu.cuCtxSynchronize()[0],),
        lambda: cu.cuMemcpyDtoH(word.ctypes.data, t["table"], 4), lambda: cu.cuCtxPushCurrent(t["context"]),
        lambda: cu.cuPointerGetAttribute(cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_CONTEXT, t["memory"]),
    ]
    for number, call in enumerate(calls):
        error = call()[0]
        assert error not in (0, E.CUDA_ERROR_DEVICE_UNAVAILABLE), (number, error)
"""


@pytest.mark.parametrize("how", ["ended", "killed"])
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_nothing_of_the_old_session_is_of_use_in_the_next_and_everything_works(
    share: Share, how: str, transport: str
) -> None:
    process = share.start(
        OLD_THINGS
        + f"""
start()
old = things()
use(old)
assert counters()["session_generation"] == 1
if {how == "ended"}:
    assert runtime.gpupool_end_session() == 0
    error = cu.cuCtxSynchronize()[0]
    assert error == E.CUDA_ERROR_DEVICE_UNAVAILABLE, error
print("over", flush=True)
input()
assert runtime.gpupool_attach() == 0, message()
assert counters()["session_generation"] == 2
view = (ctypes.c_uint8 * 8192).from_address(int(old["managed"]))
assert view[5] in (0, 77)
view[6] = 5
assert int(check(cu.cuCtxGetCurrent())) in (0, int(check(cu.cuDevicePrimaryCtxRetain(0))))
check(cu.cuCtxSetCurrent(check(cu.cuDevicePrimaryCtxRetain(0))))
refused(old)
new = things()
use(new)
assert int(new["memory"]) != int(old["memory"])
refused(old)
use(new)
check(cu.cuMemFreeHost(old["pinned"]))
check(cu.cuMemFree(new["memory"]))
print("ok")
""",
        GPUPOOL_TRANSPORT=transport,
    )
    program = Program(process)
    program.await_line("over")
    if how == "killed":
        kill(share.worker)
    with next_worker(share):
        go(process)
        assert program.rest().strip().endswith("ok")


def test_a_session_that_begins_in_the_middle_of_calls_of_many_threads(share: Share) -> None:
    process = share.start(
        OLD_THINGS
        + """
import threading
start()
old = things()
stop = threading.Event()
counts = {}
def hammer(number):
    check(cu.cuCtxSetCurrent(check(cu.cuDevicePrimaryCtxRetain(0))))
    errors = 0
    while not stop.is_set():
        for error in (launch(old["function"], old["memory"])), cu.cuCtxSynchronize()[0], cu.cuMemsetD8(old["memory"], 1, 4)[0]:
            errors += error != 0
        error, fresh = cu.cuMemAlloc(4096)
        if error == 0:
            cu.cuMemsetD8(fresh, number, 4096)
            cu.cuMemFree(fresh)
    counts[number] = errors
threads = [threading.Thread(target=hammer, args=(n,)) for n in range(6)]
for thread in threads: thread.start()
for session in range(4):
    time.sleep(0.3)
    assert runtime.gpupool_end_session() == 0
    print("over", flush=True)
    input()
    assert runtime.gpupool_attach() == 0, message()
stop.set()
for thread in threads: thread.join(30)
assert len(counts) == 6 and all(counts.values()), counts
assert counters()["session_generation"] == 5
cu.cuCtxSynchronize()  # tells what became of the last fills of old memory
new = things()
use(new)
print("ok")
""",
    )
    program = Program(process)
    with contextlib.ExitStack() as workers:
        for number in range(4):
            program.await_line("over")
            workers.enter_context(next_worker(share, number))
            go(process)
        assert program.rest(120).strip().endswith("ok")


def test_a_numba_program_computes_in_the_next_session_after_two_interrupts(share: Share) -> None:
    process = share.start(
        """
launch()
waits(cuda.synchronize)
assert kept == {"epochs": 12}
print("over", flush=True)
input()
def forget():  # numba frees later what it lets go of
    import gc
    context = cuda.current_context()
    context.allocations.clear()
    context.modules.clear()
    gc.collect()
    context.memory_manager.deallocations._cons.clear()

forget()
b = cuda.to_device(np.arange(1000.0))

@cuda.jit
def add(x, y):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += y
add[4, 256](b, 1.0)
assert b.copy_to_host().sum() == np.arange(1000.0).sum() + 1000
add[4, 256](b, 1.0)
assert b.copy_to_host().sum() == np.arange(1000.0).sum() + 2000
print("ok")
""",
        ENDLESS,
        NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS="0",
    )
    program = Program(process)
    program.await_line("waiting")
    interrupt_until_it_ends(program, share)
    program.await_line("over")
    with next_worker(share):
        go(process)
        assert program.rest().strip().endswith("ok")


def test_sessions_that_are_over_keep_no_socket_and_no_thread(share: Share) -> None:
    """But for the thread that closes them, which the C library keeps until the process ends."""
    process = share.start(
        """
start()
def held():
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
before = None
for turn in range(4):
    data = upload(np.arange(1000))
    now = held()
    deadline = time.monotonic() + 30
    while before and held() > before and time.monotonic() < deadline:
        time.sleep(0.01)  # what is over is closed by a thread of its own
    assert before is None or held() <= before, (before, held())
    before = now
    assert runtime.gpupool_end_session() == 0
    print("over", flush=True)
    input()
    assert runtime.gpupool_attach() == 0, message()
print("ok")
""",
    )
    program = Program(process)
    with contextlib.ExitStack() as workers:
        for number in range(4):
            program.await_line("over")
            workers.enter_context(next_worker(share, number))
            go(process)
        assert program.rest(120).strip().endswith("ok")


@pytest.mark.parametrize("major", [12, 13])
def test_what_broke_one_session_is_no_error_of_the_next(share: Share, major: int) -> None:
    library = native_file("cudart", f"libcudart.so.{major}")
    process = share.start(
        OLD_THINGS
        + f"""
start()
cudart = ctypes.CDLL({str(library)!r})
# An address that nothing lies at.
assert launch(check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(PTX)), b"one")), 8) == 0
said = [cudart.cudaDeviceSynchronize(), cudart.cudaGetLastError(), cudart.cudaGetLastError()]
assert said == [700] * 3, said
assert runtime.gpupool_end_session() == 0
print("over", flush=True)
input()
assert runtime.gpupool_attach() == 0, message()
said = [cudart.cudaPeekAtLastError(), cudart.cudaGetLastError(), cudart.cudaDeviceSynchronize()]
assert said == [0] * 3, said
print("ok")
"""
    )
    program = Program(process)
    program.await_line("over")
    with next_worker(share):
        go(process)
        assert program.rest().strip().endswith("ok")


@pytest.mark.parametrize("major", [12, 13])
def test_a_compiled_program_loads_its_kernels_again(share: Share, tmp_path: Path, major: int) -> None:
    process = subprocess.Popen(
        [build(major, tmp_path), "again"],
        env=os.environ
        | {
            "GPUPOOL_SESSION_FILE": str(share.file),
            "LD_LIBRARY_PATH": f"{native_directory() / 'client'}:{native_directory() / 'cudart'}",
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    said = []
    while (line := process.stdout.readline().strip()) != "again":
        assert line, process.communicate()
        said.append(line)
    assert said == [f"runtime {major}", *SAID]
    kill(share.worker)
    with next_worker(share):
        out, errors = process.communicate("\n", timeout=60)
    assert out.splitlines() == said, out + errors


def test_a_session_on_several_nodes_is_followed_by_one_on_one(tmp_path: Path) -> None:
    with several_shares(tmp_path) as share:
        process = share.start(
            """
start()
assert check(cu.cuDeviceGetCount()) == 2
data = np.arange(1000)
second = check(cu.cuDevicePrimaryCtxRetain(1))
check(cu.cuCtxSetCurrent(second))
old = upload(data)
assert (download(old, data) == data).all()
assert runtime.gpupool_end_session() == 0
print("over", flush=True)
input()
assert runtime.gpupool_attach() == 0, message()
assert check(cu.cuDeviceGetCount()) == 1
assert cu.cuMemFree(old)[0] != 0
check(cu.cuCtxSetCurrent(check(cu.cuDevicePrimaryCtxRetain(0))))
new = upload(data)
assert (download(new, data) == data).all()
print("ok")
""",
        )
        program = Program(process)
        program.await_line("over")
        deadline = time.monotonic() + 10
        while any(one.process is not None and one.process.poll() is None for one in share.workers):
            assert time.monotonic() < deadline
        for end in ("session.1", "epoch.1", "address.1", "token.1", "devices"):
            share.fields.pop(end)
        with next_worker(share):
            go(process)
            assert program.rest().strip().endswith("ok")
