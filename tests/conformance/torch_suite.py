"""`make conformance-torch-suite TORCH=<sources>`: a sample of PyTorch's own tests on the software GPU.

`TORCH` is a copy of PyTorch's sources of the wheel's version; of it the folder `test` is used. GPUPOOL_TORCH_PYTHON is an
interpreter with PyTorch for CUDA, for which a kernel pack was built (`gpupool kernel-packs build`), and with expecttest,
hypothesis, pytest and pytest-timeout.

Leaves build/conformance/torch-suite.json with the outcomes and the failures by cause. A crash costs one test.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import sys
from pathlib import Path
from typing import Final

from tests.conformance.module_runs import TEST_SECONDS, Module, Outcomes, cause, run_suite
from tests.conformance.torch_train import CAPABILITY, GPUPOOL, ROOT

MODULES: Final = ("test_torch", "test_nn", "test_autograd")
RESULTS: Final = ROOT / "build" / "conformance"
#: What PyTorch and the driver say of a kernel that the pack does not have.
LACKS: Final = ("no kernel image is available", "device kernel image is invalid", "the kernel pack of")


def modules(sources: Path, python: str) -> list[Module]:
    """Each file of tests as a process, on a software GPU of its own."""
    alone = [*GPUPOOL, "softgpu", "--compute-capability", CAPABILITY, "--"]
    options = [
        "-q", "-p", "tests.conformance.outcome_log", "-p", "tests.conformance.torch_suite_plugin", "-p", "no:cacheprovider",
        # PyTorch's own conftest is for an older pytest, and only for its CI.
        "--noconftest", "-c", os.devnull, "--rootdir", str(sources), f"--timeout={TEST_SECONDS}", "--timeout-method=thread",
    ]  # fmt: skip
    return [
        Module(name, (*alone, python, "-m", "pytest", *options, str(sources / "test" / f"{name}.py")))
        for name in MODULES
    ]


def why(outcome: str, detail: str) -> str:
    """A short reason to group failures by."""
    if any(words in detail for words in LACKS):
        return "the pack has no such kernel"
    return cause(outcome, detail)


def write_result(found: Outcomes, seed: str) -> None:
    """Leaves the result on disk and says the shares."""
    counted = {test: result for test, result in found.items() if result[0] not in ("skipped", "xfailed")}
    causes: dict[str, list[str]] = collections.defaultdict(list)
    for test, (outcome, detail) in sorted(counted.items()):
        if outcome != "passed":
            causes[why(outcome, detail)].append(test)
    by_module = {
        name: dict(collections.Counter(found[test][0] for test in found if test.startswith(f"{name}::")))
        for name in MODULES
    }
    result = {
        "seed": seed,
        "outcomes": by_module,
        "failed_by_cause": dict(sorted(causes.items(), key=lambda item: -len(item[1]))),
        "details": {test: found[test][1] for tests in causes.values() for test in tests},
    }
    path = RESULTS / "torch-suite.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    passed = len(counted) - sum(map(len, causes.values()))
    print(f"torch: {passed} of {len(counted)} tests pass; see {path.relative_to(ROOT)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--sample", type=int, default=200, help="tests of each file [default: 200]")
    parser.add_argument("--seed", default="1", help="which tests [default: 1]")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    python = os.environ.get("GPUPOOL_TORCH_PYTHON")
    if not python:
        print("skipped: GPUPOOL_TORCH_PYTHON names no Python with PyTorch for which a kernel pack was built")
        return 0
    environment = dict(
        os.environ,
        PYTHONPATH=str(ROOT),
        PYTORCH_TESTING_DEVICE_ONLY_FOR="cuda",
        CONFORMANCE_SAMPLE=str(options.sample),
        CONFORMANCE_SEED=options.seed,
    )
    found = run_suite(
        modules(options.sources.resolve(), python),
        environment,
        options.sources.resolve() / "test",
        RESULTS / "torch-suite",
        options.jobs,
        lambda module, test: f"{module.name}::{test.split('::', 1)[-1]}",
    )
    write_result(found, options.seed)
    empty = [name for name in MODULES if not any(test.startswith(f"{name}::") for test in found)]
    if empty:
        print(f"no test was collected of {', '.join(empty)}; see build/conformance/torch-suite")
    return 1 if empty or any(outcome == "crashed" for outcome, _ in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
