"""One training step of whole models in unmodified eager PyTorch: through the pool, at several distances, beside the same step
directly on the same driver.

On the null driver, which executes nothing: what is left is the control flow. The ratio is what a share adds to it.
"""

from __future__ import annotations

import json as json_text
import os
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from gpupool.client.child_environment import environment, linked_libraries
from gpupool.client.native import native_directory

from benchmarks.lone_session import lone_session, null_driver
from benchmarks.network import Network, emulated
from benchmarks.results import machine, publish
from benchmarks.roundtrips import torch_python
from benchmarks.worker_process import WorkerError

MODELS: Final = ("mlp", "resnet", "gpt2")
#: Added to the round trip between client and worker, in microseconds.
DELAYS_US: Final = (0, 50, 500)
#: A step may wait once, for its own `loss.item()`.
MOST_BLOCKING: Final = 1
#: Of the step's time to that directly on the driver, by added delay.
MOST_RATIO: Final = {0: 1.10, 50: 1.10, 500: 1.15}
_LIMIT_SECONDS: Final = 300.0
_SHARE_MIB: Final = 8192
_MEDIANS: Final = (
    "messages", "seconds", "waited_seconds", "thread_cpu_seconds", "process_cpu_seconds", "ratio",
)  # fmt: skip
_PROGRAM: Final = Path(__file__).with_name("model_steps.py")


def measure(
    models: Sequence[str] = MODELS, delays_us: Sequence[int] = DELAYS_US, steps: int = 20, rounds: int = 3
) -> dict[str, Any]:
    """Runs the measurement.

    Args:
        models: which of :data:`MODELS`.
        delays_us: what is added to the round trip.
        steps: of each run that count, behind two that do not.
        rounds: runs of each model at each delay; the figures are their medians.

    Returns:
        For each model, for each delay (as text): ``blocking`` round trips and ``messages`` of a step, its ``seconds`` and
        those that it waited for answers, what its thread and its process computed, and the ``ratio`` of the step's time to
        ``direct_seconds``; or ``error``, where a model does not run. Beside them ``torch`` and ``machine``.

    Raises:
        NoPyTorchError: there is nothing to measure with.
        WorkerError, RuntimeMissingError: the native parts do not work.
    """
    python = torch_python()
    figures: dict[str, Any] = {}
    for model in models:
        try:
            figures[model] = _measure_model(python, model, delays_us, steps, rounds)
        except WorkerError as error:
            figures[model] = {"error": str(error).strip().splitlines()[-1]}
    return {**figures, "machine": machine()}


def _measure_model(
    python: str, model: str, delays_us: Sequence[int], steps: int, rounds: int
) -> dict[str, Any]:
    # Between two runs of a process the machine may become twice as fast or slow. So each run through the pool has a direct
    # one on either side, and the ratio is the median of several rounds.
    directly = [_run(python, model, steps, _direct())]
    runs: dict[int, list[dict[str, Any]]] = {delay: [] for delay in delays_us}
    for _ in range(rounds):
        for delay in delays_us:
            run = _through_the_pool(python, model, steps, delay)
            directly.append(_run(python, model, steps, _direct()))
            around = statistics.mean(one["seconds"] for one in directly[-2:])
            runs[delay].append(run | {"ratio": run["seconds"] / around})
    direct_seconds = statistics.median(one["seconds"] for one in directly)
    direct_cpu_seconds = statistics.median(one["thread_cpu_seconds"] for one in directly)
    return {
        str(delay): {
            "blocking": max(run["blocking"] for run in of_delay),
            "waited": of_delay[-1]["waited"],
            **{name: statistics.median(run[name] for run in of_delay) for name in _MEDIANS},
            "direct_seconds": direct_seconds,
            "direct_cpu_seconds": direct_cpu_seconds,
        }
        for delay, of_delay in runs.items()
    }


def _direct() -> dict[str, str]:
    """A process with the driver and the libraries for itself."""
    libraries = linked_libraries(native_directory())
    folders = [str(null_driver().parent), *sorted({str(path.parent) for path in libraries})]
    return {
        **os.environ,
        "LD_LIBRARY_PATH": ":".join([*folders, os.environ.get("LD_LIBRARY_PATH", "")]),
        "LD_PRELOAD": ":".join(str(path) for path in libraries),
    }


def _through_the_pool(python: str, model: str, steps: int, delay_us: int) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory(prefix="gpupool-bench-") as name,
        lone_session(Path(name), null_driver(), _SHARE_MIB) as session,
    ):
        # Over TCP also where there is a quicker way between processes of one machine.
        variables = {**os.environ, "GPUPOOL_TRANSPORT": "tcp"}
        variables |= environment(None, session.file.path, software=False, preload=True)
        if delay_us:
            variables |= emulated(Network(delay_us))
        return _run(python, model, steps, variables, session.log)


def _run(
    python: str, model: str, steps: int, variables: Mapping[str, str], log: Any = lambda: ""
) -> dict[str, Any]:
    done = subprocess.run(
        [python, str(_PROGRAM), model, str(steps)],
        env=dict(variables),
        capture_output=True,
        text=True,
        timeout=_LIMIT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise WorkerError("\n".join(filter(None, (log(), done.stderr.strip()))))
    measured: dict[str, Any] = json_text.loads(done.stdout)
    return measured


def main(json: bool) -> int:
    """Measures and prints; 0, or 1 with one sentence on standard error."""
    return publish("step", measure, report, json=json)


def report(figures: dict[str, Any]) -> str:
    """The figures for people."""
    lines = [
        f"{'model':10}{'added delay':>14}{'blocking':>10}{'messages':>10}{'step':>12}{'directly':>12}{'ratio':>8}"
    ]
    for model in MODELS:
        rows = figures.get(model, {})
        if "error" in rows:
            lines.append(f"{model:10}does not run: {rows['error']}")
            continue
        for delay, row in rows.items():
            lines.append(
                f"{model:10}{delay:>11} us{row['blocking']:10}{row['messages']:10.0f}{row['seconds'] * 1e3:9.1f} ms"
                f"{row['direct_seconds'] * 1e3:9.1f} ms{row['ratio']:8.2f}"
            )
    lines.append(
        f"bounds: {MOST_BLOCKING} blocking; ratio "
        + ", ".join(f"{v} at {k} us" for k, v in MOST_RATIO.items())
    )
    return "\n".join(lines) + "\n"
