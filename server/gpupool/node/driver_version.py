"""The version of a node's driver, as people and `nvidia-smi` write it: ``580.65.06``."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path
from typing import Any, Final

_KERNEL_MODULE: Final = Path("/proc/driver/nvidia/version")
_NUMBER = re.compile(r"\b([0-9]{2,4}(?:\.[0-9]{1,4}){1,3})\b", re.ASCII)


def driver_version(*, software: bool, kernel_module: Path = _KERNEL_MODULE) -> str:
    """NVIDIA's version by NVML, else by the kernel module; the software GPU's is gpupool's own.

    Empty: not known.
    """
    if software:
        try:
            return metadata.version("jupyter-gpupool")
        except metadata.PackageNotFoundError:
            return ""
    return _of_nvml() or _of_kernel_module(kernel_module)


def _of_nvml() -> str:
    try:
        import pynvml

        nvml: Any = pynvml
        nvml.nvmlInit()
    except Exception:
        return ""  # no NVML here; that devices are not watched is said by gpupool.node.health
    try:
        version = nvml.nvmlSystemGetDriverVersion()
        return version.decode() if isinstance(version, bytes) else str(version)
    except nvml.NVMLError:
        return ""
    finally:
        nvml.nvmlShutdown()


def _of_kernel_module(path: Path) -> str:
    """``NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun …``; the open module says it alike."""
    try:
        line = path.read_text(errors="replace").partition("\n")[0]
    except OSError:
        return ""
    found = _NUMBER.search(line)
    return found[1] if found else ""
