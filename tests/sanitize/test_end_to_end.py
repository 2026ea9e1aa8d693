"""Programs of the runtime API over client runtime, wire, worker and software GPU, all built with a sanitizer.

Run by `make test-sanitize-programs`, which names the build: a Python process could not load such a client runtime, a
program that is built with the same sanitizer can.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.lone_session import lone_session
from benchmarks.worker_process import software_driver
from tests.sanitize.reports import Reports
from tests.sanitize.sanitized_build import BUILD, needs_build

#: On a GPU only a new process gets over an illegal address; the software GPU alone forgives it after a reset.
NOT_HERE = "--test-case-exclude=an error of the device stays until*,a reset ends the device's error*"

pytestmark = needs_build


@pytest.mark.timeout(900)
@pytest.mark.parametrize("transport", ["tcp", "shm"])
@pytest.mark.parametrize("program", ["cudart12_test", "cudart13_test"])
def test_a_program_runs_clean_on_a_worker(short_folder: Path, program: str, transport: str) -> None:
    """Neither the client's process nor the worker's has anything to report, up to the end of both."""
    reports = Reports(short_folder)
    options = reports.environment()
    (short_folder / "worker").mkdir()
    with lone_session(short_folder / "worker", software_driver(), environment=options) as session:
        environment = session.environment({**options, "GPUPOOL_TRANSPORT": transport})
        done = subprocess.run(
            [BUILD / "src" / "cudart" / program, NOT_HERE],
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        session.worker.send("stop")
        assert session.worker.process is not None
        status = session.worker.process.wait(60)
        log = session.log()
    assert not reports.found(), reports.found()
    assert done.returncode == 0, done.stdout + done.stderr + log
    assert status == 0, log
