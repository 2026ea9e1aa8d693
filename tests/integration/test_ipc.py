"""Memory and events of one process in another process of the same user: two clients, two workers, one software GPU."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.pool_node import PoolAndNode
from tests.support.runtime_share import MIB, NUMBA, PRELUDE, SHARE_MIB, Share, share_of_a_worker

BEGIN = (
    PRELUDE
    + NUMBA
    + """
def fails(answer, error):
    assert answer[0] == getattr(cu.CUresult, "CUDA_ERROR_" + error), answer

def say(*words):
    print(*words, flush=True)

def hear():
    line = sys.stdin.readline()
    assert line, "the test has ended"
    return line.strip()

def array_at(pointer, count):
    class There:
        __cuda_array_interface__ = {"shape": (count,), "typestr": "<i8", "data": (int(pointer), False), "version": 3}
    return cuda.as_cuda_array(There())

def free_memory():
    return check(cu.cuMemGetInfo())[0]

def text_of(handle):
    return ctypes.string_at(int(handle.getPtr()), 64).hex()

def filled(handle, text):
    ctypes.memmove(int(handle.getPtr()), bytes.fromhex(text), 64)
    return handle

def memory_handle(text):
    return filled(cu.CUipcMemHandle(), text)

def event_handle(text):
    return filled(cu.CUipcEventHandle(), text)

LAZY = cu.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.value

def open_memory(text):
    return int(check(cu.cuIpcOpenMemHandle(memory_handle(text), LAZY)))

@cuda.jit
def raise_by(x, value):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += value

cuda.current_context()
"""
)

#: Gives out the second block of a chunk, so that it does not begin where the memory does.
GIVE = """
count = 1000
first = check(cu.cuMemAlloc(5000))
data = np.arange(count)
block = upload(data)
handle = text_of(check(cu.cuIpcGetMemHandle(block)))
say(handle)
"""


class Program:
    """A client process whose lines are read and written by the test."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def hear(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            _, errors = self.process.communicate(timeout=30)
            pytest.fail(f"the program has ended: {errors}")
        return line.strip()

    def say(self, text: str = "go on") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def ends_well(self) -> None:
        out, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, out + errors
        assert out.splitlines()[-1:] == ["ok"], out + errors


Run = Callable[[Share, str], Program]


@pytest.fixture
def run() -> Iterator[Run]:
    running: list[Program] = []

    def start(share: Share, program: str) -> Program:
        running.append(Program(share.start(program, BEGIN)))
        return running[-1]

    yield start
    for program in running:
        program.process.kill()
        program.process.communicate()


def share_for(factory: pytest.TempPathFactory, user: str) -> contextlib.AbstractContextManager[Share]:
    return contextlib.contextmanager(share_of_a_worker)(factory.mktemp("s"), user)


@pytest.fixture
def giver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Share]:
    with share_for(tmp_path_factory, "ann") as share:
        yield share


@pytest.fixture
def taker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Share]:
    with share_for(tmp_path_factory, "ann") as share:
        yield share


def shared_files(share: Share) -> int:
    """How much shared memory the worker of a share holds."""
    assert share.worker.process is not None
    folder = Path(f"/proc/{share.worker.process.pid}/fd")
    names = [str(entry.readlink()) for entry in folder.iterdir()]
    return sum("softgpu-shared-memory" in name or "softgpu-event" in name for name in names)


