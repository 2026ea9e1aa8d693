"""`make conformance-torch-train`: ordinary eager training with PyTorch, on the software GPU alone and through a pool.

A perceptron, an image network and a transformer must lose on the device what they lose on the CPU
(``torch_train_program.py``). GPUPOOL_TORCH_PYTHON is an interpreter with PyTorch for CUDA, for which a kernel pack was built
(`gpupool kernel-packs build --torch`). `--rounds 5`: CPU, alone and pool in turns, and the ratios are those of medians; one
round says little about times on a machine of two processors.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.conformance.services import pool_and_node

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PROGRAM: Final = Path(__file__).with_name("torch_train_program.py")
RESULT: Final = ROOT / "build" / "conformance" / "torch-train.json"
GPUPOOL: Final = (sys.executable, "-m", "gpupool.cli.main")
MODELS: Final = ("perceptron", "image network", "transformer")
#: How far a loss may be from the CPU's.
TOLERANCE: Final = 1e-4
MEMORY_MIB: Final = 2048
#: Of PyTorch's host code: it asks nothing of later devices that the kernel pack does not have.
CAPABILITY: Final = "8.0"


def run(prefix: list[str], environment: dict[str, str], device: str, models: list[str]) -> dict[str, Any]:
    """Results by model; of one that ended with an error there is none, and what it said has been printed."""
    python = os.environ.get("GPUPOOL_TORCH_PYTHON", sys.executable)
    done = subprocess.run(
        [*prefix, python, str(PROGRAM), device, *models],
        env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {result["model"]: result for result in results}


def right(result: dict[str, Any], cpu: dict[str, Any]) -> bool:
    """Whether both lose the same, and less at the end than at first."""
    pairs = list(zip(result["losses"], cpu["losses"], strict=True))
    return result["losses"][-1] < result["losses"][0] and all(abs(a - b) <= TOLERANCE for a, b in pairs)


def compare(found: dict[str, dict[str, Any]], models: list[str]) -> int:
    """Prints how each model came out beside the CPU; how many did not lose the same."""
    failed = 0
    for place in ("alone", "pool"):
        for model in models:
            result, cpu = found[place].get(model), found["cpu"].get(model)
            good = result is not None and cpu is not None and right(result, cpu)
            failed += not good
            print(
                f"{place:6} {model:14} {'same losses' if good else 'FAILED'}  {json.dumps(result)}  CPU {json.dumps(cpu)}"
            )
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=1, help="how often everything is run")
    arguments = parser.parse_args()
    models = arguments.models
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "server"))
    settings = {"GPUPOOL_SOFTGPU_COMPUTE_CAPABILITY": CAPABILITY}
    # The libraries that PyTorch is linked with are found in the same way as on the device.
    alone = [*GPUPOOL, "softgpu", "--compute-capability", CAPABILITY, "--"]
    failed = 0
    steps: dict[tuple[str, str], list[float]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="gpupool-") as home,
        pool_and_node(Path(home), 1, MEMORY_MIB, settings) as services,
    ):
        named = dict(environment, GPUPOOL_HOME=services["GPUPOOL_HOME"])
        for _ in range(arguments.rounds):
            found = {
                "cpu": run(alone, environment, "cpu", models),
                "alone": run(alone, environment, "cuda", models),
                "pool": run([*GPUPOOL, "run", "-p", "0.5", "--wait", "120", "--"], named, "cuda", models),
            }
            failed += compare(found, models)
            for place, results in found.items():
                for model, result in results.items():
                    steps.setdefault((place, model), []).append(result["step_ms"])
    medians = {at: statistics.median(times) for at, times in steps.items()}
    for model in models:
        cpu, own, pool = (medians.get((place, model)) for place in ("cpu", "alone", "pool"))
        if cpu and own and pool:
            print(
                f"{model:14} a step takes {own / cpu:.2f} of the CPU's alone, through the pool {pool / own:.2f} of that"
            )
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(
        json.dumps({f"{place} {model}": times for (place, model), times in steps.items()}, indent=1) + "\n"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
