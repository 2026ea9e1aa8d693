"""`make conformance-torch-compile`: training under torch.compile on the software GPU, alone and through a pool.

A perceptron, an image network and a transformer, each some steps of forward, backward and optimizer, must lose on the
device what they lose on the CPU (``torch_compile_program.py``). GPUPOOL_TORCH_PYTHON is an interpreter with PyTorch for
CUDA and Triton.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.conformance.services import pool_and_node

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PROGRAM: Final = Path(__file__).with_name("torch_compile_program.py")
RESULT: Final = ROOT / "build" / "conformance" / "torch-compile.json"
GPUPOOL: Final = (sys.executable, "-m", "gpupool.cli.main")
#: How far a loss may be from the CPU's.
TOLERANCE: Final = 1e-4
MEMORY_MIB: Final = 1024


def right(result: dict[str, Any]) -> bool:
    """Whether both sides lose the same, and less with each step than at first."""
    pairs = list(zip(result["cpu"], result["device"], strict=True))
    return result["device"][-1] < result["device"][0] and all(abs(a - b) <= TOLERANCE for a, b in pairs)


def run(prefix: list[str], environment: dict[str, str], models: list[str]) -> list[dict[str, Any]]:
    """One result per model; one that ended with an error is missing, and what it said has been printed."""
    python = os.environ.get("GPUPOOL_TORCH_PYTHON", sys.executable)
    done = subprocess.run(
        [*prefix, python, str(PROGRAM), *models],
        env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["perceptron", "image network", "transformer"])
    parser.add_argument("--alone", action="store_true", help="only on the software GPU alone, without a pool")
    parser.add_argument("--pool", action="store_true", help="only through a pool")
    options = parser.parse_args()
    path = [str(ROOT), str(ROOT / "server"), sysconfig.get_path("purelib")]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path), TRITON_DEFAULT_FP_FUSION="1")
    both = options.alone == options.pool
    found: dict[str, list[dict[str, Any]]] = {}
    if both or options.alone:
        found["alone"] = run([*GPUPOOL, "softgpu", "--"], environment, options.models)
    if both or options.pool:
        with (
            tempfile.TemporaryDirectory(prefix="gpupool-") as home,
            pool_and_node(Path(home), 1, MEMORY_MIB) as services,
        ):
            prefix = [*GPUPOOL, "run", "-p", "0.3", "--wait", "120", "--"]
            named = dict(environment, GPUPOOL_HOME=services["GPUPOOL_HOME"])
            found["pool"] = run(prefix, named, options.models)
    failed = 0
    for place, results in found.items():
        by_name = {result["model"]: result for result in results}
        for model in options.models:
            result = by_name.get(model)
            good = result is not None and right(result)
            failed += not good
            print(f"{place:6} {model:16} {'same losses' if good else 'FAILED'}  {json.dumps(result)}")
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
