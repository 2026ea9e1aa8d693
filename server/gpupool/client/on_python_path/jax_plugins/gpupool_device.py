"""Lets JAX use a GPU that has no device file on this machine, and several of them.

JAX asks whether `/dev/nvidia*` exists before it loads its CUDA plug-in, and computes on the CPU where it does not. It
imports all modules of `jax_plugins` first. This is one of them, as the folder above is in `PYTHONPATH`
(:mod:`gpupool.client.child_environment`), or in `sys.path` of a process that attaches while it runs
(:mod:`gpupool.client.runtime`). The program's Python may have nothing else of ours, so this imports only the standard
library and JAX.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

#: As in :mod:`gpupool.client.session_file`, which cannot be imported here.
_SESSION_FILE: Final = "GPUPOOL_SESSION_FILE"
#: With these the program has a share, or had one and gets it again: its calls wait for it.
_HAS_GPU: Final = {"state attached", "state waiting", "state parked"}
#: XLA records what it runs again and again as a CUDA graph, also what goes through NCCL. Ours exchanges on the host, which no
#: graph can record, and XLA gives up then. A `-` takes one kind from those that XLA records by itself. On several nodes it
#: must not record anything: it reads the graphs that it records, and one on a second node cannot be read.
_RECORDED: Final = "--xla_gpu_enable_command_buffer"
#: Where the `ptxas` is that passes PTX on; it comes first in `PATH` with a software GPU, and only then.
_ASSEMBLER: Final = Path(__file__).resolve().parents[2] / "assembler"
#: The first release that was tried with it: one that doesn't know the `-` would end the process.
_TRIED_SINCE: Final = (0, 10)


def initialize() -> None:
    """Called by JAX before it looks for devices."""
    if not has_gpu():
        return
    from jax import version
    from jax._src import hardware_utils, lib

    hardware_utils.has_visible_nvidia_gpu = lambda: True
    if takes_ptx():
        # NVIDIA's compiler beside JAX (`jax[cuda13]` brings it). XLA would take the `ptxas` there before that in `PATH`.
        lib.cuda_path = None
    if version.__version_info__ >= _TRIED_SINCE:
        # XLA reads them when it compiles the first time.
        os.environ["XLA_FLAGS"] = with_what_is_recorded(os.environ.get("XLA_FLAGS", ""))


def with_what_is_recorded(flags: str) -> str:
    """The flags for XLA, unless they say themselves what is recorded."""
    if _RECORDED in flags:
        return flags
    several_nodes = any(line.startswith("devices ") for line in _session())
    return f"{flags} {_RECORDED}={'' if several_nodes else '-COLLECTIVES'}".strip()


def takes_ptx() -> bool:
    """Whether the device is a software GPU, for which PTX isn't made into machine code."""
    found = shutil.which("ptxas")
    return found is not None and Path(found).resolve().parent == _ASSEMBLER


def has_gpu() -> bool:
    """Whether this process has a share of a GPU or may ask for one, or has a software GPU of its own."""
    if _SESSION_FILE not in os.environ:
        return True  # under `gpupool softgpu`, or it attaches by itself
    return not _HAS_GPU.isdisjoint(_session())


def _session() -> list[str]:
    """The lines of the session file; none without one."""
    try:
        return Path(os.environ[_SESSION_FILE]).read_text(encoding="utf-8").splitlines()
    except (KeyError, OSError, UnicodeDecodeError):
        return []
