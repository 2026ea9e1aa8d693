"""How fast the software GPU runs kernels, as ratios to plain C loops on one core, in the same run.

Driver and loops run in one process that measures them in turn; pool, client and wire have no part in it. Where the
software GPU has a compiler for kernels, its figures are the ones that count, with the interpreter's beside them.
"""

from __future__ import annotations

import contextlib
import json as json_text
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import softgpu_native
from benchmarks.results import Figures, Target, beside_bounds, machine, publish
from benchmarks.worker_process import WorkerError, software_driver

#: Times of the device over times of the C loop; then what has units of its own.
RATIOS: Final[tuple[Target, ...]] = (
    ("saxpy", "saxpy, 4 Mi elements from memory", "<=", 1.5),
    ("saxpy_cache", "saxpy, 16 Ki elements in cache", "<=", 2),
    ("reduction", "sum of 4 Mi elements, 64 blocks", "<=", 1.5),
    ("barrier", "sum with one element per thread, 9 barriers", "<=", 5),
    ("mandelbrot", "Mandelbrot set, 1024 x 128, divergent", "<=", 0.15),
    ("matmul", "matrix product 256, tiles in shared memory", "<=", 5),
    ("triton_matmul", "Triton's matrix product 512, mma.sync", "<=", 3),
)
OTHERS: Final[tuple[Target, ...]] = (
    ("two_cores", "two cores over one, the least of the kernels", ">=", 1.8),
    ("launch_us", "launch of an empty kernel, microseconds", "<=", 5),
    ("jit_ms", "compiling a kernel with LLVM, milliseconds, the median kernel", "<=", 200),
)
KEYS: Final = tuple(target[0] for target in RATIOS)
#: What two cores can share: enough blocks, and not the memory that both wait for.
SHARED_WORK: Final = ("barrier", "mandelbrot", "matmul", "triton_matmul")
#: A Python that has numba, for its simulator; else this one.
NUMBA_PYTHON_VARIABLE: Final = "GPUPOOL_NUMBA_PYTHON"

_REPEATS: Final = 9
_LAUNCHES: Final = 2000
#: Launches of a row: the first find the caches full of another process's memory.
_ROW: Final = 25
_LIMIT_SECONDS: Final = 300.0
_COMPILED: Final = re.compile(r"^softgpu: jit: kernel .* compiled in (\d+) ms", re.MULTILINE)
_SIMULATOR: Final = Path(__file__).with_name("softgpu_simulator.py")


