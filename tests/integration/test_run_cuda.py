"""CUDA programs under `gpupool run`, and in a process that loads the runtime itself: the real worker and software GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.client.native import native_file
from gpupool.client.pool import PoolClient
from gpupool.client.session_file import SessionFile
from gpupool.client.types import LeaseRequest
from gpupool.shares import Share

from tests.support.pool_node import PoolAndNode, native_worker_is_built
from tests.support.stack import wait_until

pytestmark = [
    pytest.mark.skipif(not native_worker_is_built(), reason="native parts not built"),
    pytest.mark.slow,
]

LOAD = """
from gpupool.client import runtime
runtime.load(software=True)
runtime.load(software=True)
"""
ADD = """
import numpy as np
from numba import cuda

@cuda.jit
def add(a, b):
    i = cuda.grid(1)
    if i < a.size:
        a[i] += b

def total(n, b):
    x = cuda.to_device(np.arange(float(n)))
    add[(n + 255) // 256, 256](x, b)
    return float(x.copy_to_host().sum())
"""


@pytest.fixture(scope="module")
def stack() -> Iterator[PoolAndNode]:
    with PoolAndNode(real_worker=True) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_is_left(stack: PoolAndNode) -> Iterator[None]:
    yield
    try:
        stack.wait_free()
    finally:
        stack.close_sessions()  # what a test that failed has left is not there when it is run again


def program(body: str) -> list[str]:
    return [sys.executable, "-c", ADD + textwrap.dedent(body)]


def run(stack: PoolAndNode, *options: str, body: str) -> subprocess.CompletedProcess[str]:
    return stack.gpupool("run", *options, "--", *program(body), seconds=120)


def test_an_unmodified_program_computes_on_a_share(stack: PoolAndNode) -> None:
    done = run(stack, "-p", "0.2", body="print(total(100_000, 1.5))")
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == sum(range(100_000)) + 150_000
    assert "too old" not in done.stderr


def test_the_memory_share_is_what_the_program_sees_and_its_limit(stack: PoolAndNode) -> None:
    body = """
    print(cuda.current_context().get_memory_info().total)
    try:
        cuda.device_array(400 << 20, np.uint8)
    except Exception as error:
        print(error)
    kept = cuda.device_array(100 << 20, np.uint8)
    print("kept", kept.size)
    """
    done = run(stack, "-m", "256", body=body)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert int(lines[0]) == 256 << 20
    assert "OUT_OF_MEMORY" in lines[1]
    assert lines[2] == f"kept {100 << 20}"


def test_a_choice_among_the_machines_own_cards_is_none_among_those_of_the_share(
    stack: PoolAndNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(stack.environment, "CUDA_VISIBLE_DEVICES", "7")
    done = run(
        stack, "-p", "0.2", body="import os; print('CUDA_VISIBLE_DEVICES' in os.environ, total(10, 0))"
    )
    assert done.stdout.split() == ["False", "45.0"], done.stderr


def test_two_shares_are_two_devices(stack: PoolAndNode) -> None:
    body = """
    print(len(cuda.gpus.lst))
    for number in (0, 1):
        with cuda.gpus[number]:
            print(total(10, number))
    """
    done = run(stack, "-p", "0.3", "-n", "2", body=body)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2", "45.0", "55.0"]


def test_the_program_has_the_descriptors_that_the_command_was_given(stack: PoolAndNode) -> None:
    # As multiprocessing gives them to processes that it starts by its `set_executable`.
    reader, writer = os.pipe()
    os.write(writer, b"passed on")
    os.close(writer)
    program = f"import os; print(os.read({reader}, 100).decode())"
    command = stack.command("run", "-p", "0.2", "--", sys.executable, "-c", program)
    done = subprocess.run(
        command, env=stack.environment, pass_fds=(reader,), capture_output=True, text=True, timeout=60
    )
    os.close(reader)
    assert done.stdout == "passed on\n", done.stderr


ENDLESS = """
import os, sys, time

@cuda.jit
def forever(a):
    while a[0] < 1.0:
        a[1] += 1.0
        cuda.nanosleep(1_000_000)

a = cuda.to_device(np.zeros(2))
cuda.synchronize()
forever[1, 1](a)
print("waiting", flush=True)
"""


def in_terminal(stack: PoolAndNode, body: str) -> subprocess.Popen[str]:
    """In a process group of its own, as a shell starts it; the program waits for its kernel."""
    process = subprocess.Popen(
        stack.command("run", "-p", "0.2", "--", *program(ENDLESS + textwrap.dedent(body))),
        env=stack.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    time.sleep(1)  # in the call
    return process


def test_two_interrupts_end_the_gpu_session_and_not_the_program(stack: PoolAndNode) -> None:
    process = in_terminal(
        stack,
        """
        kept = 5
        try:
            cuda.synchronize()
        except (Exception, KeyboardInterrupt) as error:
            print(type(error).__name__, flush=True)
        try:
            time.sleep(0.2)
        except KeyboardInterrupt:
            pass
        print("kept", kept)
        """,
    )
    assert process.stderr is not None
    workers = stack.worker_pids()
    os.killpg(process.pid, signal.SIGINT)
    while "Interrupt again" not in process.stderr.readline():
        assert process.poll() is None
    assert stack.worker_pids() == workers
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=30)
    assert process.returncode == 0, out + errors
    assert out.splitlines()[-1] == "kept 5"
    assert not stack.worker_pids()


def test_a_program_that_an_interrupt_kills_leaves_nothing_that_computes(stack: PoolAndNode) -> None:
    process = in_terminal(
        stack, "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); cuda.synchronize()"
    )
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(30) == 128 + signal.SIGINT
    wait_until(lambda: not stack.worker_pids(), 20, "the worker's end")


def test_when_the_share_is_taken_back_the_next_call_says_why(stack: PoolAndNode) -> None:
    body = """
    import os, pathlib, time
    print(total(10, 1.0), flush=True)
    while "state closed" not in pathlib.Path(os.environ["GPUPOOL_SESSION_FILE"]).read_text():
        time.sleep(0.1)
    try:
        print(total(10, 1.0))
    except Exception as error:
        print("refused:", error)
    """
    done = run(stack, "-p", "0.2", "--for", "12", body=body)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "55.0"
    assert "refused:" in done.stdout
    assert "its time (--for) is over" in done.stderr


def test_a_killed_worker_is_an_error_in_the_program_not_a_hang(stack: PoolAndNode) -> None:
    stack.wait(lambda: not stack.worker_pids(), 15, "earlier workers to end")
    body = """
    import sys
    print(total(10, 1.0), flush=True)
    sys.stdin.readline()
    try:
        print(total(10, 1.0))
    except Exception as error:
        print("error:", error)
    """
    running = subprocess.Popen(
        stack.command("run", "-p", "0.2", "--", *program(body)),
        env=stack.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "55.0\n"
    (pid,) = stack.worker_pids()
    os.kill(pid, signal.SIGKILL)
    output, errors = running.communicate("go on\n", timeout=60)
    assert output.startswith("error:"), output + errors
    assert "took this program's GPU share back" in errors


async def test_a_running_process_loads_the_runtime_and_tells_what_it_did(
    stack: PoolAndNode, tmp_path: Path
) -> None:
    file = SessionFile(tmp_path / "session")
    body = """
    import json, os, sys
    runtime.attach()
    before = runtime.counters()
    result = total(1000, 2.0)
    runtime.drain()
    after = runtime.counters()
    runtime.detach()
    print(json.dumps([result, after.calls - before.calls, after.asks - before.asks, after.bytes_to_device,
                      after.bytes_from_device, after.worker.kernels, after.worker.memory_peak, after.state,
                      after.software, sum(count for count, _ in after.asks_by_name.values()) >= 1,
                      os.environ["CUPY_COMPILE_WITH_PTX"]]), flush=True)
    sys.stdin.readline()
    try:
        runtime.attach()
    except Exception as error:
        print(type(error).__name__, error, flush=True)
    sys.stdin.readline()
    print(total(10, 1.0), flush=True)
    """
    async with PoolClient(stack.endpoint) as pool:
        grant = await pool.request(LeaseRequest(Share.parse("0.2"), reservation=True), wait_seconds=10)

        def write(epoch: int) -> None:
            file.write("attached", session=grant.session_id, epoch=epoch, address=grant.worker_address,
                       token=grant.worker_token, software=grant.software)  # fmt: skip

        write(grant.epoch)
        process = subprocess.Popen(
            [sys.executable, "-c", LOAD + ADD + textwrap.dedent(body)],
            env={**stack.environment, "GPUPOOL_SESSION_FILE": str(file.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr else ""
            result, calls, asks, up, down, kernels, peak, state, software, named, cupy = json.loads(line)
            assert result == sum(range(1000)) + 2000
            assert calls > asks > 0
            assert up >= 8000
            assert down >= 8000
            assert kernels >= 1
            assert peak[0] >= 8000
            assert (state, software, named, cupy) == ("attached", True, True, "1")
            await pool.release(grant.lease_id)
            file.write("parked", session=grant.session_id, message="Detached by the test.")
            process.stdin.write("\n")
            process.stdin.flush()
            assert "DeviceCallFailedError Detached by the test." in process.stdout.readline()
            again = await pool.request(
                LeaseRequest(Share.parse("0.3"), session_id=grant.session_id, reservation=True),
                wait_seconds=10,
            )
            write(again.epoch)
            output, errors = process.communicate("\n", timeout=60)
            assert output == "55.0\n", errors
        finally:
            process.kill()
            for lease in await pool.leases():
                await pool.release(lease.id, close_session=True)


def test_who_loads_the_runtime_after_numba_is_told_what_to_do(stack: PoolAndNode) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ADD + LOAD], env=stack.environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("was loaded before the GPU was attached") == 1
    assert "Restart the kernel" in done.stderr


@pytest.fixture(scope="module")
def nvrtc_program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The compiled program and the folder of the NVRTC that it needs."""
    spec = importlib.util.find_spec("nvidia")
    folders = (
        [Path(place) / "cu13" / "lib" for place in (spec.submodule_search_locations or [])] if spec else []
    )
    nvrtc = next((path for folder in folders for path in folder.glob("libnvrtc.so.*")), None)
    assert nvrtc is not None, "the NVRTC that numba-cuda brings is not installed"
    program = tmp_path_factory.mktemp("nvrtc") / "program"
    source = Path(__file__).parent.parent / "support" / "nvrtc_program.c"
    driver = native_file("client", "libcuda.so.1")
    subprocess.run(["cc", "-w", "-o", program, source, nvrtc, driver], check=True)
    return program, nvrtc.parent


@pytest.mark.parametrize("options", [["-arch=sm_120"], ["--gpu-architecture", "sm_90"], ["-arch=compute_80"]])
def test_a_program_that_asks_nvrtc_for_machine_code_gets_ptx(
    stack: PoolAndNode, nvrtc_program: tuple[Path, Path], options: list[str]
) -> None:
    program, libraries = nvrtc_program
    environment = stack.environment | {"LD_LIBRARY_PATH": str(libraries)}
    command = stack.command("run", "-p", "0.2", "--", str(program), *options)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    if options == ["-arch=compute_80"]:  # the program chose PTX: NVRTC's empty machine code is not replaced
        assert done.returncode == 1
        assert "cuModuleLoadData" in done.stdout
    else:
        assert done.stdout == "PTX 961\n", done.stderr


CUBIN_PROGRAM = """
import numpy as np
from cuda.core import Device, LaunchConfig, LegacyPinnedMemoryResource, Program, ProgramOptions, launch
device = Device()
device.set_current()
stream = device.create_stream()
code = 'extern "C" __global__ void triple(int* to) { to[threadIdx.x] = 3 * threadIdx.x; }'
program = Program(code, code_type="c++", options=ProgramOptions(arch="sm_" + device.arch))
buffer = LegacyPinnedMemoryResource().allocate(4 * 32)
launch(stream, LaunchConfig(grid=1, block=32), program.compile("cubin").get_kernel("triple"), buffer)
stream.sync()
print(np.from_dlpack(buffer).view(np.int32).sum())
"""


def test_cuda_core_asks_the_nvrtc_that_it_opened_for_machine_code_and_gets_ptx(stack: PoolAndNode) -> None:
    command = stack.command("run", "-p", "0.2", "--", sys.executable, "-c", CUBIN_PROGRAM)
    done = subprocess.run(command, env=stack.environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == "1488\n", done.stderr
