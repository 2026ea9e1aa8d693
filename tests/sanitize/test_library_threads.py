"""Math libraries in four threads with four streams each, under the sanitizers of the build.

Run by `make test-tsan-programs` above all, and by `make test-sanitize-programs`, with the program in `library_threads.cpp`.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from gpupool.client.native import native_directory

from benchmarks.lone_session import lone_session
from benchmarks.worker_process import software_driver
from tests.sanitize.reports import Reports
from tests.sanitize.sanitized_build import compile_program, needs_build

pytestmark = needs_build

ROUNDS = 40
NO_CACHE = {"GPUPOOL_SOFTGPU_JIT_CACHE": "off"}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("library_threads.cpp", tmp_path_factory.mktemp("program"))


def run(program: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, native_directory() / "libraries", str(ROUNDS)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=800,
    )


@pytest.mark.timeout(900)
def test_threads_call_libraries_alone(tmp_path: Path, program: Path) -> None:
    """The libraries and the software GPU have nothing to report, and every number is right."""
    reports = Reports(tmp_path)
    driver = {"LD_LIBRARY_PATH": str(software_driver().parent), "GPUPOOL_SOFTGPU_MEMORY_MIB": "256"}
    done = run(program, os.environ | driver | NO_CACHE | reports.environment())
    assert not reports.found(), reports.found()
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


@pytest.mark.timeout(900)
@pytest.mark.parametrize("transport", ["tcp", "shm"])
@pytest.mark.parametrize("way", ["operations", "libraries"])
def test_threads_call_libraries_on_a_worker(
    short_folder: Path, program: Path, transport: str, way: str
) -> None:
    """Both processes, where the driver computes operations, and where the worker gives them to the libraries' own API."""
    reports = Reports(short_folder)
    (short_folder / "worker").mkdir()
    settings = NO_CACHE | reports.environment()
    if way == "libraries":
        settings["GPUPOOL_MATH_LIBRARIES"] = str(native_directory() / "libraries")
    with lone_session(short_folder / "worker", software_driver(), 256, environment=settings) as session:
        done = run(program, session.environment({**reports.environment(), "GPUPOOL_TRANSPORT": transport}))
        session.worker.send("stop")
        assert session.worker.process is not None
        status = session.worker.process.wait(60)
        log = session.log()
    assert not reports.found(), reports.found()
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr + log
    assert status == 0, log
