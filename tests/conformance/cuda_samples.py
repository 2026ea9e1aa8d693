"""`make conformance-samples SAMPLES=<checkout>`: NVIDIA's CUDA samples through client, wire, worker and software GPU.

Each sample of the chosen folders is compiled from a checkout of the cuda-samples repository with `nvcc -cudart shared` to
PTX (nvcc comes from PyPI packages: nvidia-cuda-nvcc, nvidia-nvvm, nvidia-cuda-crt, nvidia-cuda-cccl, nvidia-cuda-nvrtc,
nvidia-cuda-profiler-api) and run in a process of its own with a whole device. Samples that need another library of NVIDIA's
or a window system are left out, and counted by what they need. A sample passes when it ends with status 0 and does not say
that it failed. It *discriminates* when it does not pass on the same software GPU with execution switched off.

Leaves build/conformance/samples.json with counts and, for what failed, causes.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from gpupool.client.child_environment import NVRTC_LIBRARY

from tests.conformance.services import pool_and_node

ROOT = Path(__file__).resolve().parent.parent.parent
NATIVE = ROOT / "server" / "gpupool" / "_native"
WORK = ROOT / "build" / "conformance" / "samples"
RESULT = ROOT / "build" / "conformance" / "samples.json"
FOLDERS = (
    "0_Introduction",
    "1_Utilities",
    "2_Concepts_and_Techniques",
    "3_CUDA_Features",
    "5_Domain_Specific",
    "6_Performance",
)
SERVED = {"cuda_driver", "cudart", "nvrtc", "cudart_static", "nvml"}
#: Programs of other systems, or whose whole point is a second GPU's wires.
WINDOWS = re.compile(
    r"OpenGL|GLUT|freeglut|Vulkan|D3D|EGL|find_package\((OpenMP|MPI)|windows\.h|GLFW", re.IGNORECASE
)
SECONDS = 60
FAILED = re.compile(r"\bFAILED\b|Test failed|Result = FAIL|CUDA error( at|:)")
WAIVED = re.compile(r"waiv(ed|ing)|not supported|requires? .*(GPU|device|SM|compute)", re.IGNORECASE)
EXIT_WAIVED = 2


@dataclass(frozen=True)
class Sample:
    """One sample as its CMakeLists.txt describes it."""

    name: str
    folder: Path
    sources: tuple[str, ...]
    kernels: dict[str, str]  # file that the program loads at run time -> source
    libraries: frozenset[str]
    relocatable: bool
    windows: bool
    arguments: tuple[tuple[str, ...], ...] = ((),)
    headers: frozenset[str] = frozenset()  # of the toolkit, read by the program itself at run time

    @property
    def needs(self) -> str:
        """What it needs that is not served here; empty when it can be tried."""
        if self.windows:
            return "a window system or another framework"
        foreign = sorted(self.libraries - SERVED)
        return ", ".join(foreign)


@dataclass
class Outcome:
    result: str  # passed, failed, waived, not compiled
    detail: str = ""
    baseline: str = ""
    extra: dict[str, str] = field(default_factory=dict)


def read_sample(folder: Path, arguments: dict[str, dict[str, object]]) -> Sample | None:
    """Reads what is needed of a sample's build file. None when it builds no program."""
    text = (folder / "CMakeLists.txt").read_text()
    name_match = re.search(r"project\((\S+)", text)
    program = re.search(r"add_executable\(\s*(\S+)\s+([^)]*)\)", text)
    if not name_match or not program:
        return None
    name = folder.name
    sources = tuple(word for word in program.group(2).split() if word.endswith((".cu", ".cpp", ".c")))
    kernels: dict[str, str] = {}
    variables = dict(re.findall(r'set\((\w+)\s+"?([^")\s]+)"?\)', text))

    def value(word: str) -> str:
        for key, replacement in variables.items():
            word = word.replace("${" + key + "}", replacement)
        return word.replace("${CMAKE_CURRENT_BINARY_DIR}/", "").replace("${CMAKE_CURRENT_SOURCE_DIR}/", "")

    for out, _, source in re.findall(r"-o (\S+)\s+-(fatbin|ptx)\s+(\S+)", text):
        kernels[value(out)] = value(source)
    libraries = frozenset(re.findall(r"CUDA::(\w+)", text))
    entry = arguments.get(name, {})
    runs: tuple[tuple[str, ...], ...] = ((),)
    if isinstance(entry.get("args"), list):
        runs = (tuple(map(str, entry["args"])),)  # type: ignore[arg-type]
    elif isinstance(entry.get("runs"), list):
        runs = tuple(tuple(map(str, run.get("args", []))) for run in entry["runs"])  # type: ignore[attr-defined]
    return Sample(
        name, folder, sources, kernels, libraries, "CUDA_SEPARABLE_COMPILATION ON" in text,
        bool(WINDOWS.search(text)) or bool(entry.get("skip")), runs,
        frozenset(re.findall(r"\$\{CUDA_INCLUDE_DIR\}/(\S+)", text)),
    )  # fmt: skip


