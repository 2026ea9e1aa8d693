"""Prints the directory that holds cuda_runtime_api.h of one major version: `find_runtime_headers.py 12`.

The headers come from PyPI packages: `nvidia-cuda-runtime` unpacks into `nvidia/cu13/include`, `nvidia-cuda-runtime-cu12`
into `nvidia/cuda_runtime/include`. `GPUPOOL_CUDA12_INCLUDE` and `GPUPOOL_CUDA13_INCLUDE` override the search.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from pathlib import Path


def candidates(major: int) -> list[Path]:
    """Directories to look into, best first."""
    override = os.environ.get(f"GPUPOOL_CUDA{major}_INCLUDE")
    found = [Path(override)] if override else []
    for key in ("purelib", "platlib"):
        root = Path(sysconfig.get_paths()[key]) / "nvidia"
        found += [root / f"cu{major}" / "include", root / "cuda_runtime" / "include"]
    return found


def find(major: int) -> Path:
    """The include directory. Raises FileNotFoundError when no candidate has the header of this version."""
    for directory in candidates(major):
        header = directory / "cuda_runtime_api.h"
        if header.is_file():
            version = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", header.read_text())
            if version and int(version[1]) // 1000 == major:
                return directory
    raise FileNotFoundError(
        f"cuda_runtime_api.h {major} not found: install the build requirements, or set GPUPOOL_CUDA{major}_INCLUDE"
    )


if __name__ == "__main__":
    try:
        print(find(int(sys.argv[1])))
    except FileNotFoundError as error:
        sys.exit(str(error))
