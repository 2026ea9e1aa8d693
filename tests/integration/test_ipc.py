"""Memory of one process in another process of the same user: two clients, two workers, one software GPU."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pool_node import PoolAndNode
from tests.support.process_pair import Run, giver, run, share_for, taker
from tests.support.runtime_share import MIB, SHARE_MIB, Share

__all__ = ["giver", "run", "taker"]  # the fixtures

#: Gives out the second block of a chunk, so that it does not begin where the memory does.
GIVE = """
count = 1000
first = check(cu.cuMemAlloc(5000))
data = np.arange(count)
block = upload(data)
handle = text_of(check(cu.cuIpcGetMemHandle(block)))
say(handle)
"""


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
