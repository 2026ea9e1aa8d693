"""Names of the CUDA errors after which a GPU session can do nothing until it is reset."""

from __future__ import annotations

from gpupool.client.at_work import FAILURES


def ends_session(code: int) -> bool:
    """Whether nothing can be done any more after the error ``code``."""
    return code in FAILURES


def failure_name(code: int) -> str:
    """``illegal address`` for 700, the number where there is no name; empty for 0."""
    return FAILURES.get(code, f"CUDA error {code}") if code else ""
