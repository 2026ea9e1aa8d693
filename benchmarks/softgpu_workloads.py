"""The kernels that ``gpupool bench softgpu`` runs, each with the C loop that does the same work.

A workload computes the same on both sides, and says how far the results are apart: figures of a wrong result
are worth nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from benchmarks.softgpu_device import Device

KERNELS: Final = Path(__file__).with_name("softgpu_kernels")

SAXPY_ELEMENTS: Final = 4 << 20
CACHE_ELEMENTS: Final = 16 << 10
CACHE_ROUNDS: Final = 64
REDUCTION_ELEMENTS: Final = 4 << 20
REDUCTION_BLOCKS: Final = 64
IMAGE: Final = (1024, 128, 256)  # width, height, limit of steps
MATRIX: Final = 256
TRITON_MATRIX: Final = 512
_TRITON_TILE: Final = 64
_THREADS: Final = 256
_FACTOR: Final = 0.5

_Bytes: TypeAlias = ctypes.Array[ctypes.c_char]


@dataclass(frozen=True, slots=True)
class Workload:
    """One piece of work, ready to run on either side.

    ``error`` compares the results of one run of each (call it after ``prepare`` and one run of both): the largest
    difference, or for images the part of the pixels that differs. More than ``tolerance`` is a wrong result.
    """

    units: int  # of work: elements, pixels, or multiplications; what a smaller run is scaled by
    prepare: Callable[[], None]
    native: Callable[[], object]
    device: Callable[[], None]
    error: Callable[[], float]
    tolerance: float


class Workloads:
    """Makes workloads on one device, by their key in the figures."""

    def __init__(self, device: Device, loops: ctypes.CDLL) -> None:
        self._device = device
        self._loops = loops
        self._module = device.load((KERNELS / "kernels.ptx").read_bytes())
        self._makers: dict[str, Callable[[], Workload]] = {
            "saxpy": lambda: self._saxpy(SAXPY_ELEMENTS, 1),
            "saxpy_cache": lambda: self._saxpy(CACHE_ELEMENTS, CACHE_ROUNDS),
            "reduction": lambda: self._sum("reduction", REDUCTION_BLOCKS),
            "barrier": lambda: self._sum("barrier", REDUCTION_ELEMENTS // _THREADS),
            "mandelbrot": self._mandelbrot,
            "matmul": lambda: self._matmul(MATRIX, self._loops.matmul),
            "matmul_textbook": lambda: self._matmul(MATRIX, self._loops.matmul_textbook),
            "triton_matmul": lambda: self._triton_matmul(TRITON_MATRIX),
        }

    def make(self, name: str) -> Workload:
        """The workload with that key. Raises KeyError, DriverError."""
        return self._makers[name]()

    def seconds_of_launches(self, count: int, *, wait_each: bool) -> float:
        """Of ``count`` launches of an empty kernel, and the wait for the last one or for each."""
        kernel = self._device.kernel(self._module, "empty")
        entries = self._device.entry("cuLaunchKernel"), self._device.entry("cuCtxSynchronize")
        seconds: float = self._loops.launches(*entries, kernel, count, int(wait_each))
        if seconds < 0:
            raise RuntimeError("an empty kernel could not be launched")
        return seconds

    def _floats(self, count: int, seed: int | None = None) -> _Bytes:
        made = ctypes.create_string_buffer(4 * count)
        if seed is not None:
            self._loops.fill(count, seed, made)
        return made

    def _saxpy(self, count: int, rounds: int) -> Workload:
        x, y, result = self._floats(count, 1), self._floats(count, 2), self._floats(count)
        kernel = self._device.kernel(self._module, "saxpy")
        at_x, at_y = self._device.put(x), self._device.put(y)
        arguments = ctypes.c_int(count), ctypes.c_float(_FACTOR), ctypes.c_uint64(at_x), ctypes.c_uint64(at_y)

        def prepare() -> None:
            self._loops.fill(count, 2, y)
            self._device.fill(at_y, y)

        def error() -> float:
            self._device.get(at_y, result)
            return float(self._loops.difference(count, y, result))

        grid = count // _THREADS, rounds, 1
        return Workload(
            units=count * rounds,
            prepare=prepare,
            native=lambda: self._loops.saxpy(count, _FACTOR, x, y, rounds),
            device=lambda: self._device.launch(kernel, grid, (_THREADS, 1, 1), arguments),
            error=error,
            tolerance=0.0,  # multiples of 1/16: exact
        )

    def _sum(self, name: str, blocks: int) -> Workload:
        count = REDUCTION_ELEMENTS
        x, sums = self._floats(count, 3), self._floats(blocks)
        kernel = self._device.kernel(self._module, name)
        at_x, at_sums = self._device.put(x), self._device.put(sums)
        arguments = ctypes.c_int(count), ctypes.c_uint64(at_x), ctypes.c_uint64(at_sums)

        def error() -> float:
            # All sums are exact: multiples of 1/8 far below 2 ** 20.
            self._device.get(at_sums, sums)
            return abs(float(self._loops.sum(blocks, sums)) - float(self._loops.sum(count, x)))

        return Workload(
            units=count,
            prepare=lambda: None,
            native=lambda: self._loops.sum(count, x),
            device=lambda: self._device.launch(kernel, (blocks, 1, 1), (_THREADS, 1, 1), arguments),
            error=error,
            tolerance=0.0,
        )

    def _mandelbrot(self) -> Workload:
        width, height, limit = IMAGE
        image, result = self._floats(width * height), self._floats(width * height)
        kernel = self._device.kernel(self._module, "mandelbrot")
        at_image = self._device.put(result)
        arguments = *(ctypes.c_int(number) for number in IMAGE), ctypes.c_uint64(at_image)

        def error() -> float:
            self._device.get(at_image, result)
            return float(self._loops.unequal(width * height, image, result)) / (width * height)

        return Workload(
            units=width * height,
            prepare=lambda: None,
            native=lambda: self._loops.mandelbrot(width, height, limit, image),
            device=lambda: self._device.launch(kernel, (width // 64, height, 1), (64, 1, 1), arguments),
            error=error,
            # Two compilers contract to fused operations differently, which moves a few points of the border.
            tolerance=0.02,
        )

    def _matmul(self, n: int, loop: Callable[..., None]) -> Workload:
        a, b, c, result = (
            self._floats(n * n, 4),
            self._floats(n * n, 5),
            self._floats(n * n),
            self._floats(n * n),
        )
        kernel = self._device.kernel(self._module, "matmul")
        at_a, at_b, at_c = self._device.put(a), self._device.put(b), self._device.put(c)
        arguments = ctypes.c_int(n), ctypes.c_uint64(at_a), ctypes.c_uint64(at_b), ctypes.c_uint64(at_c)

        def error() -> float:
            self._device.get(at_c, result)
            return float(self._loops.difference(n * n, c, result))

        return Workload(
            units=n**3,
            prepare=lambda: None,
            native=lambda: loop(n, a, b, c),
            device=lambda: self._device.launch(kernel, (n // 16, n // 16, 1), (16, 16, 1), arguments),
            error=error,
            tolerance=0.0,
        )

    def _triton_matmul(self, n: int) -> Workload:
        """f16 factors and f32 sums with mma.sync; the loop beside it is f32 throughout."""
        ptx = (KERNELS / "matmul_triton.ptx").read_bytes()
        shared = int(ptx.splitlines()[0].split()[-1])
        kernel = self._device.kernel(self._device.load(ptx), "matmul", shared)
        a, b, c, result = (
            self._floats(n * n, 6),
            self._floats(n * n, 7),
            self._floats(n * n),
            self._floats(n * n),
        )
        half = ctypes.create_string_buffer(2 * n * n)
        self._loops.to_half(n * n, a, half)
        at_a = self._device.put(half)
        self._loops.to_half(n * n, b, half)
        at_b, at_c = self._device.put(half), self._device.put(c)
        # Triton adds two pointers for scratch memory, which this kernel does not use.
        arguments = (
            *(ctypes.c_uint64(address) for address in (at_a, at_b, at_c)),
            ctypes.c_int(n),
            ctypes.c_uint64(0),
            ctypes.c_uint64(0),
        )
        grid = n // _TRITON_TILE, n // _TRITON_TILE, 1

        def error() -> float:
            self._device.get(at_c, result)
            return float(self._loops.difference(n * n, c, result))

        return Workload(
            units=n**3,
            prepare=lambda: None,
            native=lambda: self._loops.matmul(n, a, b, c),
            device=lambda: self._device.launch(kernel, grid, (128, 1, 1), arguments, shared),
            error=error,
            tolerance=0.0,
        )