def test_two_processes_compute_on_one_block(giver: Share, taker: Share, run: Run) -> None:
    first = run(
        giver,
        GIVE
        + """
again = text_of(check(cu.cuIpcGetMemHandle(int(block) + 8)))
assert again == handle                       # any address of the block, and the same handle each time
fails(cu.cuIpcOpenMemHandle(memory_handle(handle), LAZY), "INVALID_CONTEXT")
capable = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
assert check(cu.cuPointerGetAttribute(capable, block)) == 1
managed = check(cu.cuMemAllocManaged(4096, 1))
fails(cu.cuIpcGetMemHandle(managed), "INVALID_VALUE")
hear()
np.testing.assert_array_equal(download(block, data), data + 100)
say("ok")
""",
    )
    second = run(
        taker,
        """
        text = hear()
        before = free_memory()
        block = open_memory(text)
        assert before - free_memory() == 2 << 20            # it counts here too
        assert [int(part) for part in check(cu.cuMemGetAddressRange(block + 4000))] == [block, 8000]
        about = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_CONTEXT
        assert int(check(cu.cuPointerGetAttribute(about, block))) == int(check(cu.cuCtxGetCurrent()))
        there = array_at(block, 1000)
        np.testing.assert_array_equal(there.copy_to_host(), np.arange(1000))
        assert open_memory(text) == block                   # counted: the same address again
        raise_by[4, 256](there, 100)
        check(cu.cuIpcCloseMemHandle(block))
        np.testing.assert_array_equal(there.copy_to_host(), np.arange(1000) + 100)
        fails(cu.cuMemFree(block), "INVALID_VALUE")         # the giver's to free
        check(cu.cuIpcCloseMemHandle(block))
        fails(cu.cuIpcCloseMemHandle(block), "INVALID_VALUE")
        fails(cu.cuMemGetAddressRange(block), "NOT_FOUND")
        cuda.synchronize()
        assert 0 <= before - free_memory() < 4096           # the kernel's own variables
        fails(cu.cuIpcOpenMemHandle(memory_handle(text), 0), "INVALID_VALUE")
        say("ok")
        """,
    )
    second.say(first.hear())
    second.ends_well()
    first.say()
    first.ends_well()


def test_no_other_user_and_no_invented_handle_opens_anything(
    giver: Share, taker: Share, tmp_path_factory: pytest.TempPathFactory, run: Run
) -> None:
    first = run(
        giver,
        GIVE
        + """
hear()
check(cu.cuMemFree(block))
cuda.synchronize()
say("freed")
hear()
say("ok")
""",
    )
    handle = first.hear()
    program = """
    text = hear()
    fails(cu.cuIpcOpenMemHandle(memory_handle(text), LAZY), "INVALID_HANDLE")
    say("ok")
    """
    with share_for(tmp_path_factory, "bob") as strangers:
        stranger = run(strangers, program)
        stranger.say(handle)
        stranger.ends_well()
    second = run(
        taker,
        """
        text = hear()
        good = bytes.fromhex(text)
        rng = np.random.default_rng(3)
        wrong = [bytes(64), rng.bytes(64), b"\\xff" * 64] + [
            good[:n] + bytes([good[n] ^ 1]) + good[n + 1 :] for n in range(64)
        ]
        for handle in wrong:
            fails(cu.cuIpcOpenMemHandle(memory_handle(handle.hex()), LAZY), "INVALID_HANDLE")
            fails(cu.cuIpcOpenEventHandle(event_handle(handle.hex())), "INVALID_HANDLE")
        fails(cu.cuIpcOpenEventHandle(event_handle(text)), "INVALID_HANDLE")   # it is memory's
        block = open_memory(text)                          # the worker is as well as before
        check(cu.cuIpcCloseMemHandle(block))
        say("now free it")
        hear()
        fails(cu.cuIpcOpenMemHandle(memory_handle(text), LAZY), "INVALID_HANDLE")
        say("ok")
        """,
    )
    second.say(handle)
    assert second.hear() == "now free it"
    first.say()
    assert first.hear() == "freed"
    second.say()
    second.ends_well()
    first.say()
    first.ends_well()


@pytest.mark.parametrize("how", ["frees", "is killed", "loses its worker"])
def test_memory_lives_until_the_last_of_both_has_closed_it(
    giver: Share, taker: Share, run: Run, how: str
) -> None:
    first = run(giver, GIVE + "hear()\ncheck(cu.cuMemFree(block)); cuda.synchronize()\nsay('freed')\nhear()")
    second = run(
        taker,
        """
        cuda.to_device(np.zeros(1)); cuda.synchronize()
        say("begun")
        block = open_memory(hear())
        say("opened")
        hear()
        np.testing.assert_array_equal(array_at(block, 1000).copy_to_host(), np.arange(1000))
        check(cu.cuIpcCloseMemHandle(block))
        cuda.synchronize()
        say("closed")
        hear()
        say("ok")
        """,
    )
    handle = first.hear()
    assert second.hear() == "begun"
    before = shared_files(taker)
    second.say(handle)
    assert second.hear() == "opened"
    assert shared_files(taker) == before + 1
    if how == "frees":
        first.say()
        assert first.hear() == "freed"
    elif how == "is killed":
        first.process.kill()
        first.process.wait()
    else:
        assert giver.worker.process is not None
        os.kill(giver.worker.process.pid, signal.SIGKILL)
        giver.worker.process.wait()
    second.say()
    assert second.hear() == "closed"
    assert shared_files(taker) == before
    second.say()
    second.ends_well()