def compile_sample(sample: Sample, toolkit: Path, common: Path, libraries: Path) -> str:
    """Compiles into the work folder; the error text, empty when it went well."""
    target = WORK / sample.name
    target.mkdir(parents=True, exist_ok=True)
    for item in sample.folder.iterdir():
        if item.is_dir():
            shutil.copytree(item, target / item.name, dirs_exist_ok=True)
        elif item.suffix in (".cu", ".h", ".cuh", ".hpp", ".ppm", ".bin", ".bmp", ".pgm", ".dat"):
            shutil.copy(item, target)
    for header in sample.headers:
        source, copy = toolkit / "include" / header, target / Path(header).name
        if source.is_dir():
            shutil.copytree(source, copy, dirs_exist_ok=True)
        elif source.exists():
            shutil.copy(source, copy)
    nvcc = str(toolkit / "bin" / "nvcc")
    machine = [
        "-gencode",
        "arch=compute_80,code=compute_80",
        "-std=c++17",
        f"-I{common}",
        "--extended-lambda",
    ]
    quiet = ["-Wno-deprecated-gpu-targets", "-w"]
    for out, source in sample.kernels.items():
        kind = "-ptx" if out.endswith(".ptx") else "-fatbin"
        code = machine if kind == "-fatbin" else ["-arch=compute_80", f"-I{common}"]
        done = _run([nvcc, *quiet, *code, kind, "-o", str(target / out), str(sample.folder / source)])
        if done:
            return done
    program = target / sample.name
    if program.exists():
        return ""
    command = [nvcc, *quiet, *machine, "-cudart", "shared", f"-L{libraries}", f"-I{sample.folder}"]
    if sample.relocatable and any(source.endswith(".cu") for source in sample.sources):
        command.append("-rdc=false")
    command += [str(sample.folder / source) for source in sample.sources]
    return _run([*command, "-lcuda", "-lnvrtc", "-lpthread", "-o", str(program)])


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    except subprocess.TimeoutExpired:
        return "the compiler did not end in 900 s"
    return "" if done.returncode == 0 else (done.stderr or done.stdout or "the compiler failed")[-2000:]


