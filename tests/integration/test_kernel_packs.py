"""A library with machine code only runs on the software GPU after `gpupool kernel-packs build`, alone and through a pool."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.client.native import native_directory

from tests.support.pool_node import PoolAndNode, native_worker_is_built

SOURCE = """
#include <cstdio>
namespace {
__device__ int launches = 40;
__global__ void count(int* out) { *out = atomicAdd(&launches, 1); }
__global__ void last(int* out) { *out = launches; }
}
template <class T> __global__ void add(T* out, T a, T b) { *out = a + b; }
template <class T> int sum(T a, T b, T* result) {
  T* out;
  if (cudaMalloc(&out, sizeof(T)) != cudaSuccess) return -1;
  add<T><<<1, 1>>>(out, a, b);
  const int error = cudaGetLastError();
  if (error == cudaSuccess) cudaMemcpy(result, out, sizeof(T), cudaMemcpyDeviceToHost);
  return error;
}
extern "C" int sum_of_ints(int a, int b, int* result) { return sum<int>(a, b, result); }
#ifndef WITHOUT_DOUBLES
extern "C" int sum_of_doubles(double a, double b, double* result) { return sum<double>(a, b, result); }
#endif
#ifndef WITHOUT_DOUBLES
// As CUB does, whose callers look at the last error alone.
extern "C" int sum_and_clear(double a, double* result) {
  double* out;
  cudaFuncAttributes attributes;
  if (cudaFuncGetAttributes(&attributes, add<double>) != cudaSuccess) return -2;
  if (cudaMalloc(&out, sizeof(double)) != cudaSuccess) return -1;
  add<double><<<1, 1>>>(out, a, a);
  if (cudaPeekAtLastError() != cudaSuccess) cudaGetLastError();
  if (const int error = cudaGetLastError()) return -error;
  const int error = cudaMemcpy(result, out, sizeof(double), cudaMemcpyDeviceToHost);
  return cudaGetLastError() == error && cudaDeviceSynchronize() == cudaSuccess ? error : -3;
}
#endif
extern "C" int count_twice(int* result) {
  int* out;
  if (cudaMalloc(&out, sizeof(int)) != cudaSuccess) return -1;
  count<<<1, 1>>>(out);
  count<<<1, 1>>>(out);
  last<<<1, 1>>>(out);
  return cudaMemcpy(result, out, sizeof(int), cudaMemcpyDeviceToHost);
}
"""

PROGRAM = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
whole, real = ctypes.c_int(), ctypes.c_double()
print("ints", library.sum_of_ints(2, 3, ctypes.byref(whole)), whole.value)
print("doubles", library.sum_of_doubles(ctypes.c_double(0.5), ctypes.c_double(0.25), ctypes.byref(real)), real.value)
print("cleared", library.sum_and_clear(ctypes.c_double(0.5), ctypes.byref(real)), real.value)
print("count", library.count_twice(ctypes.byref(whole)), whole.value)
"""

pytestmark = [
    pytest.mark.skipif(not native_worker_is_built(), reason="native parts not built"),
    pytest.mark.slow,
]

NO_BINARY = 209


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolAndNode]:
    """A pool with a node that looks for kernel packs in a folder of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        with PoolAndNode(real_worker=True) as running:
            yield running


PARTS = {
    "first.cu": """
template <class T> __global__ void twice(T* value) { *value *= 2; }
extern "C" int first(int* value) { twice<<<1, 1>>>(value); return cudaGetLastError(); }
""",
    "second.cu": """
__device__ int calls = 100;
template <class T> __global__ void twice(T* value) { *value *= 2; }
__global__ void add_calls(int* value) { *value += calls++; }
extern "C" int first(int* value);
extern "C" int run(int* result) {
  int* value;
  if (cudaMalloc(&value, sizeof(int)) != cudaSuccess) return -1;
  cudaMemcpy(value, result, sizeof(int), cudaMemcpyHostToDevice);
  if (const int error = first(value)) return error;
  twice<<<1, 1>>>(value);
  add_calls<<<1, 1>>>(value);
  add_calls<<<1, 1>>>(value);
  return cudaMemcpy(result, value, sizeof(int), cudaMemcpyDeviceToHost);
}
""",
}


@pytest.fixture(scope="module")
def nvcc() -> str:
    found = shutil.which("nvcc")
    if found is None:
        pytest.skip("there is no nvcc in PATH")
    return found


@pytest.fixture(scope="module")
def linked_library(nvcc: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that was compiled in parts, with PTX, and then linked, which leaves machine code alone."""
    return link(nvcc, tmp_path_factory.mktemp("linked"), "code=[sm_80,compute_80]")


