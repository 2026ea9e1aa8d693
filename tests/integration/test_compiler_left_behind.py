"""The software GPU's compiler is a child of nobody who knows it. Where process 1 waits for none, as in a container without an
init, its end would leave a zombie; the worker that opened the driver waits for it instead."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.runtime_share import NUMBA, share_of_a_worker

PR_SET_CHILD_SUBREAPER = 36

PROGRAM = """
import ctypes
x = np.arange(64, dtype=np.float32)
out = cuda.device_array_like(x)
add[1, 64](x, x, out)
assert (out.copy_to_host() == 2 * x).all()
"""
RESET = """
runtime = ctypes.CDLL("libcuda.so.1")
assert runtime.gpupool_end_session() == 0
"""


@pytest.fixture
def like_process_1() -> Iterator[None]:
    """This process gets all that lost its parent, and waits for none of it."""
    libc = ctypes.CDLL(None)
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) == 0


def compilers_of(*parents: int) -> list[int]:
    """Living or not."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            head, _, rest = stat.read_text().rpartition(")")
            if head.partition("(")[2] == "gpupool-softgpu" and int(rest.split()[1]) in parents:
                found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize("end", ["", RESET], ids=["stopped", "reset"])
@pytest.mark.usefixtures("like_process_1")
def test_a_worker_leaves_no_compiler_behind_it(tmp_path: Path, end: str) -> None:
    settings = {"GPUPOOL_SOFTGPU_JIT": "always", "GPUPOOL_SOFTGPU_JIT_CACHE": "off"}
    with contextlib.contextmanager(share_of_a_worker)(tmp_path, **settings) as share:
        assert share.worker.process is not None
        share.run(PROGRAM + "print('ok')", prelude=NUMBA)
        compilers = compilers_of(share.worker.process.pid, os.getpid())
        if not compilers:
            pytest.skip("there is no LLVM")
        if end:
            share.run(PROGRAM + end + "print('ok')", prelude=NUMBA)
            assert share.worker.process.wait(30) == 10
    left = compilers_of(os.getpid())
    for process in left:
        os.waitpid(process, 0)
    assert not left
    assert not [process for process in compilers if Path(f"/proc/{process}").exists()]
