"""Where the software GPU finds BLAS and LAPACK for the operations of math libraries: NumPy's wheels bring OpenBLAS along."""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

#: Read by the software GPU: a path, or ``none`` for its own plain loops.
BLAS_VARIABLE: Final = "GPUPOOL_SOFTGPU_BLAS"


def blas_variables() -> dict[str, str]:
    """What a process with a software GPU is told; empty: it has been told already, or there is no library."""
    if os.environ.get(BLAS_VARIABLE):
        return {}
    library = blas_library()
    return {BLAS_VARIABLE: str(library)} if library is not None else {}


@cache
def blas_library() -> Path | None:
    """OpenBLAS with 64-bit integers, of NumPy's wheel; NumPy is not imported."""
    spec = find_spec("numpy")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent.parent / "numpy.libs"
    return next(iter(sorted(folder.glob("libscipy_openblas64_*.so"))), None)
