"""NVML of the software GPU by itself, asked by the real nvidia-ml-py beside programs that compute."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from gpupool.client.native import native_directory

from tests.support.softgpu_programs import OPENING, PTX_HEADER, command, environment

pytestmark = pytest.mark.skipif(
    not (native_directory() / "softgpu" / "libnvidia-ml.so.1").exists(),
    reason="the native parts are not built (make build)",
)
MEBIBYTE = 1 << 20

#: Holds 64 MiB of the second card, the first that it sees, and keeps it busy for half of the time.
HALF_BUSY = f"""{OPENING}
PTX = b'''{PTX_HEADER}.visible .entry run_for(.param .u64 nanoseconds)
{{
    .reg .pred %p<2>; .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [nanoseconds];
    mov.u64 %rd2, %globaltimer;
AGAIN:
    mov.u64 %rd3, %globaltimer;
    sub.s64 %rd4, %rd3, %rd2;
    setp.lt.u64 %p1, %rd4, %rd1;
    @%p1 bra AGAIN;
    ret;
}}
'''
context, module, kernel, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", ctypes.byref(module), PTX)
call("cuModuleGetFunction", ctypes.byref(kernel), module, b"run_for")
call("cuMemAlloc_v2", ctypes.byref(memory), 64 << 20)
nanoseconds = ctypes.c_uint64(50_000_000)
parameters = (ctypes.c_void_p * 1)(ctypes.addressof(nanoseconds))
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
print("ready", flush=True)
while not ended.is_set():
    call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, None, parameters, None)
    call("cuCtxSynchronize")
    time.sleep(0.05)
"""


#: Two small cards.
CARDS = ("-n", "2", "-m", "1GiB", "--")


def ask(program: str) -> Any:
    """What a monitor, a process of its own, finds for ``out``."""
    lines = ("import json, pynvml as n", "n.nvmlInit()", program, "print(json.dumps(out))")
    done = subprocess.run(
        command(*CARDS, sys.executable, "-c", "\n".join(lines)),
        env=environment(CUDA_VISIBLE_DEVICES="0"),  # which NVML does not look at
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command(*CARDS, sys.executable, "-c", HALF_BUSY),
        env=environment(CUDA_VISIBLE_DEVICES="1"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "ready\n"
            yield running
        finally:
            running.kill()


def test_it_says_what_the_cards_are() -> None:
    out = ask(
        "h = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]\n"
        "out = [[n.nvmlDeviceGetName(d), n.nvmlDeviceGetMemoryInfo(d).total,\n"
        "        list(n.nvmlDeviceGetCudaComputeCapability(d)), n.nvmlDeviceGetUUID(d)] for d in h]"
    )
    assert [device[:3] for device in out] == [["Software GPU (gpupool)", 1024 * MEBIBYTE, [12, 0]]] * 2
    first, second = (device[3] for device in out)
    assert first != second
    assert first.startswith("GPU-")


def test_it_names_an_ordinary_link_to_who_estimates_copies() -> None:
    out = ask(
        "d = n.nvmlDeviceGetHandleByIndex(1)\n"
        "out = [n.nvmlDeviceGetMaxPcieLinkGeneration(d), n.nvmlDeviceGetGpuMaxPcieLinkGeneration(d),\n"
        "       n.nvmlDeviceGetCurrPcieLinkGeneration(d), n.nvmlDeviceGetMaxPcieLinkWidth(d),\n"
        "       n.nvmlDeviceGetCurrPcieLinkWidth(d), n.nvmlDeviceGetPcieLinkMaxSpeed(d), n.nvmlDeviceGetPcieSpeed(d)]"
    )
    assert out == [4, 4, 4, 16, 16, 4, 16000]


def test_memory_processes_and_utilisation_of_another_process(busy: subprocess.Popen[str]) -> None:
    time.sleep(1.2)  # the second that utilisation is about
    out = ask(
        "d = n.nvmlDeviceGetHandleByIndex(1)\n"
        "processes = n.nvmlDeviceGetComputeRunningProcesses(d)\n"
        "out = dict(used=n.nvmlDeviceGetMemoryInfo(d).used, gpu=n.nvmlDeviceGetUtilizationRates(d).gpu,\n"
        "           processes=[[p.pid, p.usedGpuMemory] for p in processes],\n"
        "           other=[n.nvmlDeviceGetMemoryInfo(n.nvmlDeviceGetHandleByIndex(0)).used,\n"
        "                  n.nvmlDeviceGetUtilizationRates(n.nvmlDeviceGetHandleByIndex(0)).gpu])"
    )
    # The command became the program, so its number is the one that was started here.
    mine = [used for pid, used in out["processes"] if pid == busy.pid]
    assert len(mine) == 1
    assert mine[0] >= 64 * MEBIBYTE
    assert out["used"] >= mine[0]
    assert 0 < out["gpu"] <= 100  # half of the time; a loaded machine keeps either half waiting


def test_who_has_ended_holds_nothing(busy: subprocess.Popen[str]) -> None:
    busy.kill()
    busy.wait(20)
    processes = "n.nvmlDeviceGetComputeRunningProcesses(n.nvmlDeviceGetHandleByIndex(1))"
    assert busy.pid not in ask(f"out = [p.pid for p in {processes}]")


def test_without_a_device_there_is_no_driver() -> None:
    program = (
        "import pynvml as n\ntry:\n    n.nvmlInit()\nexcept n.NVMLError_DriverNotLoaded:\n    print('none')\n"
    )
    done = subprocess.run(
        command("--devices", "0", "--", sys.executable, "-c", program),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "none\n"), done.stderr
