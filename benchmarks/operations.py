"""How fast the software GPU's math libraries are, beside the same operations in PyTorch on the CPU."""

from __future__ import annotations

import json as json_text
import os
import subprocess
from pathlib import Path
from typing import Any, Final

from gpupool.client.child_environment import software_gpu_environment
from gpupool.client.native import native_directory

from benchmarks.results import Target, beside_bounds, machine, publish
from benchmarks.roundtrips import torch_python
from benchmarks.worker_process import WorkerError

#: The CPU's time to the software GPU's, and the bound that the project set itself.
TARGETS: Final[tuple[Target, ...]] = (
    ("product", "product of matrices, f32, 1024 x 1024", ">=", 0.9),
    ("convolution", "convolution 3 x 3, 16 x 64 x 56 x 56", ">=", 0.9),
    ("fft", "FFT of 2^20 complex numbers", ">=", 0.9),
)
#: Of a result, in proportion to its largest number: other orders of adding up differ by less.
_MOST_ERROR: Final = 1e-5
_LIMIT_SECONDS: Final = 300.0
_PROGRAM: Final = Path(__file__).with_name("torch_operations.py")


def measure(rounds: int = 31) -> dict[str, Any]:
    """Runs the measurement.

    Args:
        rounds: of each operation, on the CPU and on the device in turns.

    Returns:
        For each of :data:`TARGETS` medians: ``cpu_seconds``, ``device_seconds``, the ``ratio`` of the first to the second in
        one round, and the ``error`` of the result in proportion to its largest number. Beside them ``torch``, ``threads``
        and ``machine``.

    Raises:
        NoPyTorchError: there is nothing to measure with.
        WorkerError, RuntimeMissingError: the native parts do not work, or compute something else than the CPU.
    """
    done = subprocess.run(
        [torch_python(), str(_PROGRAM), str(rounds)],
        env={**os.environ, **software_gpu_environment(native_directory(), os.environ)},
        capture_output=True,
        text=True,
        timeout=_LIMIT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise WorkerError(done.stderr.strip())
    found: dict[str, Any] = json_text.loads(done.stdout)
    wrong = {key: found[key]["error"] for key, _, _, _ in TARGETS if not found[key]["error"] <= _MOST_ERROR}
    if wrong:
        raise WorkerError(f"the software GPU computes something else than the CPU: {wrong}")
    return {**found, "machine": machine()}


def main(json: bool) -> int:
    """Measures and prints; 0, or 1 with one sentence on standard error."""
    return publish("operations", measure, report, json=json)


def report(figures: dict[str, Any]) -> str:
    """The figures for people."""
    ratios = {key: figures[key]["ratio"] for key, _, _, _ in TARGETS}
    title = f"CPU's time to the software GPU's, {figures['threads']} threads"
    return "\n".join(beside_bounds(TARGETS, ratios, digits=2, title=title)) + "\n"