class _Process:
    """A measuring process with settings of its own."""

    def __init__(self, driver: Path, loops: Path, settings: dict[str, str]) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed in close()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.softgpu_process", str(driver), str(loops)],
            env={**os.environ, **settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def ask(self, **question: Any) -> dict[str, Any]:
        """Raises WorkerError with what the process says."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json_text.dumps(question) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            raise WorkerError(
                f"measuring {question} failed: {self._errors.read().strip() or 'no reason given'}"
            )
        answer: dict[str, Any] = json_text.loads(line)
        return answer

    def compile_milliseconds(self) -> list[float]:
        """Of each kernel that has been compiled so far, in wall time; by the driver's log."""
        log = os.pread(self._errors.fileno(), 1 << 20, 0).decode()  # the process goes on writing at the end
        return [float(milliseconds) for milliseconds in _COMPILED.findall(log)]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()


@contextlib.contextmanager
def _process(driver: Path, loops: Path, *, threads: int, compiled: bool) -> Iterator[_Process]:
    # Kernels of an earlier run would not be compiled, and tell nothing of what that takes.
    on = {"GPUPOOL_SOFTGPU_JIT": "on", "GPUPOOL_SOFTGPU_JIT_CACHE": "off", "GPUPOOL_SOFTGPU_LOG": "jit"}
    jit = on if compiled else {"GPUPOOL_SOFTGPU_JIT": "off"}
    process = _Process(driver, loops, {"GPUPOOL_SOFTGPU_THREADS": str(threads), **jit})
    try:
        yield process
    finally:
        process.close()


def measure(repeats: int = _REPEATS, work: Sequence[str] = KEYS) -> Figures:
    """Runs the measurement, for about a minute.

    Returns:
        A figure for each key of RATIOS in ``work`` and of OTHERS (``two_cores`` is null where this process may use one
        core only), ``interpreter`` (the ratios without the compiler), ``launch_waited_us`` (launch and wait, each),
        ``jit_ms`` (null without a compiler) of ``jit_kernels`` kernels,
        ``native_ms`` (what the ratios are to: of matrix products the vectorised triple loop; ``matmul_textbook`` is the
        ratio to the one that gcc cannot make vectors of), ``cores`` (by kernel), ``simulator`` (ratios of numba's simulator, or
        the reason that there are none), ``load`` (the machine's, before) and ``machine``.

    Raises:
        NoCompilerError: there is no gcc.
        WorkerError, RuntimeMissingError: the driver fails or is not there.
    """
    load = os.getloadavg()[0]
    driver = software_driver()
    with tempfile.TemporaryDirectory(prefix="gpupool-bench-") as name:
        loops = softgpu_native.build(Path(name))
        figures = _measure_device(driver, loops, repeats, work)
    figures["simulator"] = _simulator(figures, work)
    return figures | {"load": round(load, 2), "machine": machine() | {"driver": str(driver)}}


def _measure_device(driver: Path, loops: Path, repeats: int, work: Sequence[str]) -> Figures:
    with (
        _process(driver, loops, threads=1, compiled=True) as best,
        _process(driver, loops, threads=1, compiled=False) as interpreter,
        _process(driver, loops, threads=2, compiled=True) as two,
    ):
        figures: Figures = {}
        native_ms: dict[str, float] = {}
        interpreted: dict[str, float] = {}
        seconds_per_unit: dict[str, float] = {}
        core = max(os.sched_getaffinity(0))
        for key in work:
            answer = best.ask(work=key, repeats=repeats, core=core)
            native = statistics.median(answer["native"])
            native_ms[key] = round(1e3 * native, 3)
            seconds_per_unit[key] = native / answer["units"]
            figures[key] = _ratio(answer)
            interpreted[key] = _ratio(interpreter.ask(work=key, repeats=repeats, core=core))
        if "matmul" in work:
            figures["matmul_textbook"] = _ratio(best.ask(work="matmul_textbook", repeats=repeats, core=core))
        launches = best.ask(launches=_LAUNCHES)
        compiled = best.compile_milliseconds()
        cores = _cores(best, two, [key for key in SHARED_WORK if key in work], 2 * repeats)
    return figures | {
        "two_cores": min(cores.values()) if cores else None,
        "launch_us": round(launches["each_us"], 2),
        "launch_waited_us": round(launches["waited_us"], 2),
        "jit_ms": round(statistics.median(compiled), 1) if compiled else None,
        "jit_kernels": len(compiled),
        "interpreter": interpreted,
        "cores": cores,
        "native_ms": native_ms,
        "native_ns_per_unit": {key: 1e9 * seconds for key, seconds in seconds_per_unit.items()},
    }


def _ratio(answer: dict[str, Any]) -> float:
    ratio: float = statistics.median(answer["device"]) / statistics.median(answer["native"])
    return round(ratio, 3)


def _cores(one: _Process, two: _Process, keys: Sequence[str], rows: int) -> dict[str, float]:
    """How much faster two threads are than one is on one of the two cores, by kernel; nothing where there is one core.

    In rows of launches, each waited for, as programs have them: of a single one after a pause, which the other process
    makes here, up to 0.15 ms is the waking of the cores. Cores of virtual machines differ by up to two, with what else
    runs beside them, and change places: the rate of one is the mean of both.
    """
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        return {}

    def row(process: _Process, key: str, core: int | None = None) -> float:
        times: list[float] = process.ask(row=key, repeats=_ROW, core=core)["device"]
        return statistics.median(times)

    found = {}
    for key in keys:
        row(two, key)  # compiled and warm before it is compared
        times = [(row(one, key, usable[0]), row(two, key), row(one, key, usable[-1])) for _ in range(rows)]
        ratios = [statistics.harmonic_mean((first, last)) / both for first, both, last in times]
        found[key] = round(statistics.median(ratios), 3)
    return found


def _simulator(figures: Figures, work: Sequence[str]) -> dict[str, Any]:
    """Ratios of numba's simulator to the same loops, from smaller runs scaled by their work."""
    python = os.environ.get(NUMBA_PYTHON_VARIABLE) or sys.executable
    try:
        done = subprocess.run(
            [python, str(_SIMULATOR)],
            env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
            capture_output=True,
            text=True,
            timeout=_LIMIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"missing": f"{python}: {error}"}
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
        return {
            "missing": f"{python}: {reason[0]}; {NUMBA_PYTHON_VARIABLE} names a Python that has numba-cuda"
        }
    measured = json_text.loads(done.stdout)
    nanoseconds = figures["native_ns_per_unit"]
    ratios = {key: round(1e9 * measured[key] / nanoseconds[key]) for key in work if key in measured}
    return ratios | {"launch_us": round(1e6 * measured["launch"])}


def main(json: bool) -> int:
    """Measures and prints; 0, or 1 with one sentence on standard error."""
    return publish("softgpu", measure, report, json=json)


def report(figures: Figures) -> str:
    """The figures for people."""
    targets = [target for target in (*RATIOS, *OTHERS) if figures.get(target[0]) is not None]
    lines = beside_bounds(targets, figures, digits=2, title="times of gcc -O3 -march=native, one core")
    lines += ["", f"{'':46}{'interpreter':>12}{'simulator':>12}"]
    simulator = figures["simulator"]
    for key, meaning, *_ in RATIOS:
        if key in figures["interpreter"]:
            beside = f"{simulator[key]:12,}" if key in simulator else f"{'':12}"
            lines.append(f"{meaning:46}{figures['interpreter'][key]:12.2f}{beside}")
    if figures["cores"]:
        gains = ", ".join(f"{key} {gain:.2f}" for key, gain in figures["cores"].items())
        lines.append(f"two cores over one, by kernel: {gains}")
    if "missing" in simulator:
        lines.append(f"numba's simulator was not measured: {simulator['missing']}")
    if figures["load"] > 0.5:
        lines.append(
            f"The load of the machine was {figures['load']}; ratios of one run bear that, two cores do not."
        )
    return "\n".join(lines) + "\n"
