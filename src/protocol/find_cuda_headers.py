"""Print the directory that holds cuda.h and cudaTypedefs.h of the installed CUDA header wheel.

The headers come from a PyPI package (`nvidia-cuda-runtime` or the `cuda-toolkit` extra `cudart`), which unpacks into
`nvidia/cu13/include` or, for older majors, `nvidia/cuda_runtime/include`. `GPUPOOL_CUDA_INCLUDE` overrides the search.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path


def candidates() -> list[Path]:
    """Directories to look into, best first."""
    found: list[Path] = []
    override = os.environ.get("GPUPOOL_CUDA_INCLUDE")
    if override:
        found.append(Path(override))
    for key in ("purelib", "platlib"):
        root = Path(sysconfig.get_paths()[key]) / "nvidia"
        found += sorted(root.glob("cu[0-9]*/include"), reverse=True)
        found.append(root / "cuda_runtime" / "include")
    return found


def find() -> Path:
    """The include directory. Raises FileNotFoundError when no candidate holds both headers."""
    for directory in candidates():
        if (directory / "cuda.h").is_file() and (directory / "cudaTypedefs.h").is_file():
            return directory
    raise FileNotFoundError(
        "cuda.h and cudaTypedefs.h not found: install the build requirement cuda-toolkit[cudart] or set GPUPOOL_CUDA_INCLUDE"
    )


if __name__ == "__main__":
    try:
        print(find())
    except FileNotFoundError as error:
        sys.exit(str(error))