def run_sample(sample: Sample, prefix: list[str], environment: dict[str, str]) -> tuple[str, str]:
    """Result and the end of what the program said."""
    target = WORK / sample.name
    text = ""
    result = "passed"
    for arguments in sample.arguments:
        command = [*prefix, f"./{sample.name}", *arguments]
        try:
            done = subprocess.run(
                command, cwd=target, env=environment, capture_output=True, text=True, errors="replace",
                timeout=SECONDS * 2, check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired as late:
            said = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else ""
            return "failed", f"{said[-800:]}\nlonger than {SECONDS * 2} s"
        text = (done.stdout + done.stderr)[-1500:]
        if done.returncode == EXIT_WAIVED and WAIVED.search(text):
            result = "waived"
        elif done.returncode != 0 or FAILED.search(done.stdout):
            return "failed", f"{text}\nended with status {done.returncode}"
    return result, text


def cause(detail: str) -> str:
    """A short reason to group by."""
    for pattern in (r"CUDA_ERROR_[A-Z_]+", r"cudaError[A-Z]\w+", r"gpupool: [^\n]*", r"longer than \d+ s"):
        found = re.findall(pattern, detail)
        if found:
            return re.sub(r"\d+", "N", str(found[-1]))[:120]
    lines = [line.strip() for line in detail.splitlines() if line.strip()]
    return re.sub(r"\d+", "N", lines[-1])[:120] if lines else "no detail"


def find_toolkit() -> Path:
    """The folder with bin/nvcc. Raises FileNotFoundError."""
    candidates = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    candidates += [str(path / "nvidia" / "cu13") for path in map(Path, sys.path)]
    for candidate in filter(None, candidates):
        if (Path(candidate) / "bin" / "nvcc").exists():
            return Path(candidate)
    raise FileNotFoundError("nvcc not found: set CUDA_HOME to the folder that holds bin/nvcc")


def link_folder(toolkit: Path) -> Path:
    """A folder where the linker finds the shared libraries under their plain names."""
    folder = WORK / "lib"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("cudart", "nvrtc"):
        found = sorted((toolkit / "lib").glob(f"lib{name}.so.*")) + sorted(
            (toolkit / "lib64").glob(f"lib{name}.so.*")
        )
        link = folder / f"lib{name}.so"
        if found and not link.exists():
            link.symlink_to(found[0])
    driver = folder / "libcuda.so"
    if not driver.exists():
        driver.symlink_to(NATIVE / "client" / "libcuda.so.1")
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("samples", type=Path, help="a checkout of the cuda-samples repository")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="only samples whose name contains this")
    parser.add_argument("--compile-only", action="store_true")
    options = parser.parse_args()
    toolkit = find_toolkit()
    WORK.mkdir(parents=True, exist_ok=True)
    libraries = link_folder(toolkit)
    arguments_file = options.samples / "test_args.json"
    arguments = json.loads(arguments_file.read_text()) if arguments_file.exists() else {}
    found = [
        sample
        for name in FOLDERS
        for folder in sorted((options.samples / "Samples" / name).iterdir())
        if options.only in folder.name and (folder / "CMakeLists.txt").exists()
        for sample in [read_sample(folder, arguments)]
        if sample is not None
    ]
    left_out: dict[str, list[str]] = collections.defaultdict(list)
    for sample in found:
        if sample.needs:
            left_out[sample.needs].append(sample.name)
    chosen = [sample for sample in found if not sample.needs]
    outcomes: dict[str, Outcome] = {}

    def build(sample: Sample) -> None:
        error = compile_sample(sample, toolkit, options.samples / "Common", libraries)
        if error:
            outcomes[sample.name] = Outcome("not compiled", error)
        print(f"[compiled] {sample.name}{': ' + error[-200:] if error else ''}", flush=True)

    with ThreadPoolExecutor(options.jobs) as workers:
        list(workers.map(build, chosen))
    if options.compile_only:
        return 0
    ready = [sample for sample in chosen if sample.name not in outcomes]
    nvrtc = str(toolkit / "lib")
    base = dict(os.environ, GPUPOOL_SOFTGPU_MEMORY_MIB="4096")
    base.pop("LD_PRELOAD", None)

    def baseline(sample: Sample) -> None:
        environment = dict(base, GPUPOOL_SOFTGPU_EXECUTE="0")
        environment["LD_LIBRARY_PATH"] = f"{NATIVE / 'softgpu'}:{NATIVE / 'client'}:{nvrtc}"
        environment["LD_PRELOAD"] = str(NATIVE / "compat" / NVRTC_LIBRARY)
        outcomes[sample.name] = Outcome("failed", baseline=run_sample(sample, [], environment)[0])

    with ThreadPoolExecutor(options.jobs) as workers:
        list(workers.map(baseline, ready))
    with (
        tempfile.TemporaryDirectory(prefix="gpupool-") as home,
        pool_and_node(Path(home), options.jobs, 4096) as environment,
    ):
        environment = dict(environment, LD_LIBRARY_PATH=nvrtc)
        prefix = [sys.executable, "-m", "gpupool.cli.main", "run", "-p", "1.0", "--wait", "300", "--"]

        def through(sample: Sample) -> None:
            outcome = outcomes[sample.name]
            outcome.result, outcome.detail = run_sample(sample, prefix, environment)
            print(f"[gpupool] {sample.name}: {outcome.result}", flush=True)

        with ThreadPoolExecutor(options.jobs) as workers:
            list(workers.map(through, ready))
    report(outcomes, left_out)
    return 0


def report(outcomes: dict[str, Outcome], left_out: dict[str, list[str]]) -> None:
    """Writes the result file and prints one line."""
    causes: dict[str, list[str]] = collections.defaultdict(list)
    for name, outcome in sorted(outcomes.items()):
        if outcome.result == "failed":
            causes[cause(outcome.detail)].append(name)
        elif outcome.result == "not compiled":
            causes["not compiled"].append(name)
    discriminating = [n for n, o in outcomes.items() if o.baseline in ("failed",)]
    passed = [name for name, outcome in outcomes.items() if outcome.result == "passed"]
    result = {
        "tried": len(outcomes),
        "results": dict(collections.Counter(outcome.result for outcome in outcomes.values())),
        "discriminating": len(discriminating),
        "discriminating_passed": len(set(discriminating) & set(passed)),
        "passed": sorted(passed),
        "waived": sorted(name for name, outcome in outcomes.items() if outcome.result == "waived"),
        "failed_by_cause": dict(sorted(causes.items(), key=lambda item: -len(item[1]))),
        "left_out": {needs: sorted(names) for needs, names in sorted(left_out.items())},
        "details": {
            name: outcome.detail for name, outcome in sorted(outcomes.items()) if outcome.result != "passed"
        },
    }
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(
        f"{len(passed)} of {len(outcomes)} samples pass; {result['discriminating_passed']} of {len(discriminating)} "
        f"that tell whether kernels run; see {RESULT.relative_to(ROOT)}"
    )


if __name__ == "__main__":
    sys.exit(main())
