"""What the software GPU says of a kernel that goes wrong: in words, while the program gets CUDA's number.

Programs bring PTX as text and call the driver through ctypes; each runs in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from gpupool.client.native import native_directory

SOFTGPU = native_directory() / "softgpu"

pytestmark = pytest.mark.skipif(
    not (SOFTGPU / "libcuda.so.1").exists(), reason="the native parts are not built (make build)"
)

#: Runs the kernel `k` over an array of 64 words with one block of 64 threads; prints the results of the calls.
PROGRAM = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    assert result == 0, (name, result)
context, module, kernel, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", ctypes.byref(module), sys.argv[1].encode())
call("cuModuleGetFunction", ctypes.byref(kernel), module, b"k")
call("cuMemAlloc_v2", ctypes.byref(memory), 256)
call("cuMemsetD32_v2", memory, 0, 64)
parameters = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
call("cuLaunchKernel", kernel, 1, 1, 1, 64, 1, 1, 0, None, parameters, None)
print(cuda.cuCtxSynchronize())
"""
HEAD = """.version 7.8
.target sm_75
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<4>; .shared .b32 tile[64];
    ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1;
    mov.u32 %r2, tile; mad.lo.s32 %r2, %r1, 4, %r2;
"""


def run(body: str, **settings: str) -> tuple[int, str]:
    """CUDA's number at the end of the kernel, and what was said on standard error."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPUPOOL_", "CUDA_"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, HEAD + body + "\n    ret;\n}\n"],
        env=kept
        | {f"GPUPOOL_SOFTGPU_{name}": value for name, value in settings.items()}
        | {"LD_LIBRARY_PATH": str(SOFTGPU)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout), done.stderr


def test_a_fault_names_kernel_line_block_thread_and_the_nearest_allocation() -> None:
    code, said = run("    add.s64 %rd3, %rd2, 16777216;\n    st.global.u32 [%rd3], %r1;")
    assert code == 700
    for part in (
        "an illegal memory access was encountered",
        "write of 4 bytes at 0x",
        "kernel k, block (0, 0, 0), thread (0, 0, 0)",
        "line 10",
        "behind the end of the 256 bytes at 0x",
        "from cuMemAlloc",
    ):
        assert part in said
    assert said.count("\n") == 1


def test_one_element_too_far_is_found_when_memory_is_checked() -> None:
    beside = "    st.global.u32 [%rd2+4], %r1;"
    assert run(beside) == (0, "")
    code, said = run(beside, CHECK="memory")
    assert code == 700
    assert "thread (63, 0, 0)" in said
    assert "this is 0 bytes behind the end of the 256 bytes" in said


def test_a_missing_barrier_is_found_when_races_are_checked() -> None:
    write, read = (
        "    st.shared.u32 [%r2], %r1;",
        "    ld.shared.u32 %r3, [tile];\n    st.global.u32 [%rd2], %r3;",
    )
    assert run(f"{write}\n{read}") == (0, "")
    code, said = run(f"{write}\n{read}", CHECK="race,barrier")
    assert code == 719
    assert "race in shared memory" in said
    assert "line 9" in said
    assert "line 10" in said
    assert run(f"{write}\n    bar.sync 0;\n{read}", CHECK="all") == (0, "")


def test_a_kernel_that_never_ends_is_ended_and_its_line_named() -> None:
    code, said = run("AGAIN:\n    bra AGAIN;", WATCHDOG_SECONDS="0.3")
    assert code == 702
    assert "kernel k has not ended after 0.3 s" in said
    assert "line 10" in said
    assert "GPUPOOL_SOFTGPU_WATCHDOG_SECONDS" in said


def test_threads_at_different_barriers_are_named() -> None:
    first = "    setp.gt.u32 %p1, %r1, 31; @%p1 bra OTHER;\n    bar.sync 1;\n    bra OUT;\n"
    code, said = run(first + "OTHER:\n    bar.sync 2;\nOUT:")
    assert code == 702
    assert "32 threads from (0, 0, 0) on wait at barrier 1" in said
    assert "32 threads from (32, 0, 0) on wait at barrier 2" in said


def test_a_check_that_there_is_not_is_named() -> None:
    _, said = run("", CHECK="memory,luck")
    assert "there is no check 'luck'" in said
