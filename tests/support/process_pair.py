"""Two programs of one user, each on a worker of its own over one software GPU, whose lines are read and written by the test."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.support.runtime_share import NUMBA, PRELUDE, Share, share_of_a_worker

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
