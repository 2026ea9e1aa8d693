"""Builds the stand-in for the client runtime (stand_in_runtime.c)."""

from __future__ import annotations

import subprocess
from pathlib import Path


def build_stand_in(folder: Path) -> Path:
    """A native folder whose client library is the stand-in."""
    (folder / "client").mkdir()
    source = Path(__file__).with_name("stand_in_runtime.c")
    for name in ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"):
        target = folder / "client" / name
        command = ["cc", "-shared", "-fPIC", "-Wall", "-Werror", f"-Wl,-soname,{name}", "-o", target, source]
        subprocess.run(command, check=True)
    empty = [
        *("cudart/libcudart.so.13", "cudart/libcudart.so.12"),
        *("compat/libnvJitLink.so.13", "compat/libnvJitLink.so.12"),
    ]
    for name in empty:
        target = folder / name
        target.parent.mkdir(exist_ok=True)
        command = ["cc", "-shared", f"-Wl,-soname,{target.name}", "-o", target, "-x", "c", "/dev/null"]
        subprocess.run(command, check=True)
    return folder
