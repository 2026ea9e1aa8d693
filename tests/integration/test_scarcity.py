"""A process without memory, or without a thread, gets an error of CUDA's: it lives, and computes rightly afterwards.

No exported C function lets an exception out, wherever in it memory or a thread cannot be had.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from gpupool.client.native import native_directory, native_file

from tests.support.runtime_share import Share, share

__all__ = ["share"]  # the fixture

ROOT = Path(__file__).resolve().parents[2]
#: What a call may answer: CUDA_ERROR_OUT_OF_MEMORY, OPERATING_SYSTEM, and of those that lost their capture its own.
SUCCESS, OUT_OF_MEMORY, OPERATING_SYSTEM = 0, 2, 304
#: While a connection is made anew, because what came over it found no memory.
UNAVAILABLE = 46
OF_CAPTURES = {901, 900}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("scarcity") / "scarcity_program"
    headers = subprocess.run(
        [sys.executable, ROOT / "src" / "protocol" / "find_cuda_headers.py"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    source = ROOT / "tests" / "support" / "scarcity_program.c"
    library = native_file("client", "libcuda.so.1")
    options = ("-O1", "-Wall", "-Wextra", "-Werror", "-rdynamic", "-isystem", headers)
    subprocess.run(["cc", *options, "-o", built, source, library, "-ldl"], check=True)
    return built


#: A load of a module whose reply finds no memory has happened in the worker: its handle is not free there.
LEFT_OUT = "module"


def run(program: Path, of: str, environment: dict[str, str]) -> dict[str, tuple[int, set[int]]]:
    """For each call how many places failed, and the results that were seen."""
    done = subprocess.run(
        [program, of, LEFT_OUT], env=os.environ | environment, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["ok"]), (done.stdout, done.stderr)
    lines = [line.split() for line in done.stdout.splitlines()[:-1]]
    return {name: (int(places), {int(result) for result in results}) for name, places, *results in lines}


def on_a_share(share: Share) -> dict[str, str]:
    return {"GPUPOOL_SESSION_FILE": str(share.file), "LD_LIBRARY_PATH": str(native_directory() / "client")}


@pytest.mark.parametrize("driver", ["client runtime", "software GPU"])
def test_every_allocation_may_fail(program: Path, share: Share, driver: str) -> None:
    alone = {"LD_LIBRARY_PATH": str(native_directory() / "softgpu")}
    seen = run(program, "memory", on_a_share(share) if driver == "client runtime" else alone)
    assert sum(places for places, _ in seen.values()) >= 20
    for call, (_, results) in seen.items():
        if driver == "client runtime":
            assert results <= {SUCCESS, OUT_OF_MEMORY, OPERATING_SYSTEM, UNAVAILABLE} | OF_CAPTURES, (
                call,
                results,
            )


@pytest.mark.parametrize("driver", ["client runtime", "software GPU"])
def test_every_thread_may_fail(program: Path, share: Share, driver: str) -> None:
    alone = {"LD_LIBRARY_PATH": str(native_directory() / "softgpu")}
    seen = run(program, "threads", on_a_share(share) if driver == "client runtime" else alone)
    assert sum(places for places, _ in seen.values()) >= 1
    for call, (_, results) in seen.items():
        if driver == "client runtime":
            assert results <= {SUCCESS, OUT_OF_MEMORY, OPERATING_SYSTEM} | OF_CAPTURES, (call, results)
