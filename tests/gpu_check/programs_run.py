"""Runs a program of the check, and says what it printed; results that should be equal are compared here."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

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
        seconds: after which it is ended, with all that it started.
        log: gets all that it printed.
    """
    started = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        # Its group is ended with it: what it started would go on beside the next program.
        process = subprocess.Popen(
            [*prefix, sys.executable, str(program), *arguments],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            process_group=0,
        )
        try:
            status: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            end_group(process)
        taken = round(time.monotonic() - started, 2)
        stdout, stderr = _text(out), _text(errors)
    if log is not None:
        log.write_text(f"status {status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}\n")
    if status is None:
        return {"error": f"not done after {seconds:.3g} s: {stderr[-800:]}", "seconds": taken}
    try:
        found: Found = json.loads(stdout.splitlines()[-1]) if status == 0 else {}
    except (IndexError, ValueError):
        found = {}
    if not found:
        said = (stderr or stdout)[-1500:]
        return {"error": f"it ended with status {status}: {said}", "seconds": taken}
    return {**found, "seconds": taken}


def end_group(process: subprocess.Popen[Any], seconds: float = 5.0) -> None:
    """Ends a process that leads a group, and all of the group: politely, and after so many seconds by force."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(seconds)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


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


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
