"""Programs on a share, beside the same programs on the driver itself: equal results, and how much slower they are."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
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
        note: what its figures must be read with.
    """

    name: str
    needs: tuple[str, ...]
    share: str = ""
    tolerance: float = 0.0
    limit: str = ""
    network: bool = False
    note: str = ""


#: Small ones, which a software GPU runs too.
PROGRAMS: Final = (
    Program("numba_vector_add", ("numba",)),
    Program("numba_reduction", ("numba",)),
    Program("numba_memory_limit", ("numba",)),
    Program("cuda_core_nvrtc", ("cuda.core",)),
    Program("math_libraries", ("numpy",)),
    Program("product_epilogues", ("numpy",)),
)
FRAMEWORKS: Final = (
    Program("eager", ("torch",), tolerance=1e-4),
    Program("layers", ("torch",), tolerance=2e-3),
    Program("rates", ("torch",), share="1.0", network=True, note="a report, right at any ratio"),
    Program("memory", ("torch",), share="0.2"),
    Program("compiled", ("torch", "triton"), tolerance=1e-4),
    Program("triton_rows", ("torch", "triton"), tolerance=1e-4),
    Program(
        *("cupy_arrays", ("cupy",)),
        tolerance=1e-4,
        limit="from version 13 on, NVIDIA's runtime is linked into CuPy",
    ),
    Program(*("jax_train", ("jax",)), tolerance=1e-4),
    Program("torch_libraries", ("torch",), tolerance=2e-3),
    Program("jax_libraries", ("jax",), tolerance=2e-3),
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
        small: the device is no GPU, and programs that run beside others do little.
    """

    way: Way
    local: Mapping[str, str]
    remote: Mapping[str, str]
    folder: Path
    time: TimeLeft
    share: str = "0.5"
    small: bool = False


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
    need(*program.needs)
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
        "note": program.note,
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


def need(*packages: str) -> None:
    """Raises LeftOut where this Python lacks one."""
    missing = [name for name in packages if not _there(name)]
    if missing:
        raise LeftOut(f"this Python has no {' and no '.join(missing)}")


def _there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # what it is a part of
        return False
