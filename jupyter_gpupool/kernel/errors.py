"""Errors that a notebook shows as one clear message, without a traceback of our own code."""

from __future__ import annotations


class GpuError(RuntimeError):
    """A GPU could not be had; ``reason`` is an id such as ``full``, ``quota`` or ``pool-down``."""

    def __init__(self, message: str, reason: str = "error") -> None:
        super().__init__(message)
        self.reason = reason

    def _render_traceback_(self) -> list[str]:
        """IPython shows these lines in place of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class GpuUsageError(GpuError):
    """The arguments of ``%gpu`` or ``%%gpu`` are wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "bad-arguments")


class GpuWaitInterrupted(KeyboardInterrupt):
    """The user interrupted the wait in the queue; nothing is attached."""

    def _render_traceback_(self) -> list[str]:
        return [f"KeyboardInterrupt: {self}"]


class GpuWorkInterrupted(KeyboardInterrupt):
    """The user would not wait for what a cell had submitted."""

    def _render_traceback_(self) -> list[str]:
        return [f"KeyboardInterrupt: {self}"]