def link(nvcc: str, folder: Path, kinds: str) -> Path:
    for name, text in PARTS.items():
        (folder / name).write_text(text)
    (folder / "program.py").write_text(
        "import ctypes, sys\nvalue = ctypes.c_int(5)\n"
        "print('run', ctypes.CDLL(sys.argv[1]).run(ctypes.byref(value)), value.value)\n"
    )
    made = folder / "liblinked.so"
    code = ["-Xcompiler", "-fPIC", "-gencode", f"arch=compute_80,{kinds}"]
    objects = [Path(name).with_suffix(".o").name for name in PARTS]
    runtime = native_directory() / "cudart" / "libcudart.so.13"
    # With `-cudart none` nvcc would not link the parts.
    for step in (
        ["-dc", *code, *PARTS],
        ["-dlink", *code, "-cudart", "shared", "-cudadevrt", "none", *objects, "-o", "linked.o"],
        [
            "-shared",
            "-cudart",
            "none",
            "-Xlinker",
            "--build-id",
            *objects,
            "linked.o",
            "-Xlinker",
            runtime,
            "-o",
            made,
        ],
    ):
        subprocess.run([nvcc, *step], check=True, cwd=folder)
    return made


@pytest.fixture(scope="module")
def library(nvcc: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of ours with machine code for compute capability 8.0 and no PTX."""
    folder = tmp_path_factory.mktemp("mine")
    source = folder / "mine.cu"
    source.write_text(SOURCE)
    (folder / "program.py").write_text(PROGRAM)
    made = folder / "libmine.so"
    options = ["-shared", "-Xcompiler", "-fPIC", "-cudart", "none", "-Xlinker", "--build-id"]
    runtime = native_directory() / "cudart" / "libcudart.so.13"
    subprocess.run(
        [nvcc, *options, "-gencode", "arch=compute_80,code=sm_80", source, "-Xlinker", runtime, "-o", made],
        check=True,
    )
    return made


def environment(tmp_path: Path) -> dict[str, str]:
    return dict(os.environ) | {"GPUPOOL_SOFTGPU_KERNEL_PACKS": str(tmp_path / "packs")}


def gpupool(environment: dict[str, str], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpupool.cli.main", *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def build(environment: dict[str, str], library: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return gpupool(
        environment,
        "kernel-packs",
        "build",
        "--library",
        library,
        "--file",
        library.with_name("mine.cu"),
        *more,
    )


def run_alone(environment: dict[str, str], library: Path) -> subprocess.CompletedProcess[str]:
    return gpupool(environment, "softgpu", "--", sys.executable, library.with_name("program.py"), library)


EXPECTED = ["ints 0 5", "doubles 0 0.75", "cleared 0 1.0", "count 0 42"]


def test_machine_code_runs_once_its_pack_is_built(library: Path, tmp_path: Path) -> None:
    with_packs = environment(tmp_path)
    before = run_alone(with_packs, library)
    assert before.stdout.splitlines()[0] == f"ints {NO_BINARY} 0"
    assert "kernel-packs build" in before.stderr

    built = build(with_packs, library)
    assert built.returncode == 0, built.stderr
    assert built.stdout.splitlines() == ["[1/1] mine.cu: 4 kernels"]
    after = run_alone(with_packs, library)
    assert after.stdout.splitlines() == EXPECTED, after.stderr

    again = build(with_packs, library)
    assert again.stdout.splitlines() == ["[1/1] mine.cu: 4 kernels (built before)"]
    assert "4 kernels of 1 files" in gpupool(with_packs, "kernel-packs", "list").stdout
    assert gpupool(with_packs, "kernel-packs", "verify").returncode == 0

    (file,) = (tmp_path / "packs").glob("*/mine.cu.kernels")
    file.write_bytes(file.read_bytes()[:-20])
    damaged = gpupool(with_packs, "kernel-packs", "verify")
    assert damaged.returncode == 1
    assert str(file) in damaged.stdout
    assert build(with_packs, library).stdout.splitlines() == ["[1/1] mine.cu: 4 kernels"]
    assert gpupool(with_packs, "kernel-packs", "verify").returncode == 0

    index = file.with_name("pack.json")
    index.write_text(index.read_text()[:20])
    damaged = gpupool(with_packs, "kernel-packs", "verify")
    assert damaged.returncode == 1
    assert str(index) in damaged.stdout
    assert build(with_packs, library).returncode == 0
    assert run_alone(with_packs, library).stdout.splitlines() == EXPECTED


def test_a_kernel_that_the_sources_do_not_have_is_named(library: Path, tmp_path: Path) -> None:
    with_packs = environment(tmp_path)
    built = build(with_packs, library, "--option=-DWITHOUT_DOUBLES")
    assert built.stdout.splitlines() == ["[1/1] mine.cu: 3 kernels, 1 more are in the library alone"]
    ran = run_alone(with_packs, library)
    assert ran.stdout.splitlines()[0] == "ints 0 5"
    assert ran.stdout.splitlines()[1] == f"doubles {NO_BINARY} 0.0"
    assert "add<double>" in ran.stderr


def test_a_launch_without_code_that_a_library_clears_is_told_by_the_next_call_that_waits(
    library: Path, stack: PoolAndNode, tmp_path: Path
) -> None:
    alone = run_alone(environment(tmp_path), library)
    assert alone.stdout.splitlines()[2] == f"cleared {NO_BINARY} 0.0", alone.stderr
    program = [sys.executable, str(library.with_name("program.py")), str(library)]
    pooled = stack.gpupool("run", "-p", "0.2", "--", *program, seconds=120)
    assert pooled.stdout.splitlines()[2] == f"cleared {NO_BINARY} 0.0", pooled.stderr


def test_sources_that_do_not_compile_are_named_with_the_compilers_error(
    library: Path, tmp_path: Path
) -> None:
    built = build(
        environment(tmp_path), library, "--option=-DSOURCE(", "--option=-include", "--option=nowhere.h"
    )
    assert built.returncode == 1
    assert "mine.cu" in built.stdout
    assert "nvcc ended with" in built.stdout


def test_it_runs_through_a_pool_whose_node_has_the_pack(library: Path, stack: PoolAndNode) -> None:
    built = build(stack.environment, library)
    assert built.returncode == 0, built.stderr
    program = [sys.executable, str(library.with_name("program.py")), str(library)]
    done = stack.gpupool("run", "-p", "0.2", "--", *program, seconds=120)
    assert done.stdout.splitlines() == EXPECTED, done.stderr


def test_a_linked_library_runs_with_the_ptx_of_its_own_parts(linked_library: Path, tmp_path: Path) -> None:
    with_packs = environment(tmp_path)
    before = run_alone(with_packs, linked_library)
    assert before.stdout.splitlines() == [f"run {NO_BINARY} 5"], before.stderr
    built = gpupool(with_packs, "kernel-packs", "build", "--library", linked_library)
    assert built.stdout.splitlines() == ["liblinked.so: 2 kernels"], built.stderr
    after = run_alone(with_packs, linked_library)
    assert after.stdout.splitlines() == [f"run 0 {5 * 4 + 100 + 101}"], after.stderr
    assert gpupool(with_packs, "kernel-packs", "verify").returncode == 0


def test_a_linked_library_without_any_ptx_runs_with_all_its_source_files(nvcc: str, tmp_path: Path) -> None:
    """Its machine code is one piece, whose kernels come from several files."""
    library = link(nvcc, tmp_path, "code=sm_80")
    with_packs = environment(tmp_path)
    files = [word for name in PARTS for word in ("--file", str(tmp_path / name))]
    built = gpupool(with_packs, "kernel-packs", "build", "--library", library, *files)
    assert built.returncode == 0, built.stderr
    after = run_alone(with_packs, library)
    assert after.stdout.splitlines() == [f"run 0 {5 * 4 + 100 + 101}"], after.stderr
    assert gpupool(with_packs, "kernel-packs", "verify").returncode == 0


def test_a_library_without_ptx_of_its_own_needs_its_sources(library: Path, tmp_path: Path) -> None:
    refused = gpupool(environment(tmp_path), "kernel-packs", "build", "--library", library)
    assert refused.returncode == 1
    assert str(library) in refused.stderr and "--file PATH" in refused.stderr
    assert not (tmp_path / "packs").exists()
