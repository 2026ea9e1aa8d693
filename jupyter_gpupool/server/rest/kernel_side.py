"""What a kernel hears that asks for itself."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypeAliasType, TypedDict

from jupyter_gpupool.server.rest.explanations import QueuePlace
from jupyter_gpupool.server.rest.kernels import Kernel


class OwnKernel(Kernel):
    """The kernel that asks."""

    description: str | None
    """What it holds, in words; null: nothing."""
    kept_seconds: int
    """For how long it is not released as idle, because somebody asked to keep it."""


class QueuedLine(QueuePlace):
    """The request waits."""

    event: Literal["queued"]


class WaitingLine(TypedDict):
    """It still waits: a sign of life."""

    event: Literal["waiting"]


class RefusedLine(TypedDict):
    """The request was refused; the last line."""

    event: Literal["refused"]
    reason: str
    message: str


class AttachedLine(OwnKernel):
    """The share is there; the last line."""

    event: Literal["attached"]
    said: str | None
    """What the code that asked should know of it: that arrays are gone, or that some of what it asked for does not count."""


#: A line of the answer to a kernel that attaches.
AttachLine = TypeAliasType("AttachLine", "QueuedLine | WaitingLine | RefusedLine | AttachedLine")
