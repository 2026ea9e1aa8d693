"""The client's libnvidia-ml.so.1, asked by the real nvidia-ml-py in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpupool.client.errors import RuntimeMissingError
from gpupool.client.native import native_file
from gpupool.client.session_file import SESSION_FILE_VARIABLE, SessionFile

PROFILE = """driver_version 13000
device 0
name Software GPU (gpupool)
uuid 0123456789abcdef0123456789abcdef
software 1
total_mib 8192
pci 0000:00:00.0
attribute 16 4
attribute 75 12
attribute 76 0
end
device 1
name NVIDIA H200
uuid fedcba9876543210fedcba9876543210
software 0
total_mib 143771
pci 0001:1b:00.0
attribute 75 9
attribute 76 0
end
"""

Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a program with ``pynvml`` imported and initialised; what it assigns to ``out`` comes back."""
    try:
        library = native_file("client", "libnvidia-ml.so.1")
    except RuntimeMissingError as missing:
        pytest.fail(str(missing))
    (tmp_path / "profile").write_text(PROFILE)

    def run_program(
        program: str, *, session: bool = True, extra: str = "", profile: str | None = None, init: bool = True
    ) -> Any:
        environment = {k: v for k, v in os.environ.items() if k not in (SESSION_FILE_VARIABLE, "LD_PRELOAD")}
        environment["LD_LIBRARY_PATH"] = str(library.parent)
        if profile is not None:
            (tmp_path / "profile").write_text(profile)
        if session:
            file = SessionFile(tmp_path / "session")
            file.write("none", profile=str(tmp_path / "profile"))
            with file.path.open("a") as more:
                more.write(extra)
            environment[SESSION_FILE_VARIABLE] = str(file.path)
        lines = ["import json, pynvml as n"]
        if init:
            lines.append("n.nvmlInit()")
        lines += [program, "print(json.dumps(out))"]
        done = subprocess.run(
            [sys.executable, "-c", "\n".join(lines)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run_program


ERROR_OF = """
def error_of(call, *arguments):
    try:
        call(*arguments)
    except n.NVMLError as error:
        return error.value
    return 0
"""


def test_devices_by_index_uuid_and_bus(run: Run) -> None:
    out = run(
        """
h = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
by_uuid = n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(h[1]))
by_bus = n.nvmlDeviceGetHandleByPciBusId(n.nvmlDeviceGetPciInfo(h[1]).busId)
out = [[n.nvmlDeviceGetName(x), n.nvmlDeviceGetUUID(x), n.nvmlDeviceGetIndex(x), n.nvmlDeviceGetMinorNumber(x),
        n.nvmlDeviceGetCudaComputeCapability(x)] for x in h] + [n.nvmlDeviceGetIndex(by_uuid), n.nvmlDeviceGetIndex(by_bus)]
"""
    )
    assert out == [
        ["Software GPU (gpupool)", "GPU-01234567-89ab-cdef-0123-456789abcdef", 0, 0, [12, 0]],
        ["NVIDIA H200", "GPU-fedcba98-7654-3210-fedc-ba9876543210", 1, 1, [9, 0]],
        1,
        1,
    ]


def test_versions_and_pci(run: Run) -> None:
    out = run(
        """
p = n.nvmlDeviceGetPciInfo(n.nvmlDeviceGetHandleByIndex(1))
out = [n.nvmlSystemGetCudaDriverVersion(), n.nvmlSystemGetCudaDriverVersion_v2(), n.nvmlSystemGetDriverVersion(),
       bool(n.nvmlSystemGetNVMLVersion()), p.busId, p.busIdLegacy, p.domain, p.bus, p.device]
"""
    )
    assert out == [13000, 13000, "13.0", True, "00000001:1B:00.0", "0001:1B:00.0", 1, 0x1B, 0]


def test_what_old_bindings_call_writes_no_more_than_their_structure_holds(run: Run) -> None:
    out = run(
        """
import ctypes
library, handle, said = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), []
library.nvmlDeviceGetHandleByIndex_v2(1, ctypes.byref(handle))
for name in ("nvmlDeviceGetPciInfo", "nvmlDeviceGetPciInfo_v2"):
    room = ctypes.create_string_buffer(b"x" * 80, 80)
    said.append([getattr(library, name)(handle, room), room.raw[:13].decode(), room.raw[52:].decode()])
out = said
"""
    )
    assert out == [[0, "0001:1B:00.0\0", "x" * 28]] * 2


def test_a_device_that_comes_after_the_start_has_a_handle(run: Run) -> None:
    out = run(
        ERROR_OF
        + """
import os
path = open(os.environ["GPUPOOL_SESSION_FILE"]).read().split("profile ")[1].split()[0]
os.rename(path, path + ".away")
n.nvmlInit()
before = error_of(n.nvmlDeviceGetHandleByIndex, 0)
os.rename(path + ".away", path)
out = [before == n.NVML_ERROR_INVALID_ARGUMENT, n.nvmlDeviceGetName(n.nvmlDeviceGetHandleByIndex(0))]
""",
        init=False,
    )
    assert out == [True, "Software GPU (gpupool)"]


def test_memory_is_that_of_the_share(run: Run) -> None:
    program = """
def figures(m):
    return [m.total, m.free, m.used]
h = [n.nvmlDeviceGetHandleByIndex(i) for i in (0, 1)]
out = [figures(n.nvmlDeviceGetMemoryInfo(x, version=v)) for x in h for v in (None, n.nvmlMemory_v2)]
"""
    mib = 1 << 20
    share, whole = [1638 * mib, 1638 * mib, 0], [143771 * mib, 143771 * mib, 0]
    assert run(program, extra="share 0:200:1638\n") == [share, share, whole, whole]
    assert run(program)[0] == [8192 * mib, 8192 * mib, 0]


def test_a_share_that_changes_is_seen_without_a_new_start(run: Run) -> None:
    out = run(
        """
import os
h = n.nvmlDeviceGetHandleByIndex(0)
before = n.nvmlDeviceGetMemoryInfo(h).total
with open(os.environ["GPUPOOL_SESSION_FILE"], "a") as f: f.write("share 0:500:4096\\n")
out = [before >> 20, n.nvmlDeviceGetMemoryInfo(h).total >> 20]
"""
    )
    assert out == [8192, 4096]


def test_processes_are_none_without_a_cuda_program(run: Run) -> None:
    out = run(
        """
h = n.nvmlDeviceGetHandleByIndex(0)
out = [n.nvmlDeviceGetComputeRunningProcesses(h), n.nvmlDeviceGetComputeRunningProcesses_v2(h),
       n.nvmlDeviceGetGraphicsRunningProcesses(h)]
"""
    )
    assert out == [[], [], []]


def test_what_a_share_cannot_know_is_not_supported_never_invented(run: Run) -> None:
    out = run(
        ERROR_OF
        + """
h = n.nvmlDeviceGetHandleByIndex(0)
out = [error_of(n.nvmlDeviceGetTemperature, h, 0), error_of(n.nvmlDeviceGetPowerUsage, h),
       error_of(n.nvmlDeviceGetUtilizationRates, h), error_of(n.nvmlDeviceGetFanSpeed, h),
       error_of(n.nvmlDeviceGetClockInfo, h, 0), error_of(n.nvmlDeviceGetMaxClockInfo, h, 0),
       error_of(n.nvmlDeviceGetNumGpuCores, h), error_of(n.nvmlDeviceSetPersistenceMode, h, 1)]
"""
    )
    assert out == [3] * 8


def test_a_software_gpu_has_an_ordinary_link_and_that_of_a_card_is_its_nodes(run: Run) -> None:
    out = run(
        ERROR_OF
        + """
h = [n.nvmlDeviceGetHandleByIndex(i) for i in (0, 1)]
link = [n.nvmlDeviceGetMaxPcieLinkGeneration, n.nvmlDeviceGetGpuMaxPcieLinkGeneration, n.nvmlDeviceGetCurrPcieLinkGeneration,
        n.nvmlDeviceGetMaxPcieLinkWidth, n.nvmlDeviceGetCurrPcieLinkWidth, n.nvmlDeviceGetPcieLinkMaxSpeed,
        n.nvmlDeviceGetPcieSpeed]
ways = (n.NVML_PCIE_UTIL_TX_BYTES, n.NVML_PCIE_UTIL_RX_BYTES)
out = [[call(h[0]) for call in link], [error_of(call, h[1]) for call in link],
       [error_of(n.nvmlDeviceGetPcieThroughput, x, way) for x in h for way in ways],
       [error_of(n.nvmlDeviceGetPcieReplayCounter, x) for x in h]]
"""
    )
    assert out == [[4, 4, 4, 16, 16, 4, 16000], [3] * 7, [3] * 4, [3] * 2]


def test_modes_of_a_share(run: Run) -> None:
    out = run(
        """
h = n.nvmlDeviceGetHandleByIndex(0)
plain = lambda value: getattr(value, "value", value)
fields = n.nvmlDeviceGetFieldValues(h, [n.NVML_FI_DEV_MEMORY_TEMP, n.NVML_FI_DEV_POWER_INSTANT])
out = [n.nvmlDeviceGetMigMode(h), bool(plain(n.nvmlDeviceIsMigDeviceHandle(h))), plain(n.nvmlDeviceGetMaxMigDeviceCount(h)),
       n.nvmlDeviceGetPersistenceMode(h), n.nvmlDeviceGetDisplayMode(h), n.nvmlDeviceGetDisplayActive(h),
       n.nvmlDeviceGetComputeMode(h), plain(n.nvmlDeviceGetVirtualizationMode(h)), [f.nvmlReturn for f in fields],
       n.nvmlDeviceGetMPSComputeRunningProcesses(h)]
"""
    )
    assert out == [[0, 0], False, 0, 1, 0, 0, 0, 0, [3, 3], []]


def test_figures_of_real_hardware_come_from_its_driver(run: Run) -> None:
    hardware = PROFILE.replace(
        "attribute 75 9\n",
        "attribute 75 9\nattribute 16 132\nattribute 13 1980000\nattribute 36 3201000\nattribute 37 6016\n",
    )
    out = run(
        """
h = n.nvmlDeviceGetHandleByIndex(1)
out = [n.nvmlDeviceGetNumGpuCores(h), n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_SM),
       n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_MEM), n.nvmlDeviceGetMemoryBusWidth(h)]
""",
        profile=hardware,
    )
    assert out == [132 * 128, 1980, 3201, 6016]


USAGE = """
import os, time
from pathlib import Path
def report(seconds_ago):
    at = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - seconds_ago * 10**9
    path = Path(os.environ["GPUPOOL_SESSION_FILE"] + ".usage")
    path.write_text(f"version 1\\ntime_ns {at}\\nbusy_permille 370\\nmemory_used 1048576,0\\n")
def mark(pid):
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
    Path(os.environ["GPUPOOL_SESSION_FILE"] + ".process").write_text(f"{pid} {ticks}\\n")
h = n.nvmlDeviceGetHandleByIndex(0)
"""


def test_a_monitor_beside_the_program_sees_what_the_holder_was_told(run: Run) -> None:
    out = run(
        ERROR_OF
        + USAGE
        + """
out = [error_of(n.nvmlDeviceGetUtilizationRates, h), n.nvmlDeviceGetMemoryInfo(h).used]
report(1)
mark(os.getppid())
(process,) = n.nvmlDeviceGetComputeRunningProcesses(h)
(sample,) = n.nvmlDeviceGetProcessUtilization(h, 0)
out += [n.nvmlDeviceGetUtilizationRates(h).gpu, n.nvmlDeviceGetMemoryInfo(h).used, process.pid == os.getppid(),
        process.usedGpuMemory, sample.pid == os.getppid(), sample.smUtil,
        n.nvmlSystemGetProcessName(os.getpid()) == os.path.realpath("/proc/self/exe")]
report(60)
out += [error_of(n.nvmlDeviceGetUtilizationRates, h), n.nvmlDeviceGetMemoryInfo(h).used,
        len(n.nvmlDeviceGetComputeRunningProcesses(h)), error_of(n.nvmlDeviceGetProcessUtilization, h, 0)]
"""
    )
    assert out == [3, 0, 37, 1 << 20, True, 1 << 20, True, 37, True, 3, 0, 0, 6]


def test_a_process_that_ended_is_not_listed(run: Run) -> None:
    out = run(
        USAGE
        + """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
report(1)
mark(child.pid)
out = [len(n.nvmlDeviceGetComputeRunningProcesses(h))]
child.communicate(b"\\n")
out.append(len(n.nvmlDeviceGetComputeRunningProcesses(h)))
"""
    )
    assert out == [1, 0]


def test_every_function_that_the_python_binding_calls_is_exported(run: Run) -> None:
    out = run(
        """
import ctypes, re, inspect
names = set(re.findall(r'_nvmlGetFunctionPointer\\("(\\w+)"\\)', inspect.getsource(n)))
library = ctypes.CDLL("libnvidia-ml.so.1")
out = [len(names), sorted(name for name in names if not hasattr(library, name))]
"""
    )
    assert out[0] > 300
    assert out[1] == []


def test_wrong_arguments_are_errors(run: Run) -> None:
    out = run(
        ERROR_OF
        + """
import ctypes
h = n.nvmlDeviceGetHandleByIndex(0)
lib = ctypes.CDLL("libnvidia-ml.so.1")
junk = ctypes.create_string_buffer(64)
small = ctypes.create_string_buffer(4)
out = [error_of(n.nvmlDeviceGetHandleByIndex, 2), error_of(n.nvmlDeviceGetHandleByUUID, "GPU-nope"),
       error_of(n.nvmlDeviceGetHandleByPciBusId, "0000:99:00.0"), error_of(n.nvmlDeviceGetHandleByPciBusId, "x"),
       lib.nvmlDeviceGetName(ctypes.byref(junk), junk, 64), lib.nvmlDeviceGetName(h, None, 64),
       lib.nvmlDeviceGetName(h, small, 4), lib.nvmlDeviceGetCount_v2(None), lib.nvmlDeviceGetMemoryInfo(h, None),
       error_of(n.nvmlDeviceGetMemoryInfo, h, 0x03000028)]
"""
    )
    assert out == [2, 6, 6, 2, 2, 2, 7, 2, 2, 25]


def test_init_and_shutdown_are_counted(run: Run) -> None:
    out = run(
        ERROR_OF
        + """
n.nvmlInit(); n.nvmlInit()
out = [n.nvmlDeviceGetCount()]
n.nvmlShutdown()
out.append(n.nvmlDeviceGetCount())
n.nvmlShutdown()
out += [error_of(n.nvmlDeviceGetCount), error_of(n.nvmlShutdown)]
""",
        init=False,
    )
    assert out == [2, 2, 1, 1]


def test_outside_a_session_there_is_no_driver(run: Run) -> None:
    out = run(ERROR_OF + "out = [error_of(n.nvmlInit), str(n.NVMLError(9))]", session=False, init=False)
    assert out[0] == 9


def test_a_profile_that_cannot_be_read_shows_no_device(run: Run) -> None:
    assert run("out = n.nvmlDeviceGetCount()", profile="device 0\ntotal_mib banana\nend\n") == 0
