"""The build with sanitizers that the tests use, and programs that are compiled with the same sanitizers."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

VARIABLE = "GPUPOOL_SANITIZED_BUILD"
BUILD = Path(os.environ.get(VARIABLE, ""))

needs_build = pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no build")


def compile_program(name: str, folder: Path) -> Path:
    """Compiles the source of that name beside this file, with the sanitizers of the build."""
    source, made = Path(__file__).with_name(name), folder / Path(name).stem
    compiler = ["gcc", "-Wno-deprecated-non-prototype"] if source.suffix == ".c" else ["g++", "-std=c++20"]
    options = ["-g1", "-O1", f"-fsanitize={_sanitizers()}", "-pthread"]
    subprocess.run([*compiler, *options, "-o", made, source, "-ldl"], check=True)
    return made


def _sanitizers() -> str:
    cache = (BUILD / "CMakeCache.txt").read_text()
    chosen = re.search(r"^GPUPOOL_SANITIZE:\w+=(\w+)$", cache, re.MULTILINE)
    assert chosen is not None, f"{BUILD} is no build of this project"
    return "thread" if chosen[1] == "thread" else "address,undefined"
