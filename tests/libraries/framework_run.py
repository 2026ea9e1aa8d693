"""Runs a program that imports a framework, by the interpreter that has it, and reads what it found."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest


def python_of(variable: str, framework: str) -> str:
    """The interpreter that an environment variable names; skips the test where it names none."""
    python = os.environ.get(variable)
    if not python:
        pytest.skip(f"{variable} names no interpreter with {framework}")
    return python


def found_by(
    python: str, program: Path, variables: Mapping[str, str], seconds: float
) -> tuple[dict[str, Any], str]:
    """The JSON of the program's last line, and what it wrote beside it."""
    done = subprocess.run(
        [python, str(program)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found, done.stderr
