"""`gpupool softgpu`: CUDA programs with the software GPU for themselves; no pool is running."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from gpupool.client.native import native_directory

from tests.support.attaching_program import PRELUDE
from tests.support.softgpu_programs import OPENING, PTX_HEADER, ROOT, command, environment

pytestmark = pytest.mark.skipif(
    not (native_directory() / "softgpu" / "libcuda.so.1").exists(),
    reason="the native parts are not built (make build)",
)

#: What the driver says of itself, and of a kernel that NVRTC-less programs can bring: PTX in the program's text.
PROGRAM = f"""{OPENING}
PTX = b'''{PTX_HEADER}.visible .entry fill(.param .u64 out)
{{
    .reg .b32 %r<3>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mul.lo.u32 %r2, %r1, %r1;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r2;
    ret;
}}
'''
call("cuInit", 0)
count, size, context = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_void_p()
call("cuDeviceGetCount", ctypes.byref(count))
call("cuDeviceTotalMem_v2", ctypes.byref(size), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
module, kernel, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
call("cuModuleLoadData", ctypes.byref(module), PTX)
call("cuModuleGetFunction", ctypes.byref(kernel), module, b"fill")
call("cuMemAlloc_v2", ctypes.byref(memory), 128)
parameters = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
call("cuLaunchKernel", kernel, 1, 1, 1, 32, 1, 1, 0, None, parameters, None)
numbers = (ctypes.c_uint32 * 32)()
call("cuMemcpyDtoH_v2", numbers, memory, 128)
assert list(numbers) == [n * n for n in range(32)]
print(count.value, size.value >> 20, os.environ.get("GPUPOOL_SESSION_FILE", "no session"))
"""


def softgpu(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), env=environment(**more), capture_output=True, text=True, timeout=60
    )


def test_a_program_finds_the_devices_that_were_asked_for_and_computes() -> None:
    done = softgpu("--memory", "512MiB", "--devices", "2", "--", sys.executable, "-c", PROGRAM)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2 512 no session\n"


def test_a_program_that_was_started_inside_of_a_share_leaves_the_share_alone() -> None:
    client = str(native_directory() / "client")
    done = softgpu(
        "-m", "0.25GiB", "--", sys.executable, "-c", PROGRAM,
        GPUPOOL_SESSION_FILE="/tmp/no-such-session", LD_LIBRARY_PATH=client, TRITON_LIBCUDA_PATH=client,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1 256 no session\n"


def test_a_program_that_was_written_for_a_pool_gets_this_gpu_and_asks_no_pool(tmp_path: Path) -> None:
    program = PRELUDE + (
        "with gpupool.attach(0.2, type='H100'):\n    at = make(7)\n"
        "with gpupool.attach(n=2):\n    say(read(at))\n"
        "try:\n    gpupool.attach(n=3).__enter__()\n"
        "except gpupool.AttachError as error:\n    say(error.reason, '--devices 3' in str(error))\n"
        "try:\n    gpupool.reset()\n"
        "except gpupool.AttachError as error:\n    say(error.reason)\n"
    )
    done = softgpu("--devices", "2", "--", sys.executable, "-c", program, GPUPOOL_ENDPOINT="unix:/nowhere")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "7\nin-use True\nin-use\n"


def test_numba_hands_over_ptx() -> None:
    pytest.importorskip("numba.cuda")
    program = (
        "import numpy as np\nfrom numba import cuda\n"
        "@cuda.jit\ndef add(x, y, out):\n    i = cuda.grid(1)\n    out[i] = x[i] + y[i]\n"
        "x, y = cuda.to_device(np.arange(64.0)), cuda.to_device(np.ones(64))\nout = cuda.device_array_like(x)\n"
        "add[2, 32](x, y, out)\nprint(out.copy_to_host().sum())\n"
    )
    done = softgpu("--memory", "256", "--", sys.executable, "-c", program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2080.0\n", "")


def nvidia_library(name: str) -> Path:
    """One that numba-cuda brings."""
    spec = importlib.util.find_spec("nvidia")
    places = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    found = next((path for place in places for path in (place / "cu13" / "lib").glob(f"{name}.so.*")), None)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def opened_by_python(library: Path, call: str) -> list[str]:
    """A Python program that opens a library, as an extension module is opened, and prints what a function returns."""
    program = f"import ctypes\nlibrary = ctypes.CDLL({str(library)!r})\nprint(library.{call}, flush=True)"
    return [sys.executable, "-c", program]


def test_an_extension_module_that_is_linked_with_nvrtc_gets_ptx_for_machine_code(tmp_path: Path) -> None:
    nvrtc = nvidia_library("libnvrtc")
    source = ROOT / "tests" / "support" / "nvrtc_program.c"
    driver = native_directory() / "softgpu" / "libcuda.so.1"
    module = tmp_path / "module.so"
    subprocess.run(
        ["cc", "-w", "-shared", "-fPIC", "-Dmain=run", "-o", module, source, nvrtc, driver], check=True
    )
    options = "run(2, (ctypes.c_char_p * 3)(b'', b'-arch=sm_90', None))"
    done = softgpu("--", *opened_by_python(module, options), LD_LIBRARY_PATH=str(nvrtc.parent))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["0", "961", "PTX"]


def test_a_library_that_was_linked_with_nvidias_linker_can_be_loaded(tmp_path: Path) -> None:
    linker = nvidia_library("libnvJitLink")
    source = tmp_path / "user.c"
    source.write_text(
        "int __nvJitLinkCreate_13_0(); int make(void) { return __nvJitLinkCreate_13_0(0, 0, 0); }"
    )
    library = tmp_path / "user.so"
    subprocess.run(["cc", "-w", "-shared", "-fPIC", "-o", library, source, linker], check=True)
    done = softgpu("--", *opened_by_python(library, "make()"), LD_LIBRARY_PATH=str(linker.parent))
    assert (done.returncode, done.stdout) == (0, "6\n"), done.stderr  # NVJITLINK_ERROR_INTERNAL
    assert done.stderr == "softgpu: nvJitLink makes machine code, which a software GPU cannot run\n"


#: Results of a launch of a kernel that writes where nothing is, and of the wait for it.
FAULT = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
PTX = b'''
.version 7.0
.target sm_75
.address_size 64
.visible .entry astray()
{
    .reg .b64 %rd<2>;
    mov.u64 %rd1, 16;
    st.global.u64 [%rd1], %rd1;
    ret;
}
'''
context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuModuleLoadData(ctypes.byref(module), PTX) == 0
assert cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"astray") == 0
launched = cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)
print(launched, cuda.cuCtxSynchronize())
"""


@pytest.mark.parametrize(("blocking", "results"), [("0", "0 700\n"), ("1", "700 700\n")])
def test_a_launch_waits_for_its_kernel_when_it_is_told_to(blocking: str, results: str) -> None:
    done = softgpu("--", sys.executable, "-c", FAULT, CUDA_LAUNCH_BLOCKING=blocking)
    assert done.stdout == results, done.stderr
    assert "astray" in done.stderr


def test_the_exit_code_is_the_programs() -> None:
    assert softgpu("--", "sh", "-c", "exit 75").returncode == 75
    assert softgpu("--", "sh", "-c", "kill -KILL $$").returncode == -signal.SIGKILL


def test_a_signal_reaches_the_program() -> None:
    waits = "trap 'echo told; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen(
        command("--", "sh", "-c", waits), env=environment(), stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.terminate()
        assert running.stdout.read() == "told\n"
    assert running.returncode == 3


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--", "no-such-command-anywhere"), 127, "no-such-command-anywhere: command not found"),
        ((), 2, "say what to run"),
        (("--memory", "12", "--", "true"), 2, "'12' is no memory from 16 MiB to 4096 GiB"),
        (("--memory", "much", "--", "true"), 2, "'much' is no memory"),
        (("--devices", "17", "--", "true"), 2, "'17' is no whole number from 0 to 16"),
        (("--compute-capability", "12", "--", "true"), 2, "'12' is no compute capability"),
        (("--check", "luck", "--", "true"), 2, "luck"),
    ],
)
def test_what_cannot_be_run_is_named(arguments: tuple[str, ...], code: int, says: str) -> None:
    done = softgpu(*arguments)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_is_no_program_cannot_be_executed(tmp_path: Path) -> None:
    file = tmp_path / "picture"
    file.write_bytes(b"\x89PNG")
    file.chmod(0o755)
    done = softgpu("--", str(file))
    assert done.returncode == 126
    assert done.stderr == f"gpupool: {file}: Exec format error\n"


def test_a_file_that_may_not_be_executed_is_not_one_that_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    file.write_text("#!/bin/sh\n")
    done = softgpu("--", str(file))
    assert (done.returncode, done.stderr) == (126, f"gpupool: {file}: permission denied\n")
    assert softgpu("--", str(tmp_path / "missing.sh")).returncode == 127


def test_without_native_parts_it_says_what_is_missing(tmp_path: Path) -> None:
    done = softgpu("--", "true", GPUPOOL_NATIVE_DIR=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith(f"gpupool: {tmp_path}/softgpu/libcuda.so.1 is not there")


def test_versions_for_people_and_programs() -> None:
    done = softgpu("--version")
    assert done.returncode == 0, done.stderr
    assert "software GPU: CUDA " in done.stdout
    facts = json.loads(softgpu("--version", "--json", GPUPOOL_SOFTGPU_COMPUTE_CAPABILITY="8.6").stdout)
    assert facts["compute_capability"] == "8.6"
    assert facts["library"] == str(native_directory() / "softgpu" / "libcuda.so.1")
