"""Frameworks on a share, beside the same programs on the driver itself: equal results, and how much slower they are.

Each part stands alone, so a failure hides no other; one that the machine has no means for says that it was left out. Parts that
would begin after the time is up are left out, too.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.network import SAME_RACK, emulated
from tests.gpu_check.programs_run import Found, ratios, run, same

PROGRAMS: Final = Path(__file__).parent / "frameworks"
#: `way(share)` gives the prefix and the environment with which a program runs on such a share.
Way = Callable[[str], AbstractContextManager[tuple[list[str], dict[str, str]]]]
#: Of one program, in seconds.
_PATIENCE: Final = 120.0


@dataclass(frozen=True, slots=True)
class Program:
    """A file of `frameworks/`.

    Attributes:
        name: of the file.
        needs: packages.
        share: that it runs on.
        tolerance: by how large a part of it a number may differ.
        limit: why it is known not to run on a share; then its failure is shown, and not counted.
        network: whether it is also run over an emulated network.
    """

    name: str
    needs: tuple[str, ...]
    share: str = "0.5"
    tolerance: float = 1e-4
    limit: str = ""
    network: bool = False


ALL: Final = (
    Program("eager", ("torch",)),
    Program("rates", ("torch",), share="1.0", network=True),
    Program("memory", ("torch",), share="0.2"),
    Program("compiled", ("torch", "triton")),
    Program("triton_rows", ("torch", "triton")),
    Program("cupy_arrays", ("cupy",), limit="from version 13 on, NVIDIA's runtime is linked into CuPy"),
    Program("jax_train", ("jax",), limit="JAX's plug-in wants NVIDIA's private tables"),
)


def check(way: Way, local: dict[str, str], folder: Path, *, minutes: float, only: str, pool: bool) -> Found:
    """All parts by name: ``ok``, and what was found.

    Args:
        way: to a share.
        local: environment of a program on the driver itself.
        folder: gets all that programs print.
        minutes: after which no part begins.
        only: parts whose names hold this.
        pool: whether there is a pool, which two sessions can share.
    """
    end = time.monotonic() + 60 * minutes
    found: Found = {}
    for program in ALL:
        if only in program.name:
            found[program.name] = _in_time(end, lambda program=program: _program(program, way, local, folder))
    if only in "beside":
        found["beside"] = _in_time(end, lambda: _beside(way, folder) if pool else _left_out("needs the pool"))
    return found


def lines(found: Found) -> Iterator[str]:
    """A line for each part, for people."""
    for name, part in found.items():
        state = "  --  " if "left_out" in part else "ok    " if part["ok"] else "FAILED"
        if "left_out" in part:
            yield f"  {state} {name}: {part['left_out']}"
            continue
        said = ", ".join(f"{key} x{value}" for key, value in part.get("ratios", {}).items())
        yield f"  {state} {name}{' ' + part['version'] if part.get('version') else ''}: {said or part.get('said', '')}"
        if part.get("network_ratios"):
            slower = ", ".join(f"{key} x{value}" for key, value in part["network_ratios"].items())
            yield f"         over {SAME_RACK.round_trip_us} us, {SAME_RACK.mbit} Mbit/s: {slower}"
        for side in ("local", "remote"):
            if error := part.get(side, {}).get("error"):
                yield f"         {side}: {error.strip()[-600:]}"
        if part.get("limit") and not part["same"]:
            yield f"         known: {part['limit']}"


def failures(found: Found) -> int:
    """How many parts failed that should not have."""
    return sum(not part.get("ok", True) for part in found.values())


def _in_time(end: float, part: Callable[[], Found]) -> Found:
    if time.monotonic() > end:
        return _left_out("no time is left")
    began = time.monotonic()
    try:
        found = part()
    except (OSError, RuntimeError, SystemExit, subprocess.SubprocessError) as error:
        found = {"ok": False, "said": str(error)[-1500:]}
    return {**found, "part_seconds": round(time.monotonic() - began, 1)}


def _left_out(why: str) -> Found:
    return {"left_out": why}


def _program(program: Program, way: Way, local: dict[str, str], folder: Path) -> Found:
    missing = [name for name in program.needs if importlib.util.find_spec(name) is None]
    if missing:
        return _left_out(f"this Python has no {' and no '.join(missing)}")
    file = PROGRAMS / f"{program.name}.py"

    def of(name: str, prefix: list[str], environment: dict[str, str]) -> Found:
        log = folder / f"{program.name}-{name}.log"
        return run(file, prefix, environment, seconds=_PATIENCE, log=log)

    alone = of("local", [], local)
    with way(program.share) as (prefix, environment):
        remote = of("remote", prefix, environment)
        slower: Found = {}
        if program.network and "error" not in remote:
            network = {**environment, **emulated(SAME_RACK), "GPUPOOL_TRANSPORT": "tcp"}
            slower = of("network", prefix, network)
    equal = "error" not in alone and same(alone.get("result"), remote.get("result"), program.tolerance)
    if program.name == "memory":
        equal = equal and _within(alone, remote, float(program.share))
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


def _beside(way: Way, folder: Path) -> Found:
    """Two sessions compute side by side: which part of all steps each made."""
    if importlib.util.find_spec("torch") is None:
        return _left_out("this Python has no torch")
    seconds, shares = 15.0, ("0.3", "0.7")
    begin = time.time() + 45
    with way("1.0") as (prefix, environment):
        started = [
            subprocess.Popen(
                [
                    *_with_share(prefix, share),
                    *(sys.executable, str(PROGRAMS / "beside.py"), str(begin), str(seconds)),
                ],
                env=environment,
                stdout=(folder / f"beside-{share}.out").open("w"),
                stderr=(folder / f"beside-{share}.err").open("w"),
            )
            for share in shares
        ]
        try:
            codes = [process.wait(45 + seconds + _PATIENCE) for process in started]
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
    steps = [_steps(folder / f"beside-{share}.out") for share in shares]
    total = sum(steps)
    made = {share: round(of / max(1, total), 3) for share, of in zip(shares, steps, strict=True)}
    said = ", ".join(f"{share} made {part} of all steps" for share, part in made.items())
    return {
        "ok": codes == [0, 0] and all(steps),
        "steps": dict(zip(shares, steps, strict=True)),
        "made": made,
        "said": said if total else f"they ended with {codes}",
    }


def _with_share(prefix: list[str], share: str) -> list[str]:
    """The same command with another share, which stands behind ``-p``."""
    at = prefix.index("-p") + 1
    return [*prefix[:at], share, *prefix[at + 1 :]]


def _steps(file: Path) -> int:
    try:
        found: dict[str, Any] = json.loads(file.read_text().splitlines()[-1])
        return int(found["figures"]["steps"])
    except (OSError, IndexError, ValueError, KeyError):
        return 0


def environment_of_programs(before: dict[str, str]) -> dict[str, str]:
    """With the folder that the programs' own imports begin in."""
    root = str(PROGRAMS.parents[2])
    path = os.pathsep.join(part for part in (root, before.get("PYTHONPATH", "")) if part)
    return {**before, "PYTHONPATH": path}
