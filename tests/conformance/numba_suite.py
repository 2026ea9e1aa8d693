"""`make conformance-numba`: numba-cuda's own test suite on the software GPU, alone and through a pool.

A test counts only if it *fails* on a driver that executes no kernel, since only such a test tells
whether kernels really ran. So the suite runs with execution switched off (the baseline, directly on the
driver), then under `gpupool softgpu` (alone), then through a pool, a node, a lease and a worker. Each
test module is a process of its own, so a crash costs one test.

Leaves build/conformance/numba-alone.json and numba.json (through the pool) with `discriminating`, `passed`, and
what failed, by cause.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import sys
import tempfile
from pathlib import Path

from tests.conformance.module_runs import TEST_SECONDS, Module, Outcomes, cause, run_suite
from tests.conformance.services import pool_and_node

ROOT = Path(__file__).resolve().parent.parent.parent
NATIVE = ROOT / "server" / "gpupool" / "_native"
RESULTS = ROOT / "build" / "conformance"
# Folders that do not concern a device: code without CUDA, the simulator, timing.
LEFT_OUT = ("nocuda", "cudasim", "benchmarks")
# These tests start processes that use the device as well: each gets a share of the same device for itself.
SEVERAL_PROCESSES = ("cudapy/test_ipc",)
CHILD = ROOT / "tests" / "conformance" / "spawned_child.sh"
WHOLE_DEVICE = "1.0"
GPUPOOL = (sys.executable, "-m", "gpupool.cli.main")
MEMORY_MIB = 4096
#: What the suite computes on, by the name of its result.
NUMBA, NUMBA_ALONE = "numba", "numba-alone"


def test_modules() -> list[Path]:
    import numba_cuda

    tests = Path(numba_cuda.__file__).parent / "numba" / "cuda" / "tests"
    return sorted(
        path for path in tests.rglob("test_*.py") if path.relative_to(tests).parts[0] not in LEFT_OUT
    )


def processes_of(modules: list[Path], prefix: list[str], work: Path) -> list[Module]:
    made = []
    for module in modules:
        name = f"{module.parent.name}/{module.stem}"
        before = prefix
        if prefix and name in SEVERAL_PROCESSES:
            before = ["0.4" if part == WHOLE_DEVICE else part for part in prefix]
        command = [
            *before, sys.executable, "-m", "pytest", "-q", "-p", "tests.conformance.numba_plugin",
            "-p", "no:cacheprovider", "-p", "no:asyncio", "-c", os.devnull, f"--timeout={TEST_SECONDS}",
            # By name, not by path: the tests import themselves as numba.cuda.tests.
            "-o", "consider_namespace_packages=true", "--rootdir", str(work),
            "--pyargs", f"numba.cuda.tests.{module.parent.name}.{module.stem}",
        ]  # fmt: skip
        made.append(Module(name, tuple(command)))
    return made


def suite(
    modules: list[Path], environment: dict[str, str], prefix: list[str], jobs: int, title: str
) -> Outcomes:
    work = ROOT / "build" / "conformance" / title
    work.mkdir(parents=True, exist_ok=True)
    return run_suite(
        processes_of(modules, prefix, work),
        dict(
            environment,
            PYTHONPATH=os.pathsep.join([str(ROOT), str(ROOT / "server")]),
            CONFORMANCE_PYTHON=sys.executable,
        ),
        ROOT,
        work,
        jobs,
        lambda module, test: f"{module.name}.py::{test.split('::', 1)[-1]}",
    )


def baseline_environment() -> dict[str, str]:
    return dict(
        os.environ,
        LD_LIBRARY_PATH=str(NATIVE / "softgpu"),
        LD_PRELOAD=str(NATIVE / "compat" / "libnvJitLink.so.13"),
        GPUPOOL_SOFTGPU_EXECUTE="0",
        GPUPOOL_SOFTGPU_MEMORY_MIB=str(MEMORY_MIB),
        NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS="0",
    )


def alone(modules: list[Path], jobs: int) -> Outcomes:
    prefix = [*GPUPOOL, "softgpu", "--memory", str(MEMORY_MIB), "--"]
    return suite(modules, dict(os.environ), prefix, jobs, "alone")


def through_pool(modules: list[Path], jobs: int) -> Outcomes:
    with (
        tempfile.TemporaryDirectory(prefix="gpupool-") as home,
        pool_and_node(Path(home), jobs, MEMORY_MIB) as environment,
    ):
        environment = dict(environment, NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS="0", CONFORMANCE_CHILD=str(CHILD))
        prefix = [*GPUPOOL, "run", "-p", WHOLE_DEVICE, "--wait", "120", "--"]
        return suite(modules, environment, prefix, jobs, "gpupool")


def write_result(name: str, discriminating: set[str] | None, found: Outcomes) -> None:
    """`discriminating`: the tests to count; None: not known, so every test that was run."""
    chosen = discriminating
    if chosen is None:
        chosen = {test for test, (outcome, _) in found.items() if outcome not in ("skipped", "xfailed")}
    counted = {test: found.get(test, ("crashed", "")) for test in sorted(chosen)}
    passed = [test for test, (outcome, _) in counted.items() if outcome == "passed"]
    causes: dict[str, list[str]] = collections.defaultdict(list)
    for test, (outcome, detail) in counted.items():
        if outcome != "passed":
            causes["skipped" if outcome == "skipped" else cause(outcome, detail)].append(test)
    result = {
        "discriminating": len(counted) if discriminating is not None else None,
        "counted": len(counted),
        "passed": len(passed),
        "ratio": round(len(passed) / len(counted), 4) if counted else None,
        "all_tests": dict(collections.Counter(outcome for outcome, _ in found.values())),
        "failed_by_cause": dict(sorted(causes.items(), key=lambda item: -len(item[1]))),
        "discriminating_tests": sorted(discriminating or ()),
    }
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    what = "tests" if discriminating is None else "discriminating tests"
    print(
        f"{name}: {len(passed)} of {len(counted)} {what} pass ({result['ratio']}); "
        f"see {path.relative_to(ROOT)}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="only modules whose path contains this")
    parser.add_argument("--alone", action="store_true", help="only on the software GPU alone, without a pool")
    parser.add_argument("--pool", action="store_true", help="only through a pool")
    parser.add_argument(
        "--baseline", type=Path, help="take the baseline from this earlier result, do not run it"
    )
    parser.add_argument(
        "--discriminating-only",
        action="store_true",
        help="with --baseline: only modules that hold such a test",
    )
    parser.add_argument(
        "--no-baseline",
        action="store_true",
        help="count every test that is not skipped, try nothing without execution",
    )
    options = parser.parse_args()
    modules = [module for module in test_modules() if options.only in str(module)]

    discriminating: set[str] | None = None
    if options.baseline:
        discriminating = set(json.loads(options.baseline.read_text())["discriminating_tests"])
        wanted = {test.split("::")[0] for test in discriminating}
        names = {f"{module.parent.name}/{module.name}" for module in modules}
        discriminating = {test for test in discriminating if test.split("::")[0] in names}
        if options.discriminating_only:
            modules = [module for module in modules if f"{module.parent.name}/{module.name}" in wanted]
    elif not options.no_baseline:
        baseline = suite(modules, baseline_environment(), [], options.jobs, "baseline")
        discriminating = {test for test, (outcome, _) in baseline.items() if outcome in ("failed", "crashed")}

    both = options.alone == options.pool
    if both or options.alone:
        write_result(NUMBA_ALONE, discriminating, alone(modules, options.jobs))
    if both or options.pool:
        write_result(NUMBA, discriminating, through_pool(modules, options.jobs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
