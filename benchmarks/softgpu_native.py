"""The plain C loops that ``gpupool bench softgpu`` compares with, built for this processor when it is measured."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Final

from gpupool.client.errors import GpupoolError

#: The compiler and its options: what the figures are ratios to.
COMPILER: Final = "gcc"
OPTIONS: Final = ("-O3", "-march=native", "-fPIC", "-shared")
_SOURCE: Final = Path(__file__).with_name("softgpu_kernels") / "native.c"


class NoCompilerError(GpupoolError):
    """There is no gcc, or it cannot build the loops to compare with."""


def build(folder: Path) -> Path:
    """The shared library with the loops, in ``folder``. Raises NoCompilerError."""
    compiler = shutil.which(COMPILER)
    if compiler is None:
        raise NoCompilerError(
            f"There is no {COMPILER} on the PATH; the figures are ratios to what it makes of C loops."
        )
    library = folder / "native.so"
    command = [compiler, *OPTIONS, "-o", str(library), str(_SOURCE), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise NoCompilerError(f"{COMPILER} cannot build {_SOURCE}: {done.stderr.strip()}")
    return library


def load(library: Path) -> ctypes.CDLL:
    """The loops as functions with their types."""
    loops = ctypes.CDLL(str(library))
    number, whole, pointer = ctypes.c_long, ctypes.c_int, ctypes.c_void_p
    loops.saxpy.argtypes = [number, ctypes.c_float, pointer, pointer, number]
    loops.sum.argtypes = [number, pointer]
    loops.sum.restype = ctypes.c_float
    loops.mandelbrot.argtypes = [whole, whole, whole, pointer]
    loops.matmul.argtypes = [number, pointer, pointer, pointer]
    loops.matmul_textbook.argtypes = [number, pointer, pointer, pointer]
    loops.fill.argtypes = [number, ctypes.c_uint32, pointer]
    loops.to_half.argtypes = [number, pointer, pointer]
    loops.difference.argtypes = [number, pointer, pointer]
    loops.difference.restype = ctypes.c_double
    loops.unequal.argtypes = [number, pointer, pointer]
    loops.unequal.restype = number
    loops.launches.argtypes = [pointer, pointer, pointer, number, whole]
    loops.launches.restype = ctypes.c_double
    return loops
