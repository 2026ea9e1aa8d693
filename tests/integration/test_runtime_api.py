"""Programs that use the runtime API, unmodified, on a share: our libcudart over the wire to the software GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.client.native import native_directory, native_file

from tests.support.pool_node import PoolAndNode, native_worker_is_built

ROOT = Path(__file__).resolve().parents[2]
#: A Python that has PyTorch with CUDA, if not this one: it is too large to be a requirement of the tests.
TORCH_PYTHON = os.environ.get("GPUPOOL_TORCH_PYTHON", sys.executable)

pytestmark = [
    pytest.mark.skipif(not native_worker_is_built(), reason="native parts not built"),
    pytest.mark.slow,
]

FULL = sum(range(1000))
SAID = [
    f"launch {3 * FULL}",
    "variable 3",
    f"stream {5 * FULL} timed",
    f"graph {7 * FULL}",
    "attributes sensible",
    "refused cudaErrorInvalidConfiguration cudaErrorInvalidConfiguration cudaErrorInvalidConfiguration",
    "then cudaSuccess",
    "done",
]


@pytest.fixture(scope="module")
def stack() -> Iterator[PoolAndNode]:
    with PoolAndNode(real_worker=True) as running:
        yield running


def build(major: int, folder: Path) -> Path:
    """The program, compiled without nvcc and linked with our library of this major version."""
    headers = subprocess.run(
        [sys.executable, ROOT / "src" / "cudart" / "find_runtime_headers.py", str(major)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    program = folder / f"program{major}"
    subprocess.run(
        [
            *(
                "cc",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-o",
                program,
                ROOT / "tests" / "support" / "runtime_program.c",
            ),
            *("-isystem", ROOT / "src" / "cudart" / "include", "-isystem", headers),
            native_file("cudart", f"libcudart.so.{major}"),
        ],
        check=True,
    )
    return program


@pytest.mark.parametrize("major", [12, 13])
def test_a_program_that_registers_its_kernels_runs_on_a_share(
    stack: PoolAndNode, tmp_path: Path, major: int
) -> None:
    done = stack.gpupool("run", "-p", "0.2", "--", str(build(major, tmp_path)), seconds=60)
    assert done.stdout.splitlines() == [f"runtime {major}", *SAID], done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize("major", [12, 13])
def test_the_same_program_runs_on_the_software_gpu_alone(tmp_path: Path, major: int) -> None:
    native = native_directory()
    environment = os.environ | {"LD_LIBRARY_PATH": f"{native}/softgpu:{native}/cudart"}
    done = subprocess.run(
        [build(major, tmp_path)], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.splitlines() == [f"runtime {major}", *SAID], done.stderr


@pytest.mark.parametrize("major", [12, 13])
def test_without_a_driver_the_runtime_says_so_and_crashes_nothing(tmp_path: Path, major: int) -> None:
    environment = os.environ | {"LD_LIBRARY_PATH": str(native_directory() / "cudart")}
    done = subprocess.run(
        [build(major, tmp_path)], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stdout.splitlines()[1].startswith(
        "malloc: cudaErrorInsufficientDriver, CUDA driver version is"
    )


TORCH = """
import torch, triton, triton.language as tl

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)

def on_device(tensor):
    return torch.empty_like(tensor, device="cuda").copy_(tensor)

n = 10_000
a, b = torch.randn(n), torch.randn(n)
x, y = on_device(a), on_device(b)
out = torch.empty(n, device="cuda")
add[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
print("triton", torch.equal(out.cpu(), a + b))
compiled = torch.compile(lambda x, y: torch.sin(x) * y + 1)
print("compiled", torch.allclose(compiled(x, y).cpu(), torch.sin(a) * b + 1, atol=1e-6))
print("memory", torch.cuda.mem_get_info()[1] >> 20)
"""


def test_triton_and_torch_compile_compute_on_a_share(stack: PoolAndNode, tmp_path: Path) -> None:
    """PyTorch's own kernels are machine code for real GPUs; what Triton compiles for it is PTX."""
    probe = "import sys, importlib.util as u, torch; sys.exit(torch.version.cuda is None or u.find_spec('triton') is None)"
    have = subprocess.run([TORCH_PYTHON, "-c", probe], capture_output=True, check=False)
    if have.returncode != 0:
        pytest.skip("PyTorch with CUDA is not installed; name a Python that has it in GPUPOOL_TORCH_PYTHON")
    environment = stack.environment | {
        "TRITON_CACHE_DIR": str(tmp_path / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
    }
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(TORCH))
    command = stack.command("run", "-m", "1024", "--", TORCH_PYTHON, str(program))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=170, check=False)
    assert done.stdout.splitlines() == ["triton True", "compiled True", "memory 1024"], done.stderr
