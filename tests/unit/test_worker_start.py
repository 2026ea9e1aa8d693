"""What a worker is started with."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from gpupool.engines.worker_start import WorkerProgram

TELLS = "import json, os; print(json.dumps(list(os.environ)))"


@pytest.mark.parametrize(
    "name",
    [
        "CUDA_ENABLE_COREDUMP_ON_EXCEPTION",
        "CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION",
        "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP",
        "CUDA_ENABLE_USER_TRIGGERED_COREDUMP",
    ],
)
def test_a_worker_writes_no_dump_of_the_gpus_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "1")
    monkeypatch.setenv("CUDA_CACHE_DISABLE", "1")
    program = WorkerProgram(
        command=(sys.executable, "-c", TELLS),
        driver="/none",
        environment={},
        listen="127.0.0.1:0",
        advertise_host="127.0.0.1",
        tls="off",
        ready_seconds=10,
    )
    with program.fork(tmp_path) as process:
        told = json.loads(process.communicate()[0])
    assert name not in told
    assert "CUDA_CACHE_DISABLE" in told
