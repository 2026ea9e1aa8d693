"""Programs on a share, beside the same programs on the driver itself: equal results, and how much slower they are."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.network import SAME_RACK, emulated
from tests.gpu_check.programs_run import Found, ratios, run, same
from tests.gpu_check.time_left import LeftOut, TimeLeft
from tests.gpu_check.ways import Way

HERE: Final = Path(__file__).parent
#: Of one program, in seconds.
_PATIENCE: Final = 150.0


@dataclass(frozen=True, slots=True)
class Program:
    """A file of `frameworks/` or `programs/`.

    Attributes:
        name: of the file.
        needs: packages.
        share: that it runs on; empty: the one of the whole check.
        tolerance: by how large a part of it a number may differ.
        limit: why it is known not to run on a share; then its failure is shown, and not counted.
        network: whether it is also run over an emulated network.
    """

    name: str
    needs: tuple[str, ...]
    share: str = ""
    tolerance: float = 0.0
    limit: str = ""
    network: bool = False


#: Small ones, which a software GPU runs too.
PROGRAMS: Final = (
    Program("numba_vector_add", ("numba",)),
    Program("numba_reduction", ("numba",)),
    Program("numba_memory_limit", ("numba",)),
    Program("cuda_core_nvrtc", ("cuda.core",)),
    Program("math_libraries", ("numpy",)),
)
FRAMEWORKS: Final = (
    Program("eager", ("torch",), tolerance=1e-4),
    Program("layers", ("torch",), tolerance=2e-3),
    Program("rates", ("torch",), share="1.0", network=True),
    Program("memory", ("torch",), share="0.2"),
    Program("compiled", ("torch", "triton"), tolerance=1e-4),
    Program("triton_rows", ("torch", "triton"), tolerance=1e-4),
    Program(
        *("cupy_arrays", ("cupy",)),
        tolerance=1e-4,
        limit="from version 13 on, NVIDIA's runtime is linked into CuPy",
    ),
    Program(*("jax_train", ("jax",)), tolerance=1e-4, limit="JAX's plug-in wants NVIDIA's private tables"),
)


@dataclass(frozen=True, slots=True)
class Bench:
    """What a comparison is made with.

    Attributes:
        way: to a share.
        local: environment of a program on the driver itself.
        remote: more variables of a program on a share.
        folder: gets all that programs print.
        time: of the whole check.
        share: of programs that name none.
    """

    way: Way
    local: Mapping[str, str]
    remote: Mapping[str, str]
    folder: Path
    time: TimeLeft
    share: str = "0.5"


def caches(folder: Path) -> dict[str, str]:
    """Places of compiled kernels. Each side has its own, else the second one measures what the first has compiled."""
    places = (
        "TRITON_CACHE_DIR",
        "TORCHINDUCTOR_CACHE_DIR",
        "CUPY_CACHE_DIR",
        "CUDA_CACHE_PATH",
        "NUMBA_CACHE_DIR",
    )
    return {place: str(folder / place.split("_")[0].lower()) for place in places}


def compare(program: Program, bench: Bench) -> Found:
    """Whether both sides have the same result. Raises LeftOut."""
    _need(*program.needs)
    file = next(HERE.glob(f"*/{program.name}.py"))

    def of(name: str, prefix: list[str], environment: Mapping[str, str]) -> Found:
        log = bench.folder / f"{program.name}-{name}.log"
        return run(file, prefix, environment, seconds=bench.time.of(_PATIENCE), log=log)

    share = program.share or bench.share
    alone = of("local", [], bench.local)
    if "error" in alone:
        # Nothing to compare with: packages of a machine may not fit each other.
        last = alone["error"].strip().splitlines()[-1:]
        raise LeftOut(f"it does not run on this machine itself: {''.join(last)[:300]}")
    with bench.way.share(share) as (prefix, environment):
        environment = {**environment, **bench.remote}
        remote = of("remote", prefix, environment)
        slower: Found = {}
        if program.network and "error" not in remote:
            slower = of("network", prefix, {**environment, **emulated(SAME_RACK), "GPUPOOL_TRANSPORT": "tcp"})
    equal = same(alone.get("result"), remote.get("result"), program.tolerance)
    if program.name == "memory":
        equal = equal and _within(alone, remote, float(share))
    return {
        "ok": equal or bool(program.limit),
        "same": equal,
        "limit": program.limit,
        "version": alone.get("version", ""),
        "local": alone,
        "remote": remote,
        "ratios": ratios(alone, remote),
        **({"network": slower, "network_ratios": ratios(alone, slower)} if slower else {}),
    }


def _within(alone: Found, remote: Found, share: float) -> bool:
    """Whether the share's memory was all that could be had, and nearly all of it was to be had."""
    mine, its = alone["figures"], remote["figures"]
    fits = its["taken_mib"] <= its["total_mib"] <= share * mine["total_mib"]
    return bool(fits and its["taken_mib"] >= 0.8 * its["total_mib"])


def beside(bench: Bench, seconds: float = 15.0) -> Found:
    """Two sessions compute side by side: which part of all steps each made. Raises LeftOut."""
    _need("torch")
    if not bench.way.pool:
        raise LeftOut("needs the pool")
    file, start = HERE / "frameworks" / "beside.py", bench.folder / "beside-start"
    start.unlink(missing_ok=True)
    shares = ("0.3", "0.7")
    ready = {share: bench.folder / f"beside-{share}-ready" for share in shares}
    started: dict[str, Future[Found]] = {}
    with (
        bench.way.share(shares[0]) as one,
        bench.way.share(shares[1]) as other,
        ThreadPoolExecutor(len(shares)) as threads,
    ):
        patience = bench.time.of(_PATIENCE + seconds)
        for share, (prefix, environment) in zip(shares, (one, other), strict=True):
            ready[share].unlink(missing_ok=True)
            started[share] = threads.submit(
                run,
                file,
                prefix,
                {**environment, **bench.remote},
                str(ready[share]),
                str(start),
                str(seconds),
                seconds=patience,
                log=bench.folder / f"beside-{share}.log",
            )
        # One that has ended will not get ready any more, and the other need not wait for it.
        while not all(path.exists() for path in ready.values()) and not any(
            future.done() for future in started.values()
        ):
            time.sleep(0.05)
        written = start.with_suffix(".new")
        written.write_text(str(time.time() + 1))
        written.rename(start)
        found = {share: future.result() for share, future in started.items()}
    steps = {share: int(one.get("figures", {}).get("steps", 0)) for share, one in found.items()}
    made = {share: round(of / max(1, sum(steps.values())), 3) for share, of in steps.items()}
    return {
        # A program says by its result that it was ready before the others began.
        "ok": all(steps.values()) and all(one.get("result") is True for one in found.values()),
        "steps": steps,
        "made": made,
        "programs": found,
        "said": ", ".join(f"{share} made {part} of all steps" for share, part in made.items()),
    }


def _need(*packages: str) -> None:
    missing = [name for name in packages if not _there(name)]
    if missing:
        raise LeftOut(f"this Python has no {' and no '.join(missing)}")


def _there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # what it is a part of
        return False
