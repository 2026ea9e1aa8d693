"""Programs that use one worker over whatever carries the calls: a process each, told where the worker is by its session file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from gpupool.client.errors import RuntimeMissingError
from gpupool.client.native import native_directory, native_file
from gpupool.client.session_file import SessionFile

from benchmarks.worker_process import WorkerProcess, probe, software_driver
from tests.support.forked_program import Program

SOFTWARE = {"GPUPOOL_SOFTGPU_MEMORY_MIB": "1024"}

#: What programs of the driver API alone begin with.
BEGIN = """
from cuda.bindings import driver as cu
def check(answer):
    assert answer[0] == 0, answer
    return answer[1] if len(answer) == 2 else answer[1:]
check(cu.cuInit(0))
check(cu.cuCtxSetCurrent(check(cu.cuDevicePrimaryCtxRetain(0))))
"""

ASKS = (
    BEGIN
    + """
check(cu.cuCtxSynchronize())
print("ok", flush=True)
"""
)

ASKS_FOR_EVER = (
    ASKS
    + """
while cu.cuCtxSynchronize()[0] == 0:
    pass
print("lost", flush=True)
"""
)


@dataclass
class Client:
    """Starts programs that use one worker."""

    folder: Path
    worker: WorkerProcess
    command: tuple[str, ...] = ()  #: put before the program

    def start(
        self, program: str, address: str | None = None, **environment: str
    ) -> Program | subprocess.Popen[str]:
        session = SessionFile(self.folder / "session")
        session.write(
            "attached",
            session=self.worker.session,
            epoch=self.worker.epoch,
            address=address or self.worker.address,
            token=self.worker.token,
            software=True,
        )
        variables = dict(
            os.environ,
            GPUPOOL_SESSION_FILE=str(session.path),
            LD_PRELOAD=str(native_directory() / "compat" / "libnvJitLink.so.13"),
            **({"GPUPOOL_DEBUG": "1", "LD_LIBRARY_PATH": str(native_directory() / "client")} | environment),
        )
        if not self.command:
            return Program(["-c", program], variables)
        return subprocess.Popen(
            [*self.command, sys.executable, "-W", "ignore", "-c", program],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, program: str, address: str | None = None, **environment: str) -> str:
        """What the program wrote on standard error, after it said `ok`."""
        process = self.start(program, address, **environment)
        out, errors = process.communicate(timeout=120)
        assert (process.returncode, out.strip()) == (0, "ok"), out + errors
        return errors


@pytest.fixture
def client(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Client]:
    """Parametrized indirectly: further options of the worker."""
    try:
        native_file("client", "libcuda.so.1")
        driver = software_driver()
    except RuntimeMissingError as missing:
        pytest.fail(str(missing))
    device = probe(driver, SOFTWARE)[1][0]
    options = getattr(request, "param", ())
    with WorkerProcess(
        tmp_path, driver, [(device, 500, 256)], environment=SOFTWARE, options=options
    ) as worker:
        yield Client(tmp_path, worker)
