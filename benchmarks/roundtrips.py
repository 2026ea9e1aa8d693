"""How often PyTorch waits for the network, and what a longer way to the GPU node costs it.

On the null driver, which executes nothing: what is left is the program's own time and the waiting.
"""

from __future__ import annotations

import json as json_text
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from gpupool.client.child_environment import environment
from gpupool.client.errors import GpupoolError

from benchmarks.lone_session import lone_session, null_driver
from benchmarks.network import Network, emulated
from benchmarks.results import Target, beside_bounds, machine, publish
from benchmarks.worker_process import WorkerError

#: The measured number of blocking round trips, and the bound that the project set itself.
TARGETS: Final[tuple[Target, ...]] = (
    ("init", 'torch.ones(1, device="cuda")', "<=", 5),
    ("adam_step", "Adam step, 200 parameters, .item()", "<=", 1),
)
#: Added to the round trip between client and worker, in microseconds.
DELAYS_US: Final = (0, 50, 500, 30_000)
#: An interpreter with PyTorch, if not this one.
TORCH_PYTHON_VARIABLE: Final = "GPUPOOL_TORCH_PYTHON"

_LIMIT_SECONDS: Final = 300.0
_PROGRAM: Final = Path(__file__).with_name("torch_steps.py")


class NoPyTorchError(GpupoolError):
    """There is no PyTorch with CUDA to measure with."""


def torch_python() -> str:
    """The interpreter to run PyTorch with. Raises NoPyTorchError."""
    python = os.environ.get(TORCH_PYTHON_VARIABLE) or sys.executable
    code = "import torch, sys; sys.exit(0 if torch.version.cuda else 1)"
    try:
        found = subprocess.run([python, "-c", code], capture_output=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoPyTorchError(f"{python} cannot be run: {error}") from error
    if found.returncode != 0:
        raise NoPyTorchError(
            f"{python} has no PyTorch with CUDA; {TORCH_PYTHON_VARIABLE} names an interpreter that has one."
        )
    return python


def measure(delays_us: Sequence[int] = DELAYS_US, steps: int = 20) -> dict[str, Any]:
    """Runs the measurement.

    Returns:
        ``init`` and ``adam_step`` (blocking round trips), ``details`` of both, ``delays`` (per added delay: step time,
        part of it spent waiting), ``machine``.

    Raises:
        NoPyTorchError: there is nothing to measure with.
        WorkerError, RuntimeMissingError: the native parts do not work.
    """
    python = torch_python()
    runs = {delay: _run(python, delay, steps) for delay in delays_us}
    base = runs[delays_us[0]]
    return {
        "init": max(run["init"]["round_trips"] for run in runs.values()),
        "adam_step": max(run["adam_step"]["round_trips"] for run in runs.values()),
        "details": {name: base[name] for name in ("init", "first_step", "adam_step")},
        "delays": [
            {
                "added_us": delay,
                "synchronize_us": run["synchronize_seconds"] * 1e6,
                "init_ms": run["init"]["seconds"] * 1e3,
                "first_step_ms": run["first_step"]["seconds"] * 1e3,
                "step_ms": run["adam_step"]["seconds"] * 1e3,
                "waiting": run["adam_step"]["waiting"],
            }
            for delay, run in runs.items()
        ],
        "torch": base["torch"],
        "machine": machine(),
    }


def _run(python: str, delay_us: int, steps: int) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory(prefix="gpupool-bench-") as name,
        lone_session(Path(name), null_driver()) as session,
    ):
        # Over TCP also where there is a quicker way between processes of one machine.
        variables = {**os.environ, "GPUPOOL_TRANSPORT": "tcp"}
        variables |= environment(None, session.file.path, software=False, preload=True)
        if delay_us:
            variables |= emulated(Network(delay_us))
        done = subprocess.run(
            [python, str(_PROGRAM), str(steps)],
            env=variables,
            capture_output=True,
            text=True,
            timeout=_LIMIT_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise WorkerError("\n".join(filter(None, (done.stderr.strip(), session.log()))))
    measured: dict[str, Any] = json_text.loads(done.stdout)
    return measured


def main(json: bool) -> int:
    """Measures and prints; 0, or 1 with one sentence on standard error."""
    return publish("roundtrips", measure, report, json=json)


def report(figures: dict[str, Any]) -> str:
    """The figures for people."""
    lines = beside_bounds(TARGETS, figures, digits=0, title="blocking round trips")
    lines.append("")
    lines.append(f"{'added delay':>14}{'synchronize':>14}{'step':>12}{'waiting':>10}")
    for row in figures["delays"]:
        lines.append(
            f"{row['added_us']:11} us{row['synchronize_us']:11.0f} us{row['step_ms']:9.1f} ms{row['waiting']:10.0%}"
        )
    return "\n".join(lines) + "\n"
