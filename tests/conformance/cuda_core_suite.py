"""`make conformance-cuda-core CUDA_CORE=<checkout>`: cuda-core's own tests through client, wire, worker and software GPU.

The checkout is one of NVIDIA's cuda-python repository at the commit of an installed cuda-core (for version 0.6.0:
e44a83cb9); GPUPOOL_CUDA_CORE_PYTHON is the interpreter that has this cuda-core, pytest, pytest-timeout, numpy, psutil,
ml_dtypes, cuda-toolkit[cudart,cccl] and cython. Its tests are used where they lie; nothing of them is part of this project.

A test counts if it does not pass *without any driver*. Of those, the ones that also do not pass on the software GPU
with execution switched off tell whether kernels really ran. So the suite runs three times: without a driver, on the
software GPU that executes nothing, and through a pool, a node, a lease and a worker.

Leaves build/conformance/cuda-core.json with counts and, for what did not pass, causes.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from gpupool.client.child_environment import COMPAT_LIBRARIES, NVRTC_LIBRARY

from tests.conformance.module_runs import TEST_SECONDS, Module, Outcomes, cause, run_suite
from tests.conformance.services import pool_and_node

ROOT = Path(__file__).resolve().parent.parent.parent
NATIVE = Path(os.environ.get("GPUPOOL_NATIVE_DIR", ROOT / "server" / "gpupool" / "_native"))
WORK = ROOT / "build" / "conformance"
RESULT = WORK / "cuda-core.json"
#: Needs a compiler and a build of its own.
LEFT_OUT = ("cython",)
MEMORY_MIB = 4096


def modules_of(checkout: Path, python: str, plugins: list[str], prefix: list[str], only: str) -> list[Module]:
    tests = checkout / "cuda_core" / "tests"
    found = []
    for path in sorted(tests.rglob("test_*.py")):
        name = str(path.relative_to(tests))
        if path.relative_to(tests).parts[0] in LEFT_OUT or only not in name:
            continue
        command = [
            *prefix, python, "-m", "pytest", "-q", *(f"-p{plugin}" for plugin in ("outcome_log", *plugins)),
            "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(checkout),
            f"--timeout={TEST_SECONDS}", "--timeout-method=thread", str(path),
        ]  # fmt: skip
        found.append(Module(name.removesuffix(".py"), tuple(command)))
    return found


def toolkit_of(python: str) -> str:
    """The folder with the toolkit's headers beside the interpreter's packages; empty when there is none."""
    program = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    folder = Path(done.stdout.strip()) / "nvidia" / "cu13"
    return str(folder) if (folder / "include").is_dir() else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="only modules whose path contains this")
    parser.add_argument("--baseline", type=Path, help="take the baselines from this earlier result")
    options = parser.parse_args()
    python = os.environ.get("GPUPOOL_CUDA_CORE_PYTHON", sys.executable)
    base = dict(os.environ, PYTHONPATH=str(Path(__file__).parent), PYTHONDONTWRITEBYTECODE="1")
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH"):
        base.pop(name, None)
    toolkit = toolkit_of(python)
    if toolkit:
        base |= {"CUDA_PATH": toolkit, "CUDA_HOME": toolkit}

    def suite(title: str, environment: dict[str, str], plugins: list[str], prefix: list[str]) -> Outcomes:
        modules = modules_of(options.checkout, python, plugins, prefix, options.only)
        work = WORK / f"cuda-core-{title}"
        return run_suite(modules, environment, options.checkout, work, options.jobs, lambda _, test: test)

    if options.baseline:
        earlier = json.loads(options.baseline.read_text())
        passed_without, passed_idle = (
            set(earlier[name]) for name in ("passed_without_driver", "passed_idle")
        )
    else:
        without = suite("without-driver", base, ["without_driver"], [])
        passed_without = {test for test, (outcome, _) in without.items() if outcome == "passed"}
        preloaded = [str(NATIVE / "compat" / name) for name in (*COMPAT_LIBRARIES, NVRTC_LIBRARY)]
        idle_environment = dict(
            base,
            LD_LIBRARY_PATH=f"{NATIVE / 'softgpu'}:{NATIVE / 'client'}",
            LD_PRELOAD=":".join(preloaded),
            GPUPOOL_SOFTGPU_EXECUTE="0",
            GPUPOOL_SOFTGPU_MEMORY_MIB=str(MEMORY_MIB),
        )
        idle = suite("idle", idle_environment, [], [])
        passed_idle = {test for test, (outcome, _) in idle.items() if outcome == "passed"}

    with (
        tempfile.TemporaryDirectory(prefix="gpupool-") as home,
        pool_and_node(Path(home), options.jobs, MEMORY_MIB) as found,
    ):
        environment = dict(base, GPUPOOL_HOME=found["GPUPOOL_HOME"])
        prefix = [sys.executable, "-m", "gpupool.cli.main", "run", "-p", "1.0", "--wait", "120", "--"]
        through = suite("gpupool", environment, [], prefix)
    report(through, passed_without, passed_idle)
    return 0


def report(through: Outcomes, passed_without: set[str], passed_idle: set[str]) -> None:
    """Writes the result file and prints one line."""
    counted = {test: through[test] for test in sorted(through) if test not in passed_without}
    causes: dict[str, list[str]] = collections.defaultdict(list)
    skipped: dict[str, list[str]] = collections.defaultdict(list)
    for test, (outcome, detail) in counted.items():
        if outcome in ("skipped", "xfailed"):
            skipped[detail.removeprefix("Skipped: ")[:120]].append(test)
        elif outcome != "passed":
            causes[cause(outcome, detail)].append(test)
    passed = {test for test, (outcome, _) in counted.items() if outcome == "passed"}
    asked = len(counted) - sum(map(len, skipped.values()))
    kernels = [
        test for test in counted if test not in passed_idle and not any(test in s for s in skipped.values())
    ]
    result = {
        "all_tests": dict(collections.Counter(outcome for outcome, _ in through.values())),
        "pass_without_driver": len(set(through) & passed_without),
        "discriminating": asked,
        "passed": len(passed),
        "ratio": round(len(passed) / asked, 4) if asked else None,
        "kernels_must_run": len(kernels),
        "kernels_must_run_passed": len(passed & set(kernels)),
        "failed_by_cause": dict(sorted(causes.items(), key=lambda item: -len(item[1]))),
        "skipped_by_reason": dict(sorted(skipped.items(), key=lambda item: -len(item[1]))),
        "details": {
            test: detail for test, (outcome, detail) in counted.items() if outcome in ("failed", "crashed")
        },
        "passed_without_driver": sorted(passed_without),
        "passed_idle": sorted(passed_idle),
    }
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(
        f"{len(passed)} of {asked} tests that need a driver pass ({result['ratio']}), {len(passed & set(kernels))} of "
        f"{len(kernels)} that need kernels to run; see {RESULT.relative_to(ROOT)}"
    )


if __name__ == "__main__":
    sys.exit(main())
