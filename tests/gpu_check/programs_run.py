"""Runs a program of the check, and says what it printed; results that should be equal are compared here."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Found = dict[str, Any]


def run(
    program: Path,
    prefix: Sequence[str],
    environment: Mapping[str, str],
    *arguments: str,
    seconds: float = 300,
    log: Path | None = None,
) -> Found:
    """The JSON object that the program prints last, with its wall time; or ``error``.

    Args:
        program: a file, run by this interpreter.
        prefix: the command that runs it, such as ``gpupool run … --``.
        environment: of the process.
        arguments: of the program.
        seconds: after which it is ended.
        log: gets all that it printed.
    """
    started = time.monotonic()
    try:
        done = subprocess.run(
            [*prefix, sys.executable, str(program), *arguments],
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        return {"error": f"not done after {seconds:g} s: {_text(late.stderr)[-800:]}", "seconds": seconds}
    if log is not None:
        log.write_text(f"status {done.returncode}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}\n")
    taken = round(time.monotonic() - started, 2)
    try:
        found: Found = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}
    except (IndexError, ValueError):
        found = {}
    if not found:
        said = (done.stderr or done.stdout)[-1500:]
        return {"error": f"it ended with status {done.returncode}: {said}", "seconds": taken}
    return {**found, "seconds": taken}


def same(one: object, other: object, tolerance: float = 0.0) -> bool:
    """Whether two results are equal, numbers up to so large a part of the larger one."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key], tolerance) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(a, b, tolerance) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance) or one == other
    return type(one) is type(other) and one == other


def ratios(local: Found, remote: Found) -> dict[str, float]:
    """By figure, how many times that of the machine itself the remote one is."""
    mine, its = local.get("figures", {}), remote.get("figures", {})
    return {
        name: round(its[name] / mine[name], 3)
        for name in mine
        if isinstance(mine[name], int | float) and isinstance(its.get(name), int | float) and mine[name] > 0
    }


def _text(said: str | bytes | None) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else said or ""
