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


#: A line of the answer to a kernel that attaches.
AttachLine = TypeAliasType("AttachLine", "QueuedLine | WaitingLine | RefusedLine | AttachedLine")
