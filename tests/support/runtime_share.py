"""Programs on a share with nothing but the runtime between them and the driver: for tests of the interposition runtime.

The worker is started by hand and the session file is written here. Every program runs in a process of its own and prints
`ok` when its own checks hold.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from gpupool.client.errors import RuntimeMissingError
from gpupool.client.native import native_directory, native_file

from benchmarks.worker_process import WorkerProcess, probe, software_driver
from tests.support.forked_program import Program

MIB = 1 << 20
SHARE_MIB = 256
SOFTWARE = {"GPUPOOL_SOFTGPU_MEMORY_MIB": "1024"}

#: What programs begin with.
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

#: A kernel for those that want one.
NUMBA = """
import numpy as np
from numba import cuda

@cuda.jit
def add(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]
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

    def start(self, program: str, prelude: str = PRELUDE, **environment: str) -> Program:
        path = self.file.with_name("program.py")
        path.write_text(prelude + textwrap.dedent(program))
        return Program(
            [str(path)],
            dict(
                os.environ,
                GPUPOOL_SESSION_FILE=str(self.file),
                LD_LIBRARY_PATH=str(native_directory() / "client"),
                LD_PRELOAD=str(native_directory() / "compat" / "libnvJitLink.so.13"),
                **environment,
            ),
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


def share_of_a_worker(
    tmp_path: Path,
    user: str = "",
    devices: int = 1,
    context_reserve_mib: int = 0,
    lease_seconds: float = 3600.0,
    driver: Path | None = None,
    options: tuple[str, ...] = (),
    share_mib: int = SHARE_MIB,
    **settings: str,
) -> Iterator[Share]:
    """What the fixture does, for other files' fixtures. The share is one of the first of `devices`.

    Args:
        driver: None: the software GPU.
        options: further arguments of the worker.
        settings: further variables of the worker's environment.
    """
    try:
        native_file("client", "libcuda.so.1")
        driver = driver or software_driver()
    except RuntimeMissingError as missing:
        pytest.fail(str(missing))
    environment = SOFTWARE | {"GPUPOOL_SOFTGPU_DEVICES": str(devices)} | settings
    probed = probe(driver, environment)[1]
    folder = tmp_path / "w"
    folder.mkdir()
    with WorkerProcess(
        folder,
        driver,
        [(probed[0], 500, share_mib)],
        environment=environment,
        user=user,
        context_reserve_mib=context_reserve_mib,
        lease_seconds=lease_seconds,
        options=options,
    ) as worker:
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
