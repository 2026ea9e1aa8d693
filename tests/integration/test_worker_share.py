"""What a share means, shown by an unmodified numba program behind a worker: memory limit, device time, figures, NVML."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gpupool.client.child_environment import environment
from gpupool.client.errors import RuntimeMissingError
from gpupool.client.session_file import SessionFile

from benchmarks.worker_process import WorkerProcess, boottime_ns, probe, software_driver

SHARE_MIB = 256

PRELUDE = """
import json, time, warnings
warnings.simplefilter("ignore")
import numpy as np
from numba import cuda
out = {}

@cuda.jit
def iterate(x, times):
    i = cuda.grid(1)
    if i < x.size:
        a = x[i]
        for _ in range(times):
            a = a * np.float32(0.5) + np.float32(1)
        x[i] = a

def error_of(call):
    try:
        call()
    except Exception as error:
        return str(error)
    return ""
"""


@dataclass
class Rig:
    """A worker with a share of a software GPU, and a session file that names it."""

    worker: WorkerProcess
    session: SessionFile
    profile: Path

    def attach(self, epoch: int) -> None:
        self.session.write(
            "attached",
            session=self.worker.session,
            epoch=epoch,
            address=self.worker.address,
            token=self.worker.token,
            software=True,
            profile=str(self.profile),
        )

    def run(self, program: str) -> dict[str, Any]:
        """Runs the program in a process of its own; what it puts into ``out`` comes back."""
        variables = dict(os.environ) | environment(None, self.session.path, software=True, preload=True)
        variables["CONTROL_SOCKET"] = str(self.worker.control_path)
        text = PRELUDE + textwrap.dedent(program) + "\nprint(json.dumps(out))\n"
        done = subprocess.run(
            [sys.executable, "-c", text], env=variables, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result | {"stderr": done.stderr}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    try:
        driver = software_driver()
    except RuntimeMissingError as missing:
        pytest.fail(str(missing))
    text, devices = probe(driver)
    profile = tmp_path / "profile"
    profile.write_text(text)
    with WorkerProcess(tmp_path, driver, [(devices[0], 200, SHARE_MIB)]) as worker:
        rig = Rig(worker, SessionFile(tmp_path / "session"), profile)
        rig.attach(worker.epoch)
        yield rig


def test_the_program_sees_the_share_and_cannot_pass_it(rig: Rig) -> None:
    out = rig.run(
        f"""
        free, total = cuda.current_context().get_memory_info()
        out["total_mib"] = total >> 20
        held = cuda.device_array(200 << 20, np.uint8)
        out["too_much"] = error_of(lambda: cuda.device_array(100 << 20, np.uint8))
        out["free_mib"] = cuda.current_context().get_memory_info()[0] >> 20
        del held
        cuda.current_context().deallocations.clear()
        out["after_free"] = error_of(lambda: cuda.device_array({SHARE_MIB - 16} << 20, np.uint8))
        """
    )
    assert out["total_mib"] == SHARE_MIB
    assert "CUDA_ERROR_OUT_OF_MEMORY" in out["too_much"]
    assert SHARE_MIB - 205 <= out["free_mib"] <= SHARE_MIB - 200
    assert out["after_free"] == ""
    used, peak = (int(n) for n in rig.worker.stats()["mem"].split(":")[1:])
    assert used <= peak <= SHARE_MIB << 20
    assert peak >= 200 << 20


def test_device_time_is_what_the_device_worked_not_what_the_program_slept(rig: Rig) -> None:
    out = rig.run(
        """
        began = time.perf_counter()
        x = cuda.to_device(np.ones(1 << 14, np.float32))
        iterate[64, 256](x, 1)
        cuda.synchronize()
        before = time.perf_counter()
        for _ in range(3):
            iterate[64, 256](x, 500)
        cuda.synchronize()
        out["busy"] = time.perf_counter() - before
        slept = time.perf_counter()
        time.sleep(1.5)
        slept = time.perf_counter() - slept
        iterate[64, 256](x, 1)
        cuda.synchronize()
        out["awake"] = time.perf_counter() - began - slept
        out["value"] = float(x.copy_to_host()[0])
        """
    )
    assert out["value"] == pytest.approx(2.0)
    stats = rig.worker.stats()
    assert int(stats["kernels"]) == 5
    device_seconds = int(stats["device_ns"]) / 1e9
    assert device_seconds >= 0.5 * out["busy"]
    assert device_seconds <= out["awake"]
    assert stats["in_flight"] == "0"


def test_the_figures_count_calls_and_bytes(rig: Rig) -> None:
    out = rig.run(
        """
        host = np.arange(1 << 20, dtype=np.uint8)
        device = cuda.to_device(host)
        out["same"] = bool((device.copy_to_host() == host).all())
        iterate[64, 256](cuda.to_device(np.ones(1 << 14, np.float32)), 1)
        """
    )
    assert out["same"]
    stats = rig.worker.stats()
    assert int(stats["bytes_in"]) >= 1 << 20
    assert int(stats["bytes_out"]) >= 1 << 20
    assert int(stats["calls"]) == int(stats["posts"]) + int(stats["asks"])
    assert int(stats["asks"]) >= 1
    assert int(stats["ask_ns"]) > 0
    assert 0 < int(stats["last_submit_ns"]) <= boottime_ns()


def test_nvml_in_the_same_process_shows_use_and_utilisation(rig: Rig) -> None:
    out = rig.run(
        """
        import os, pynvml
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        x = cuda.to_device(np.ones(1 << 14, np.float32))
        held = cuda.device_array(64 << 20, np.uint8)
        cuda.synchronize()
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        out["total_mib"], out["used_mib"] = memory.total >> 20, memory.used >> 20
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        out["mine"] = [p.pid for p in processes] == [os.getpid()]
        iterate[64, 256](x, 1)
        cuda.synchronize()
        pynvml.nvmlDeviceGetUtilizationRates(handle)
        # On a busy machine the first answers may be of the time before.
        for attempt in range(20):
            iterate[64, 256](x, 20000)
            cuda.synchronize()
            out["busy"] = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu
            if out["busy"] >= 50:
                break
        for attempt in range(20):
            time.sleep(1)
            out["idle"] = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu
            if out["idle"] <= 10:
                break
        """
    )
    assert out["total_mib"] == SHARE_MIB
    assert 64 <= out["used_mib"] <= 70
    assert out["mine"]
    assert out["busy"] >= 50
    assert out["idle"] <= 10


def test_a_share_shrinks_only_to_what_is_used_and_the_program_sees_it(rig: Rig) -> None:
    out = rig.run(
        """
        import os, socket, gpupool.client.runtime as runtime
        held = cuda.device_array(100 << 20, np.uint8)
        cuda.synchronize()
        control = socket.socket(socket.AF_UNIX)
        control.connect(os.environ["CONTROL_SOCKET"])
        lines = control.makefile("rw")
        def ask(line):
            lines.write(line + "\\n"); lines.flush()
            while not (answer := lines.readline()).startswith(("ok", "refused")): pass
            return answer.strip()
        later = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + 10**12
        out["too_small"] = ask(f"lease epoch=1 deadline_ns={later} share=0:100:64")
        out["fits"] = ask(f"lease epoch=1 deadline_ns={later} share=0:100:128")
        out["refused"] = error_of(lambda: cuda.device_array(60 << 20, np.uint8) and cuda.synchronize())
        """
    )
    assert out["too_small"].startswith("refused epoch=1 reason=in-use used_mib=10")
    assert out["fits"] == "ok epoch=1"
    assert "CUDA_ERROR_OUT_OF_MEMORY" in out["refused"]


def test_after_the_lease_the_state_stays_and_the_next_lease_finds_it(rig: Rig) -> None:
    program = """
        import os, socket
        x = cuda.to_device(np.ones(1 << 14, np.float32))
        iterate[64, 256](x, 1)
        cuda.synchronize()
        control = socket.socket(socket.AF_UNIX)
        control.connect(os.environ["CONTROL_SOCKET"])
        lines = control.makefile("rw")
        def ask(line):
            lines.write(line + "\\n"); lines.flush()
            while not (answer := lines.readline()).startswith(("ok", "refused")): pass
            return answer.strip()
        session = os.environ["GPUPOOL_SESSION_FILE"]
        def rewrite(epoch, state, generation):
            text = open(session).read().splitlines()
            values = dict(line.split(" ", 1) for line in text)
            values |= {"epoch": str(epoch), "state": state, "generation": str(generation), "message": "No share now."}
            open(session, "w").write("".join(f"{k} {v}\\n" for k, v in values.items()))
        rewrite(1, "parked", 8)
        out["revoked"] = ask("revoke epoch=1")
        out["refused"] = error_of(lambda: x.copy_to_host())
        later = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + 10**12
        out["granted"] = ask(f"lease epoch=2 deadline_ns={later} share=0:200:256")
        rewrite(2, "attached", 9)
        iterate[64, 256](x, 1)
        out["value"] = float(x.copy_to_host()[0])
        """
    out = rig.run(program)
    assert out["revoked"] == "ok epoch=1"
    assert "CUDA_ERROR_DEVICE_UNAVAILABLE" in out["refused"]
    assert "No share now." in out["stderr"]
    assert out["granted"] == "ok epoch=2"
    assert out["value"] == 1.75
