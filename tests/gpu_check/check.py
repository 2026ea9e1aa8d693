"""Compares programs on a remote share with the same programs on the driver itself.

Level "pool" goes the whole way: pool server, node agent, `gpupool run`. Where packages of the pool are missing on an
offline machine, level "worker" starts workers by hand; the report says which, and why. Each part stands alone, so a
failure hides no other. The parts that matter most come first; those for which no time is left are left out.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from gpupool.client.child_environment import software_gpu_environment
from gpupool.client.native import native_directory
from gpupool.node.math_libraries import MathLibraries, find

from benchmarks.worker_process import probe
from tests.gpu_check import beside, comparisons
from tests.gpu_check.commit import commit
from tests.gpu_check.comparisons import FRAMEWORKS, PROGRAMS, Bench, Program, caches
from tests.gpu_check.long_kernels import long_kernels
from tests.gpu_check.programs_run import Found, run
from tests.gpu_check.report import Report
from tests.gpu_check.time_left import NO_TIME, LeftOut, TimeLeft
from tests.gpu_check.ways import ThroughPool, ToWorker, Way

ROOT: Final = Path(__file__).resolve().parent.parent.parent
OUT: Final = ROOT / "build" / "gpu-check"
#: What matters most first; MPS last, because a daemon that hangs would take the device with it.
ORDER: Final = (
    *("numba_vector_add", "eager", "layers", "long_kernels"),
    *("parking.bytes", "parking.room", "parking.torch", "parking.scrubbed"),
    *("memory", "math_libraries", "product_epilogues", "triton_rows"),
    *("numba_reduction", "numba_memory_limit", "cuda_core_nvrtc", "parking.elsewhere"),
    *("beside", "both_full", "beside_long", "beside_upload"),
    *("rates", "jax_train", "cupy_arrays", "torch_libraries", "jax_libraries", "compiled"),
    *("parking.mps", "parking.mps_parts"),
)
#: What level "pool" starts.
IMPORTS: Final = "import gpupool.pool.serving, gpupool.node.service, gpupool.cli.top.run_command"
#: No part begins with less, seconds; pool and node have as long to end.
LEAST: Final = 15.0
_PARKING_SECONDS: Final = 150.0
Part = Callable[[], Found]


def system_libcuda() -> Path:
    """Where the machine's own driver library is mapped from."""
    code = (
        "import ctypes; ctypes.CDLL('libcuda.so.1');"
        "print([l.split()[-1] for l in open('/proc/self/maps') if 'libcuda.so' in l][0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return Path(done.stdout.strip())


def why_no_pool(environment: Mapping[str, str], seconds: float) -> str:
    """What pool, node and command line say when they are imported; nothing when they can be."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", IMPORTS],
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not imported in {seconds:.3g} s"
    said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
    return said[-1] if done.returncode != 0 else ""


def machine(library: Path, environment: Mapping[str, str]) -> Found:
    """The device and the machine that a result is of."""
    found: Found = {
        "cpus": len(os.sched_getaffinity(0)),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
    try:
        devices = probe(library, environment)[1]
        found["gpu"] = [f"{device.name}, {device.total_mib} MiB" for device in devices]
    except Exception as error:  # each part says it again, and what it could do all the same
        found["gpu"], found["gpu_problem"] = [], str(error)[-500:]
    version = Path("/proc/driver/nvidia/version")
    if version.exists():
        found["driver_version"] = version.read_text().splitlines()[0]
    return found


def carry_out(
    parts: Mapping[str, Part], report: Report, left: TimeLeft, failed: Callable[[str], list[str]]
) -> None:
    """Each part in turn, whatever the ones before it did. ``failed`` puts away what explains a failure."""
    for name, part in parts.items():
        if left.left() < LEAST:
            report.record(name, {"left_out": NO_TIME})
            continue
        began = time.monotonic()
        try:
            found = part()
        except LeftOut as why:
            found = {"left_out": str(why)}
        except Exception as error:
            found = {"ok": False, "said": f"{type(error).__name__}: {error}"[-3000:]}
        bad = not found.get("ok", "left_out" in found)
        if bad and left.left() <= 0:
            found = {"left_out": NO_TIME, "found_so_far": found}
        found["seconds"] = round(time.monotonic() - began, 1)
        if bad:
            found["logs"] = failed(name)
        report.record(name, found)


def parking(
    way: Way, library: Path, name: str, home: Path, environment: Mapping[str, str], left: TimeLeft
) -> Found:
    """A part of parking.py, in a process that can be ended with all that it has started."""
    way.stop()  # nobody else has memory on the device
    home.mkdir(mode=0o700, parents=True)
    found = run(
        *(Path(__file__).with_name("parking.py"), [], environment, str(library), name, str(home)),
        seconds=left.of(_PARKING_SECONDS),
        log=OUT / f"parking-{name}.log",
    )
    if "error" in found:
        return {"ok": False, "said": found["error"].strip()}
    shutil.rmtree(home)  # it has nothing to explain
    return found if "left_out" in found else {"ok": True, **found}


def started(pool: ThroughPool) -> Found:
    """Pool and node run; without them all other parts go on with workers alone."""
    with pool.share("1.0"):
        return {"ok": True}


def put_away(way: Way, homes: Path, folder: Path) -> list[str]:
    """Ends what runs on the way. Copies the logs below ``homes``, which are removed, prints their ends, and returns their
    places."""
    way.stop()
    kept = []
    for log in sorted(homes.rglob("*.log")):
        place = folder / log.relative_to(homes)
        place.parent.mkdir(parents=True, exist_ok=True)
        text = log.read_text(errors="replace")
        place.write_text(text)
        print(f"    {log.relative_to(homes)}: {text[-1500:].strip() or 'empty'}")
        kept.append(str(place))
    shutil.rmtree(homes, ignore_errors=True)
    return kept


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--driver", default="nvidia", choices=["nvidia", "software"])
    parser.add_argument("--share", default="0.5")
    parser.add_argument(
        "--only", default="", help="parts whose names hold this, or one of several: beside,rates"
    )
    parser.add_argument("--frameworks", action="store_true", help="frameworks on the software GPU, too")
    parser.add_argument("--seconds", type=float, default=540.0, help="by when all of it has ended")
    parser.add_argument("--spent", type=float, default=0.0, help="how many of them are gone already")
    options = parser.parse_args(arguments)
    left = TimeLeft(options.seconds - options.spent - LEAST)

    real = options.driver == "nvidia"
    native = native_directory()
    library = system_libcuda() if real else native / "softgpu" / "libcuda.so.1"
    libraries = find() if real else MathLibraries()
    path = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
    environment = {**os.environ, "PYTHONPATH": path}
    because = why_no_pool(environment, max(1.0, min(120.0, left.left())))
    OUT.mkdir(parents=True, exist_ok=True)
    head: Found = {
        "date": time.strftime("%Y-%m-%d %H:%M:%S"),
        "commit": commit(ROOT),
        "level": "worker" if because else "pool",
        **({"no_pool": because} if because else {}),
        "driver": options.driver,
        **machine(library, libraries.environment()),
        "share": options.share,
        "math_libraries": dict(libraries.versions or {}),
    }
    for key, value in head.items():
        print(f"gpu-check: {key} {value}")
    report = Report(OUT / "report.json", head)

    with tempfile.TemporaryDirectory(prefix="gpucheck-") as temporary:
        homes, compiled = Path(temporary) / "h", Path(temporary) / "caches"  # sockets want short paths
        local = (
            {**environment, **libraries.environment()}
            if real
            else software_gpu_environment(native, environment)
        )
        remote = caches(compiled / "remote")
        of_workers = {**libraries.environment(), **remote}
        way: Way = ToWorker(library, homes, environment, of_workers)
        chosen = [name for name in ORDER if any(part in name for part in options.only.split(","))]
        if not because and not all(name.startswith("parking.") for name in chosen):
            pool = ThroughPool(options.driver, homes, {**environment, **remote}, left)
            began = {"pool": lambda: started(pool)}
            carry_out(began, report, left, lambda name: put_away(pool, homes, OUT / "logs" / name))
            way = way if report.failed else pool
        locally = {**local, **caches(compiled / "local")}
        bench = Bench(way, locally, remote, OUT, left, options.share, small=not real)

        def compared(program: Program) -> Part:
            def part() -> Found:
                if real and program.name == "math_libraries" and libraries.missing:
                    raise LeftOut(f"this machine has no {', '.join(libraries.missing)}")
                return comparisons.compare(program, bench)

            return part

        def on_bench(part: Callable[[Bench], Found]) -> Part:
            return lambda: part(bench)

        def parked(name: str) -> Part:
            variables = {**environment, **libraries.environment()}
            return lambda: parking(way, library, name, homes / name, variables, left)

        there = {program.name: compared(program) for program in PROGRAMS}
        if real or options.frameworks:
            there |= {program.name: compared(program) for program in FRAMEWORKS}
            there["beside"] = on_bench(beside.beside)
        there["long_kernels"] = on_bench(long_kernels)
        there |= {name: on_bench(part) for name, part in beside.PARTS.items()}
        there |= {name: parked(name.partition(".")[2]) for name in ORDER if name.startswith("parking.")}
        parts = {name: there[name] for name in chosen if name in there}

        try:
            carry_out(parts, report, left, lambda name: put_away(way, homes, OUT / "logs" / name))
        finally:
            way.stop()
    print(f"gpu-check: {len(report.failed)} failed; report in {(OUT / 'report.json').relative_to(ROOT)}")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
