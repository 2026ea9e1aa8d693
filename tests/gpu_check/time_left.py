"""The one deadline of a whole check: each step gets what it may take, and no more than is left."""

from __future__ import annotations

import time
from typing import Final

NO_TIME: Final = "no time is left"


class LeftOut(Exception):
    """The machine has no means for this part, or there is no time for it; ``str()`` says which."""


#: How programs say that the device runs none of their machine code, as a software GPU does; 209: CUDA_ERROR_NO_BINARY_FOR_GPU.
_NO_MACHINE_CODE: Final = (
    "no kernel image",
    "NoKernelImageForDevice",
    "cuLaunchKernel failed earlier with error 209",
)


def need_machine_code(said: object) -> None:
    """Raises LeftOut where a program said that the device cannot run its kernels."""
    if any(words in str(said) for words in _NO_MACHINE_CODE):
        raise LeftOut("this driver cannot run PyTorch's machine code")


class TimeLeft:
    """Counts from now.

    Args:
        seconds: of the whole.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        return self._end - time.monotonic()

    def of(self, patience: float) -> float:
        """So many seconds, or as many as are left. Raises LeftOut: none."""
        left = self.left()
        if left <= 0:
            raise LeftOut(NO_TIME)
        return min(patience, left)
