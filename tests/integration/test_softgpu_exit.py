"""The software GPU at the end of a process: programs ask the driver from destructors that run when all else is over."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from gpupool.client.child_environment import software_gpu_environment
from gpupool.client.native import native_directory

from tests.support.pool_node import native_worker_is_built

pytestmark = pytest.mark.skipif(not native_worker_is_built(), reason="native worker not built")

PROGRAM = """
import ctypes
cuda, libc, context = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
# As a static object's destructor: after the main thread's own variables are gone.
assert libc.__cxa_atexit(ctypes.cast(cuda.cuCtxSynchronize, ctypes.c_void_p), None, None) == 0
"""


def test_a_context_is_current_until_the_process_has_ended() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=software_gpu_environment(native_directory(), os.environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
