"""Kernels that frameworks bring as machine code alone: a software GPU runs none, which a rehearsal must not call a failure."""

from __future__ import annotations

from typing import Final

from tests.gpu_check.time_left import LeftOut

#: How programs say so; 209: CUDA_ERROR_NO_BINARY_FOR_GPU.
_MISSING: Final = (
    "no kernel image",
    "NoKernelImageForDevice",
    "cuLaunchKernel failed earlier with error 209",
)


def need_machine_code(said: object, *, real: bool) -> None:
    """Raises LeftOut where a program on a software GPU said that its kernels cannot run; on a real one that is a failure.

    Args:
        said: what the program or its worker said.
        real: the device is a real GPU.
    """
    if not real and any(words in str(said) for words in _MISSING):
        raise LeftOut("a software GPU cannot run PyTorch's machine code")