def test_a_worker_whose_client_died_with_open_memory_holds_it_no_longer_than_its_session(
    giver: Share, taker: Share, run: Run
) -> None:
    first = run(giver, GIVE + "hear()\nsay('ok')")
    second = run(taker, "block = open_memory(hear())\nsay('opened')\nhear()")
    second.say(first.hear())
    assert second.hear() == "opened"
    second.process.kill()
    second.process.wait()
    # Another process takes the session over: nothing of the old one is left for it.
    third = run(taker, "assert free_memory() == check(cu.cuMemGetInfo())[1]\nsay('here')\nhear()\nsay('ok')")
    assert third.hear() == "here"
    assert shared_files(taker) == 0
    third.say()
    third.ends_well()
    first.say()
    first.ends_well()


def test_opened_memory_counts_against_the_share(giver: Share, taker: Share, run: Run) -> None:
    size = (SHARE_MIB // 2) * MIB
    first = run(
        giver,
        f"""
        block = check(cu.cuMemAlloc({size}))
        say(text_of(check(cu.cuIpcGetMemHandle(block))))
        hear()
        say("ok")
        """,
    )
    second = run(
        taker,
        f"""
        text = hear()
        own = check(cu.cuMemAlloc({size + 2 * MIB}))
        fails(cu.cuIpcOpenMemHandle(memory_handle(text), LAZY), "OUT_OF_MEMORY")
        check(cu.cuMemFree(own))                      # kept for the next allocation: makes room
        block = open_memory(text)
        fails(cu.cuMemAlloc({size + 2 * MIB}), "OUT_OF_MEMORY")
        check(cu.cuIpcCloseMemHandle(block))
        check(cu.cuMemFree(check(cu.cuMemAlloc({size + 2 * MIB}))))
        say("ok")
        """,
    )
    second.say(first.hear())
    second.ends_well()
    first.say()
    first.ends_well()


EVENT = """
SHARED = cu.CUevent_flags.CU_EVENT_INTERPROCESS.value | cu.CUevent_flags.CU_EVENT_DISABLE_TIMING.value
block = upload(np.zeros(2, dtype=np.int64))
event = check(cu.cuEventCreate(SHARED))
say(text_of(check(cu.cuIpcGetMemHandle(block))))
say(text_of(check(cu.cuIpcGetEventHandle(event))))

@cuda.jit
def hold(x, value):
    while cuda.atomic.add(x, 1, 0) == 0:
        pass
    x[0] = value

stream = cuda.stream()
there = array_at(block, 2)
"""

WAIT = """
block, event = open_memory(hear()), check(cu.cuIpcOpenEventHandle(event_handle(hear())))
there = array_at(block, 2)
say("opened")
hear()
"""


def test_work_of_one_process_waits_for_work_of_another(giver: Share, taker: Share, run: Run) -> None:
    first = run(
        giver,
        EVENT
        + """
fails(cu.cuEventCreate(cu.CUevent_flags.CU_EVENT_INTERPROCESS.value), "INVALID_VALUE")
plain = check(cu.cuEventCreate(0))
fails(cu.cuIpcGetEventHandle(plain), "INVALID_HANDLE")
fails(cu.cuIpcOpenEventHandle(cu.CUipcEventHandle()), "INVALID_HANDLE")
fails(cu.cuIpcOpenEventHandle(check(cu.cuIpcGetEventHandle(event))), "INVALID_CONTEXT")
hear()
hold[1, 1, stream](there, 7)
check(cu.cuEventRecord(event, stream.handle))
assert cu.cuEventQuery(event)[0] == cu.CUresult.CUDA_ERROR_NOT_READY
say("recorded")
hear()
check(cu.cuEventSynchronize(event))          # what the other process recorded since
assert download(block, np.zeros(2, np.int64)).tolist() == [8, 1]
say("ok")
""",
    )
    second = run(
        taker,
        WAIT
        + """
NOT_READY = cu.CUresult.CUDA_ERROR_NOT_READY
assert cu.cuEventQuery(event)[0] == NOT_READY
stream, other = cuda.stream(), cuda.stream()
check(cu.cuStreamWaitEvent(stream.handle, event, 0))
raise_by[1, 1, stream](there[:1], 1)
assert cu.cuStreamQuery(stream.handle)[0] == NOT_READY
raise_by[1, 1, other](there[1:], 1)          # lets the kernel of the first process end
check(cu.cuEventSynchronize(event))
stream.synchronize()
assert cu.cuEventQuery(event)[0] == 0
check(cu.cuEventRecord(event, stream.handle))
check(cu.cuEventSynchronize(event))
check(cu.cuEventDestroy(event))
check(cu.cuIpcCloseMemHandle(block))
say("ok")
""",
    )
    second.say(first.hear())
    second.say(first.hear())
    assert second.hear() == "opened"
    first.say()
    assert first.hear() == "recorded"
    second.say()
    second.ends_well()
    first.say()
    first.ends_well()


def test_who_waits_for_a_process_that_dies_is_let_go(giver: Share, taker: Share, run: Run) -> None:
    first = run(
        giver,
        EVENT
        + """
hear()
hold[1, 1, stream](there, 7)
check(cu.cuEventRecord(event, stream.handle))
cu.cuEventQuery(event)
say("recorded")
hear()
""",
    )
    second = run(
        taker,
        WAIT
        + """
stream = cuda.stream()
check(cu.cuStreamWaitEvent(stream.handle, event, 0))
say("waiting")
began = time.monotonic()
check(cu.cuEventSynchronize(event))
stream.synchronize()
assert time.monotonic() - began < 20
check(cu.cuEventDestroy(event))
check(cu.cuIpcCloseMemHandle(block))
say("ok")
""",
    )
    second.say(first.hear())
    second.say(first.hear())
    assert second.hear() == "opened"
    first.say()
    assert first.hear() == "recorded"
    second.say()
    assert second.hear() == "waiting"
    time.sleep(0.2)
    assert giver.worker.process is not None
    os.kill(giver.worker.process.pid, signal.SIGKILL)
    giver.worker.process.wait()
    second.ends_well()


SPAWNING = """
import ctypes, multiprocessing, os, stat, sys
import numpy as np
from cuda.bindings import driver as cu

LAZY = cu.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.value

def check(answer):
    assert answer[0] == 0, answer
    return answer[1] if len(answer) == 2 else answer[1:]

def begin():
    check(cu.cuInit(0))
    check(cu.cuCtxSetCurrent(check(cu.cuDevicePrimaryCtxRetain(0))))

def add_up(text):
    begin()
    handle = cu.CUipcMemHandle()
    ctypes.memmove(int(handle.getPtr()), bytes.fromhex(text), 64)
    block = check(cu.cuIpcOpenMemHandle(handle, LAZY))
    seen = np.zeros(1000)
    check(cu.cuMemcpyDtoH(seen.ctypes.data, block, seen.nbytes))
    check(cu.cuIpcCloseMemHandle(block))
    return os.getpid(), float(seen.sum())

if __name__ == "__main__":
    begin()
    data = np.arange(1000.0)
    block = check(cu.cuMemAlloc(data.nbytes))
    check(cu.cuMemcpyHtoD(block, data.ctypes.data, data.nbytes))
    handle = check(cu.cuIpcGetMemHandle(block))
    multiprocessing.set_executable(sys.argv[1])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pid, total = pool.apply(add_up, (ctypes.string_at(int(handle.getPtr()), 64).hex(),))
    assert pid != os.getpid()
    print(total)
"""


def test_a_process_of_multiprocessing_opens_its_parent_s_memory_under_a_share_of_its_own(
    tmp_path: Path,
) -> None:
    """Through a pool and a node, which say whose the sessions are."""
    (tmp_path / "program.py").write_text(SPAWNING)
    with PoolAndNode(real_worker=True, gpus=1) as stack:
        child = Path(__file__).parents[1] / "conformance" / "spawned_child.sh"
        command = stack.command(
            "run", "-p", "0.3", "--", sys.executable, str(tmp_path / "program.py"), str(child)
        )
        environment = stack.environment | {"CONFORMANCE_PYTHON": sys.executable}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.stdout == "499500.0\n", done.stderr
