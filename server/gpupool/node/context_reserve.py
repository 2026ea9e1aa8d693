"""What a driver takes of a share for a context itself."""

from __future__ import annotations

from typing import Final

#: What a CUDA context takes by itself differs with card and driver: 200 to 500 MiB on present ones. Nobody is
#: told beforehand, so a round figure stands for it; `gpupool node start --context-reserve-mib` says a measured one.
NVIDIA_CONTEXT_MIB: Final = 300


def context_reserve_mib(asked: int | None, *, software: bool) -> int:
    """``asked``, or what is usual where nothing is asked: none for software GPUs."""
    if asked is not None:
        return asked
    return 0 if software else NVIDIA_CONTEXT_MIB
