"""What tests of `gpupool softgpu` start: programs over the driver API, with their PTX in their text."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gpupool.client.native import native_directory

ROOT = Path(__file__).resolve().parents[2]

#: How such a program begins: `call("cuInit", 0)` fails by itself. Its PTX follows PTX_HEADER.
OPENING = """
import ctypes, os, sys, threading, time
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    assert result == 0, (name, result)
"""
PTX_HEADER = """
.version 7.0
.target sm_75
.address_size 64
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "gpupool.cli.main", "softgpu", *arguments]


def environment(**more: str) -> dict[str, str]:
    """This process's, without settings of its own for pool and devices."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPUPOOL_", "CUDA_"))}
    ours = {"PYTHONPATH": str(ROOT / "server"), "GPUPOOL_NATIVE_DIR": str(native_directory())}
    return kept | ours | more
