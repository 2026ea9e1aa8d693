"""Lets JAX use a GPU that has no device file on this machine.

JAX asks whether `/dev/nvidia*` exists before it loads its CUDA plug-in, and computes on the CPU where it does not. It
imports all modules of `jax_plugins` first. This is one of them, as the folder above is in `PYTHONPATH`
(:mod:`gpupool.client.child_environment`), or in `sys.path` of a process that attaches while it runs
(:mod:`gpupool.client.runtime`). The program's Python may have nothing else of ours, so this imports only the standard
library and JAX.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

#: As in :mod:`gpupool.client.session_file`, which cannot be imported here.
_SESSION_FILE: Final = "GPUPOOL_SESSION_FILE"
#: With these the program has a share, or had one and gets it again: its calls wait for it.
_HAS_GPU: Final = {"state attached", "state waiting", "state parked"}


def initialize() -> None:
    """Called by JAX before it looks for devices."""
    if not has_gpu():
        return
    from jax._src import hardware_utils

    hardware_utils.has_visible_nvidia_gpu = lambda: True


def has_gpu() -> bool:
    """Whether this process has a share of a GPU or may ask for one, or has a software GPU of its own."""
    session = os.environ.get(_SESSION_FILE)
    if session is None:
        return True  # under `gpupool softgpu`, or it attaches by itself
    try:
        lines = Path(session).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return False
    return not _HAS_GPU.isdisjoint(lines)
