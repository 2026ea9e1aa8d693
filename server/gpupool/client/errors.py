"""What can go wrong when a program asks for a GPU; ``str()`` of each is one clear sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpupool.client import at_work

if TYPE_CHECKING:
    from gpupool.client.types import Explanation


class GpupoolError(Exception):
    """Base of all errors of the client library."""


class DirectoryUnusableError(GpupoolError, OSError):
    """A directory for sockets, secrets or the ledger cannot be made, or is not private to its owner."""


class PoolUnavailableError(GpupoolError):
    """The pool server cannot be reached, or stopped answering.

    Attributes:
        advice: what to do about it, where that is known; it is part of the message.
    """

    def __init__(self, endpoint: str, detail: str, advice: str = "") -> None:
        after = f" {advice}" if advice else ""
        super().__init__(f"The GPU pool does not answer at {endpoint} ({detail}).{after}")
        self.endpoint = endpoint
        self.detail = detail
        self.advice = advice


class PoolRefusedError(GpupoolError):
    """The pool answered, and the answer is no.

    Attributes:
        reason: an id: ``bad-share full quota limit over-quota unknown-project unknown-session no-node forbidden
            unknown-lease in-use too-many-requests``.
        explanation: one sentence with numbers, also ``str()`` of this error.
        details: the same for programs, and what would help; None: the pool said no more.
    """

    def __init__(self, reason: str, explanation: str, details: Explanation | None = None) -> None:
        super().__init__(explanation)
        self.reason = reason
        self.explanation = explanation
        self.details = details


class QueueTimeoutError(PoolRefusedError):
    """The share did not become free within the time that the caller would wait."""

    def __init__(self, explanation: str, details: Explanation | None = None) -> None:
        super().__init__("timeout", explanation, details)


class RuntimeConflictError(GpupoolError):
    """Another CUDA driver library is already mapped into this process, ours would come too late."""


class RuntimeMissingError(GpupoolError):
    """The native libraries of the client runtime are not installed here."""


#: What the runtime was asked to do, as people say it.
_ACTIONS: Final = {
    "attach": "attaching",
    "drain": "waiting for the work that was submitted",
    "detach": "detaching",
}


def _without_a_message(action: str, result: int) -> str:
    if result in at_work.FAILURES:
        return (
            f"the GPU session has failed: {at_work.failure_name(result)}; it can do nothing until it is reset"
        )
    return f"{_ACTIONS.get(action, action)} failed with CUDA error {result}"


class DeviceCallFailedError(GpupoolError):
    """The client runtime could not attach, drain or detach.

    Attributes:
        result: the CUresult code, e.g. 46 ``CUDA_ERROR_DEVICE_UNAVAILABLE``.
    """

    def __init__(self, action: str, result: int, message: str) -> None:
        super().__init__(message or _without_a_message(action, result))
        self.action = action
        self.result = result
