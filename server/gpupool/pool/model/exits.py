"""What the exit status of a worker says."""

from __future__ import annotations

from typing import Final

#: What a worker says itself, or its agent in its place (12).
_REASONS: Final = {0: "exit", 10: "reset", 11: "stopped", 12: "upgrade"}
#: Nobody could collect it: the worker was no child of the agent that saw its end.
_UNKNOWN: Final = 13


def reason_of_exit(status: int) -> str:
    """Why the session ended. Of a worker that crashed, or of which nobody knows, the memory is lost."""
    return _REASONS.get(status, "lost")


def how_ended(status: int) -> str:
    """``by signal 9``, ``with status 1``."""
    if status == _UNKNOWN:
        return "with a status that nobody saw"
    return f"by signal {-status}" if status < 0 else f"with status {status}"
