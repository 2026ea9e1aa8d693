"""numba-cuda on the software GPU alone: no pool, no client runtime, NVIDIA's Python packages unchanged.

Each program runs in a process of its own, with the software driver first on the library path and a
`libnvJitLink` that links nothing preloaded, so that numba hands over PTX. The program checks its numbers and prints `ok`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest
from gpupool.client.native import native_directory

SOFTGPU = native_directory() / "softgpu"
COMPAT = native_directory() / "compat" / "libnvJitLink.so.13"

pytestmark = [
    # Not imported: that takes most of a second in each process of a test run, and only the programs need it.
    pytest.mark.skipif(find_spec("numba_cuda") is None, reason="numba-cuda is not installed"),
    pytest.mark.skipif(
        not (SOFTGPU / "libcuda.so.1").exists(), reason="the native parts are not built (make build)"
    ),
]


def run(program: str, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "program.py"
    path.write_text("import numpy as np\nfrom numba import cuda\n" + textwrap.dedent(program))
    return subprocess.run(
        [sys.executable, "-W", "ignore", str(path)],
        env=dict(
            os.environ,
            LD_LIBRARY_PATH=str(SOFTGPU),
            LD_PRELOAD=str(COMPAT),
            GPUPOOL_SOFTGPU_MEMORY_MIB="512",
            **environment,
        ),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def run_ok(program: str, tmp_path: Path, **environment: str) -> str:
    result = run(program, tmp_path, **environment)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "ok", result.stdout
    return result.stdout


def test_vector_add(tmp_path: Path) -> None:
    run_ok(
        """
        @cuda.jit
        def add(x, y, out):
            i = cuda.grid(1)
            if i < out.size:
                out[i] = x[i] + y[i]

        n = 100_003
        x = np.arange(n, dtype=np.float32)
        out = np.zeros(n, np.float32)
        add[(n + 255) // 256, 256](x, 2 * x, out)
        assert np.array_equal(out, 3 * x)
        device = cuda.get_current_device()
        assert device.name == "Software GPU (gpupool)" and device.compute_capability == (12, 0)
        print("ok")
        """,
        tmp_path,
    )


def test_reduction_in_shared_memory(tmp_path: Path) -> None:
    run_ok(
        """
        from numba import float64

        @cuda.jit
        def block_sums(x, sums):
            tile = cuda.shared.array(256, float64)
            i, t = cuda.grid(1), cuda.threadIdx.x
            tile[t] = x[i] if i < x.size else 0.0
            cuda.syncthreads()
            step = 128
            while step > 0:
                if t < step:
                    tile[t] += tile[t + step]
                cuda.syncthreads()
                step //= 2
            if t == 0:
                sums[cuda.blockIdx.x] = tile[0]

        x = np.random.default_rng(1).random(50_000)
        blocks = (x.size + 255) // 256
        sums = np.zeros(blocks)
        block_sums[blocks, 256](x, sums)
        padded = np.zeros(blocks * 256)
        padded[: x.size] = x
        assert np.allclose(sums, padded.reshape(blocks, 256).sum(axis=1), rtol=1e-13)

        total = cuda.reduce(lambda a, b: a + b)(x)
        assert abs(total - x.sum()) < 1e-8 * x.sum()
        print("ok")
        """,
        tmp_path,
    )


def test_atomics_count_every_thread(tmp_path: Path) -> None:
    run_ok(
        """
        @cuda.jit
        def histogram(x, bins, largest):
            i = cuda.grid(1)
            if i < x.size:
                cuda.atomic.add(bins, x[i], 1)
                cuda.atomic.max(largest, 0, i)

        x = np.random.default_rng(2).integers(0, 17, 40_000).astype(np.int32)
        bins = np.zeros(17, np.int32)
        largest = np.zeros(1, np.int64)
        histogram[(x.size + 127) // 128, 128](x, bins, largest)
        assert np.array_equal(bins, np.bincount(x, minlength=17)) and largest[0] == x.size - 1
        print("ok")
        """,
        tmp_path,
    )


def test_streams_events_and_pinned_memory(tmp_path: Path) -> None:
    run_ok(
        """
        @cuda.jit
        def scale(x, factor):
            i = cuda.grid(1)
            if i < x.size:
                x[i] *= factor

        streams = [cuda.stream() for _ in range(4)]
        hosts = [cuda.pinned_array(10_000, dtype=np.float64) for _ in streams]
        start, end = cuda.event(), cuda.event()
        start.record(streams[0])
        for k, (stream, host) in enumerate(zip(streams, hosts)):
            host[:] = np.arange(host.size)
            on_device = cuda.to_device(host, stream=stream)
            for _ in range(3):
                scale[40, 256, stream](on_device, k + 1.0)
            on_device.copy_to_host(host, stream=stream)
        end.record(streams[0])
        cuda.synchronize()
        for k, host in enumerate(hosts):
            assert np.array_equal(host, np.arange(host.size) * (k + 1.0) ** 3)
        assert cuda.event_elapsed_time(start, end) > 0
        print("ok")
        """,
        tmp_path,
    )


def test_device_print_reaches_stdout_at_synchronisation(tmp_path: Path) -> None:
    output = run_ok(
        """
        @cuda.jit
        def hello(x):
            i = cuda.grid(1)
            print("thread", i, x[i])

        x = np.array([1.5, 2.5, 3.5])
        hello[1, 3](x)
        cuda.synchronize()
        print("ok")
        """,
        tmp_path,
        PYTHONUNBUFFERED="1",
    )
    assert sorted(output.splitlines()[:3]) == ["thread 0 1.500000", "thread 1 2.500000", "thread 2 3.500000"]


def test_a_cooperative_grid_synchronises(tmp_path: Path) -> None:
    run_ok(
        """
        @cuda.jit
        def rotate(values, rounds):
            grid = cuda.cg.this_grid()
            i = cuda.grid(1)
            for _ in range(rounds):
                mine = values[(i + 1) % values.size]
                grid.sync()
                values[i] = mine
                grid.sync()

        values = np.arange(512, dtype=np.int64)
        expected = np.roll(values, -10)
        rotate[4, 128](values, 10)
        assert np.array_equal(values, expected)
        print("ok")
        """,
        tmp_path,
    )


def test_out_of_memory_is_an_error_one_can_recover_from(tmp_path: Path) -> None:
    run_ok(
        """
        from numba.cuda.cudadrv.driver import CudaAPIError

        try:
            cuda.device_array(1 << 30, np.uint8)
        except CudaAPIError as error:
            assert "CUDA_ERROR_OUT_OF_MEMORY" in str(error), error
        else:
            raise AssertionError("1 GiB fits nowhere in 512 MiB")
        free, total = cuda.current_context().get_memory_info()
        assert total == 512 << 20 and free > 500 << 20
        small = cuda.to_device(np.arange(10))
        assert small.copy_to_host().sum() == 45
        print("ok")
        """,
        tmp_path,
    )


def test_an_illegal_address_is_reported_and_ends_the_context_not_the_process(tmp_path: Path) -> None:
    result = run(
        """
        @cuda.jit
        def wild(x):
            x[1 << 40] = 1.0

        x = cuda.to_device(np.zeros(8))
        wild[1, 1](x)
        try:
            cuda.synchronize()
        except Exception as error:
            assert "CUDA_ERROR_ILLEGAL_ADDRESS" in str(error), error
            print("ok", flush=True)
        import os

        os._exit(0)
        """,
        tmp_path,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "ok"
    assert "wild" in result.stderr  # the log names the kernel
