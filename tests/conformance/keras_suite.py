"""`make conformance-keras-suite`: a sample of Keras's own tests on the software GPU, with TensorFlow's operations or JAX's.

Keras's wheel brings its tests. GPUPOOL_TENSORFLOW_PYTHON (for `--backend jax`: GPUPOOL_JAX_PYTHON) is an interpreter with the
framework, Keras, pytest and pytest-timeout. Where a test imports a package that is not there, its file is left out:
some want JAX for the CPU, TensorFlow, PyTorch, grain, einops or pandas.

A test that fails on the GPU is run on the CPU, too. One that fails there as well says nothing about the GPU, and is not counted.
Leaves build/conformance/keras-suite.json (keras-suite-jax.json) with the outcomes and the failures by cause.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.conformance.module_runs import TEST_SECONDS, Module, Outcomes, cause, run_suite
from tests.conformance.torch_train import GPUPOOL, ROOT

#: Folders of tests, relative to Keras's sources. That of layers is large: each of its folders is one.
FOLDERS: Final = ("ops", "losses", "metrics", "optimizers", "random", "trainers", "models")
DIVIDED: Final = "layers"
NOT_RUN: Final = ("skipped", "xfailed")
PYTHONS: Final = {"tensorflow": "GPUPOOL_TENSORFLOW_PYTHON", "jax": "GPUPOOL_JAX_PYTHON"}
RESULTS: Final = ROOT / "build" / "conformance"
#: Where the plugin leaves the names of tests that put something into the device's memory, beside the log of outcomes.
ON_DEVICE: Final = ".device"


def sources_of(python: str) -> Path | None:
    """Keras's sources as this interpreter would import them; None: it has no Keras."""
    program = "import importlib.util as u; found = u.find_spec('keras'); print(found.origin if found else '')"
    origin = subprocess.run(
        [python, "-c", program], cwd=RESULTS, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
    return Path(origin).parent / "src" if origin else None


def folders_of(sources: Path) -> list[str]:
    """The folders, and files beside them, that are run by one process each."""
    parts = sorted((sources / DIVIDED).iterdir())
    found = [folder for folder in parts if any(folder.rglob("*_test.py"))]
    files = [file for file in parts if file.name.endswith("_test.py")]
    return [*FOLDERS, *(f"{DIVIDED}/{path.name}" for path in (*found, *files))]


def within(test: str, folder: str) -> bool:
    return test.startswith((f"{folder}/", f"{folder}::"))


def modules(sources: Path, folders: list[str], prefix: tuple[str, ...], python: str) -> list[Module]:
    """Each folder as a process; ``prefix``: what starts it, so on the software GPU."""
    options = [
        "-q", "-p", "tests.conformance.outcome_log", "-p", "tests.conformance.keras_suite_plugin", "-p", "no:cacheprovider",
        "--continue-on-collection-errors", "-c", os.devnull, "--rootdir", str(sources),
        f"--timeout={TEST_SECONDS}", "--timeout-method=thread",
    ]  # fmt: skip
    return [
        Module(name, (*prefix, python, "-m", "pytest", *options, str(sources / name))) for name in folders
    ]


def run_on(
    place: str,
    sources: Path,
    folders: list[str],
    options: argparse.Namespace,
    only: list[str] | None = None,
) -> Outcomes:
    """The sample on `cpu` or `gpu`; ``only``: these tests in place of the sample."""
    backend: str = options.backend
    environment = dict(
        os.environ,
        PYTHONPATH=str(ROOT),
        PYTHONDONTWRITEBYTECODE="1",  # Keras's folder is not ours to write to
        KERAS_BACKEND=backend,
        # Where a test enlarges JAX's numbers, Keras's own default stays.
        JAX_DEFAULT_DTYPE_BITS="32",
        TF_CPP_MIN_LOG_LEVEL="1",
        CONFORMANCE_PLACE=place,
        CONFORMANCE_SHARE=str(options.share),
        CONFORMANCE_LEAST=str(options.least),
        CONFORMANCE_SEED=options.seed,
    )
    if only is not None:
        listed = RESULTS / f"keras-{backend}-only.json"
        listed.write_text(json.dumps(only))
        environment["CONFORMANCE_ONLY"] = str(listed)
    if place == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = "-1"
    if place == "cpu" or backend != "jax":
        environment["JAX_PLATFORMS"] = "cpu"  # tests of other backends compare with it
    prefix = (*GPUPOOL, "softgpu", "--") if place == "gpu" else ()
    work = RESULTS / f"keras-{backend}-{place}"
    started = modules(sources, folders, prefix, options.python)
    work.mkdir(parents=True, exist_ok=True)
    return run_suite(started, environment, work, work, options.jobs, lambda _, test: test)


def summary(on_gpu: Outcomes, on_cpu: Outcomes, folders: list[str]) -> dict[str, Any]:
    """The outcomes of the tests that count, by folder, and the failures by cause; ``on_cpu``: of those that fail on the GPU."""
    counted = {
        test: result
        for test, result in on_gpu.items()
        if result[0] not in NOT_RUN and on_cpu.get(test, ("passed", ""))[0] == "passed"
    }
    causes: dict[str, list[str]] = collections.defaultdict(list)
    for test, (outcome, detail) in sorted(counted.items()):
        if outcome != "passed":
            causes[cause(outcome, detail)].append(test)
    return {
        "counted": len(counted),
        "passed": len(counted) - sum(map(len, causes.values())),
        "outcomes": {
            name: dict(collections.Counter(counted[test][0] for test in counted if within(test, name)))
            for name in folders
        },
        "skipped": sum(result[0] in NOT_RUN for result in on_gpu.values()),
        "fail_on_the_cpu": sorted(test for test, result in on_cpu.items() if result[0] != "passed"),
        "failed_by_cause": dict(sorted(causes.items(), key=lambda item: -len(item[1]))),
        "details": {test: on_gpu[test][1] for tests in causes.values() for test in tests},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=sorted(PYTHONS), default="tensorflow")
    parser.add_argument(
        "--share", type=float, default=0.1, help="part of each file's tests that is run [default: 0.1]"
    )
    parser.add_argument("--least", type=int, default=8, help="tests of each file at least [default: 8]")
    parser.add_argument("--seed", default="1", help="which tests [default: 1]")
    parser.add_argument(
        "--folder", action="append", help="only this folder, such as `layers/rnn`; may be repeated"
    )
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    options.python = os.environ.get(PYTHONS[options.backend])
    RESULTS.mkdir(parents=True, exist_ok=True)
    sources = sources_of(options.python) if options.python else None
    if sources is None:
        print(f"skipped: {PYTHONS[options.backend]} names no Python with Keras")
        return 0
    folders = options.folder or folders_of(sources)
    on_gpu = run_on("gpu", sources, folders, options)
    failed = [test for test, result in on_gpu.items() if result[0] not in ("passed", *NOT_RUN)]
    theirs = [name for name in folders if any(within(test, name) for test in failed)]
    on_cpu = run_on("cpu", sources, theirs, options, failed)
    result = summary(on_gpu, on_cpu, folders)
    logs = (RESULTS / f"keras-{options.backend}-gpu").glob(f"*{ON_DEVICE}")
    used = {test for log in logs for test in log.read_text().splitlines()}
    result = {"seed": options.seed, "in_the_device_memory": len(used), **result}
    path = RESULTS / (
        "keras-suite.json" if options.backend == "tensorflow" else f"keras-suite-{options.backend}.json"
    )
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(
        f"keras with {options.backend}: {result['passed']} of {result['counted']} tests pass, of {len(on_gpu)} tests {len(used)} "
        f"use the device's memory; see {path.relative_to(ROOT)}"
    )
    empty = [name for name in folders if not any(within(test, name) for test in on_gpu)]
    if empty:
        print(f"no test was run of {', '.join(empty)}; see build/conformance/keras-{options.backend}-gpu")
    return 1 if empty or any(outcome == "crashed" for outcome, _ in on_gpu.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
