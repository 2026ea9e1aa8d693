"""`make conformance-triton TRITON_PYTHON=<interpreter>`: what Triton writes for compute capability 12.0, on the software GPU.

The interpreter has Triton 3.x; no GPU is needed. It compiles the kernels of `triton_sources.py` (those of Triton's
tutorials 01 to 06, and others for the types and operations that these leave out) and writes their PTX. Each must load;
the products of matrices are executed and compared with numpy's. Exit code 1 if one does not load or is wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.softgpu_values.device import Device, DriverError, device
from tests.softgpu_values.small_forms import FORMATS, to_small

SOURCES: Final = Path(__file__).with_name("triton_sources.py")
M = N = 128
K: Final = 192
TILE: Final = 64
#: type in triton_sources.py -> (stored as, largest error relative to the largest result)
_PLAIN: Final[dict[str, tuple[Any, float]]] = {
    "fp16": (np.float16, 2e-3),
    "fp32": (np.float32, 2e-3),
    "fp64": (np.float64, 1e-12),
    "i8": (np.int8, 0.0),
}


@dataclass(frozen=True, slots=True)
class Compiled:
    """One kernel as Triton made it."""

    name: str
    ptx: str
    entry: str
    shared: int
    threads: int
    case: dict[str, Any]


def compiled(python: str) -> list[Compiled]:
    """Has the interpreter with Triton compile all kernels."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, str(SOURCES), folder], check=True)
        return [Compiled(**json.loads(path.read_text())) for path in sorted(Path(folder).glob("*.json"))]


def operand(kind: str, shape: tuple[int, int], random: np.random.Generator) -> tuple[Any, Any]:
    """An array as it lies in memory, and its numbers."""
    if kind == "i8":
        made = random.integers(-100, 100, shape).astype(np.int8)
        return made, made.astype(np.float64)
    numbers = random.normal(size=shape)
    if kind == "bf16":
        bits = numbers.astype(np.float32).view(np.uint32) >> 16
        return bits.astype(np.uint16), (bits << 16).astype(np.uint32).view(np.float32).astype(np.float64)
    if kind in ("fp8e4nv", "fp8e5"):
        form = FORMATS["e4m3" if kind == "fp8e4nv" else "e5m2"]
        bits = to_small(numbers, form, "rn", False).astype(np.uint8)
        magnitude = form.values()[bits & 0x7F]
        return bits, np.where(bits >> 7, -magnitude, magnitude)
    made = numbers.astype(_PLAIN[kind][0])
    return made, made.astype(np.float64)


def result_type(kind: str) -> Any:
    return {"fp16": np.float16, "bf16": np.uint16, "fp32": np.float32, "fp64": np.float64, "i32": np.int32}[
        kind
    ]


def put(gpu: Device, array: Any) -> int:
    address = gpu.allocate(array.nbytes)
    gpu.write(address, array)
    return address


def launch(gpu: Device, kernel: Compiled, grid: tuple[int, int], arguments: list[int]) -> None:
    module = gpu.load(kernel.ptx)
    # Triton adds pointers to scratch memory, which these kernels do not use.
    padded = [*arguments, 0, 0, 0]
    module.launch_with(kernel.entry, grid, kernel.threads, kernel.shared, padded)
    module.unload()


def product_error(gpu: Device, kernel: Compiled) -> tuple[float, float]:
    """How far a product is from numpy's, relative to its largest number, and how far it may be."""
    case, random = kernel.case, np.random.default_rng(1)
    a, a_numbers = operand(case["a"], (M, K), random)
    b, b_numbers = operand(case["b"], (K, N), random)
    stored = np.ascontiguousarray(b.T) if case["transposed"] else b
    kind = result_type(case["c"])
    c = np.zeros((M, N), kind)
    addresses = [put(gpu, a), put(gpu, stored), put(gpu, c)]
    strides = [K, K if case["transposed"] else N, N]
    launch(gpu, kernel, (M // TILE, N // TILE), [*addresses, M, N, K, *strides])
    gpu.read(addresses[2], c)
    for address in addresses:
        gpu.free(address)
    got = (c.astype(np.uint32) << 16).view(np.float32) if case["c"] == "bf16" else c
    want = a_numbers @ b_numbers
    error = float(np.abs(got.astype(np.float64) - want).max() / np.abs(want).max())
    return error, {"bf16": 1e-2}.get(case["c"], _PLAIN.get(case["a"], (None, 2e-3))[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="an interpreter that has Triton 3.x")
    kernels = compiled(parser.parse_args().python)
    gpu = device()
    wrong = 0
    for kernel in kernels:
        try:
            if not kernel.case:
                gpu.load(kernel.ptx).unload()
                print(f"{kernel.name}: loads")
                continue
            error, allowed = product_error(gpu, kernel)
        except DriverError as failure:
            print(f"{kernel.name}: {failure}")
            wrong += 1
            continue
        wrong += error > allowed
        print(
            f"{kernel.name}: off by {error:.1e} of the largest ({'right' if error <= allowed else 'WRONG'})"
        )
    print(f"{len(kernels) - wrong} of {len(kernels)} kernels are right")
    return 1 if wrong or not kernels else 0


if __name__ == "__main__":
    sys.exit(main())
