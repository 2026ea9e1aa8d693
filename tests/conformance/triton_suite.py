"""`make conformance-triton TRITON=<checkout>`: Triton's tutorials 01 to 06 and its language tests on the software GPU.

The checkout is one of the triton repository at the version that is installed, or near it; GPUPOOL_TORCH_PYTHON is an
interpreter with PyTorch for CUDA and Triton. Tutorials and tests are used where they lie; nothing of them is part of this
project.

What PyTorch's ready-made kernels would compute around Triton's is computed on the CPU (``eager_on_cpu.py``). A language
test counts if it *fails* while the software GPU executes nothing; a tutorial always counts. Left out is what asks for
hardware of its own kind: the tensor memory accelerator, warp specialisation, clusters.

Leaves build/conformance/triton-alone.json and triton.json (through the pool).
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from gpupool.client import software_gpu

from tests.conformance.module_runs import TEST_SECONDS, Module, Outcomes, cause, run_suite
from tests.conformance.services import pool_and_node

ROOT: Final = Path(__file__).resolve().parent.parent.parent
RESULTS: Final = ROOT / "build" / "conformance"
GPUPOOL: Final = (sys.executable, "-m", "gpupool.cli.main")
MEMORY_MIB: Final = 2048
#: Tests of the language that compile for any GPU from compute capability 8.0 on.
LANGUAGE: Final = (
    "core", "standard", "random", "conversions", "annotations", "decorator", "libdevice", "tuple",
)  # fmt: skip
TUTORIALS: Final = (
    "01-vector-add", "02-fused-softmax", "03-matrix-multiplication", "04-low-memory-dropout", "05-layer-norm",
    "06-fused-attention",
)  # fmt: skip
#: Compute capability by part: from 9.0 on the sixth tutorial wants the tensor memory accelerator.
CAPABILITY: Final = {"06-fused-attention": "8.6"}


def environment_of(sample: int, piece: int) -> dict[str, str]:
    path = [str(ROOT), str(ROOT / "server"), sysconfig.get_path("purelib")]
    return dict(
        os.environ,
        PYTHONPATH=os.pathsep.join(path),
        PYTHONDONTWRITEBYTECODE="1",
        CONFORMANCE_SAMPLE=str(sample),
        CONFORMANCE_PIECE=str(piece),
        # Without a word on it Triton 3.9 prints that it will change its mind.
        TRITON_DEFAULT_FP_FUSION="1",
    )


def language_modules(checkout: Path, python: str, prefix: list[str], only: str) -> list[Module]:
    made = []
    for name in LANGUAGE:
        path = checkout / "python" / "test" / "unit" / "language" / f"test_{name}.py"
        if only not in path.name or not path.exists():
            continue
        command = [
            *prefix, python, "-m", "pytest", "-q", "-p", "tests.conformance.outcome_log",
            "-p", "tests.conformance.triton_plugin", "-p", "no:cacheprovider", "-p", "no:asyncio", "-c", os.devnull,
            "--rootdir", str(checkout), f"--timeout={TEST_SECONDS}", "--timeout-method=thread", str(path),
        ]  # fmt: skip
        made.append(Module(name, tuple(command)))
    return made


def settings_of(tutorial: str) -> dict[str, str]:
    """What the software GPU that runs this tutorial is told."""
    return {software_gpu.COMPUTE_CAPABILITY: CAPABILITY[tutorial]} if tutorial in CAPABILITY else {}


def tutorials(
    chosen: Iterable[str], checkout: Path, python: str, prefix: list[str], environment: dict[str, str]
) -> Outcomes:
    """Each is a process of its own; one that fails is logged like a test."""
    outcomes: Outcomes = {}
    for tutorial in chosen:
        path = checkout / "python" / "tutorials" / f"{tutorial}.py"
        named = environment | settings_of(tutorial)
        done = subprocess.run(
            [*prefix, python, "-m", "tests.conformance.triton_tutorial", str(path)],
            env=named, cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        outcome = "passed" if done.returncode == 0 else "failed"
        outcomes[f"tutorials/{path.name}"] = outcome, "" if outcome == "passed" else done.stderr[-2000:]
        print(f"[tutorial {tutorial}] {outcome}", flush=True)
        if outcome == "failed":
            print(done.stderr[-2000:], flush=True)
    return outcomes


@contextlib.contextmanager
def pool(devices: int, settings: dict[str, str], environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """Yields the environment of programs that use this pool; `settings` are those of its software GPUs."""
    with (
        tempfile.TemporaryDirectory(prefix="gpupool-") as home,
        pool_and_node(Path(home), devices, MEMORY_MIB, settings) as services,
    ):
        yield dict(environment, GPUPOOL_HOME=services["GPUPOOL_HOME"])


def language(
    modules: list[Module], environment: dict[str, str], checkout: Path, title: str, jobs: int
) -> Outcomes:
    folder = checkout / "python" / "test" / "unit" / "language"
    return run_suite(
        modules,
        environment,
        folder,
        RESULTS / f"triton-{title}",
        jobs,
        lambda module, test: f"{module.name}::{test.split('::', 1)[-1]}",
    )


def write_result(name: str, found: Outcomes, idle: Outcomes | None, sample: int) -> None:
    """`idle`: what came of the language tests while nothing was executed; None: not tried, so every test counts."""
    passed_idle = {test for test, (outcome, _) in (idle or {}).items() if outcome == "passed"}
    skipped = {test: detail for test, (outcome, detail) in found.items() if outcome in ("skipped", "xfailed")}
    counted = [test for test in sorted(found) if test not in passed_idle and test not in skipped]
    causes: dict[str, list[str]] = collections.defaultdict(list)
    for test in counted:
        outcome, detail = found[test]
        if outcome != "passed":
            causes[cause(outcome, detail)].append(test)
    passed = len(counted) - sum(map(len, causes.values()))
    reasons = collections.Counter(detail.removeprefix("Skipped: ")[:100] for detail in skipped.values())
    result = {
        "every": sample,
        "discriminating": len(counted) if idle is not None else None,
        "counted": len(counted),
        "passed": passed,
        "ratio": round(passed / len(counted), 4) if counted else None,
        "all_tests": dict(collections.Counter(outcome for outcome, _ in found.values())),
        "failed_by_cause": dict(sorted(causes.items(), key=lambda item: -len(item[1]))),
        "skipped_by_reason": dict(reasons.most_common()),
        "details": {test: found[test][1] for tests in causes.values() for test in tests},
    }
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{name}: {passed} of {len(counted)} pass ({result['ratio']}); see {path.relative_to(ROOT)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", help="only files whose name contains this")
    parser.add_argument("--every", type=int, default=1, help="every how manieth test of each language module")
    parser.add_argument(
        "--piece", type=int, default=0, help="which of the samples that --every makes, from 0 on"
    )
    parser.add_argument("--alone", action="store_true", help="only on the software GPU alone, without a pool")
    parser.add_argument("--pool", action="store_true", help="only through a pool")
    parser.add_argument("--tutorials", action="store_true", help="only the tutorials")
    parser.add_argument("--language", action="store_true", help="only the language tests")
    parser.add_argument(
        "--no-baseline", action="store_true", help="count every test, do not try without execution"
    )
    options = parser.parse_args()
    if not 0 <= options.piece < options.every:
        parser.error(
            f"--piece {options.piece}: with --every {options.every} there are 0 to {options.every - 1}"
        )
    python = os.environ.get("GPUPOOL_TORCH_PYTHON", sys.executable)
    environment = environment_of(options.every, options.piece)
    both_parts = options.tutorials == options.language
    both_places = options.alone == options.pool
    shown = [name for name in TUTORIALS if options.only in f"tutorials/{name}.py"]
    if not (both_parts or options.tutorials):
        shown = []

    def tests(title: str, prefix: list[str], environment: dict[str, str]) -> Outcomes:
        if not (both_parts or options.language):
            return {}
        modules = language_modules(options.checkout, python, prefix, options.only)
        return language(modules, environment, options.checkout, title, options.jobs)

    alone = [*GPUPOOL, "softgpu", "--memory", str(MEMORY_MIB), "--"]
    idle = None
    if not options.no_baseline:
        idle = tests("idle", alone, dict(environment, GPUPOOL_SOFTGPU_EXECUTE="0"))
    if both_places or options.alone:
        found = tutorials(shown, options.checkout, python, alone, environment)
        found |= tests("alone", alone, environment)
        write_result("triton-alone", found, idle, options.every)
    if both_places or options.pool:
        found = {}
        prefix = [*GPUPOOL, "run", "-p", "1.0", "--wait", "120", "--"]
        with pool(options.jobs, {}, environment) as named:
            chosen = [tutorial for tutorial in shown if not settings_of(tutorial)]
            found |= tutorials(chosen, options.checkout, python, prefix, named)
            found |= tests("gpupool", prefix, named)
        # What the program is told does not reach the device of a pool: these need a node of their own.
        for tutorial in (tutorial for tutorial in shown if settings_of(tutorial)):
            with pool(1, settings_of(tutorial), environment) as named:
                found |= tutorials([tutorial], options.checkout, python, prefix, named)
        write_result("triton", found, idle, options.every)
    return 0


if __name__ == "__main__":
    sys.exit(main())
