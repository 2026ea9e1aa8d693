"""Names of the CUDA errors after which a GPU session can do nothing until it is reset."""

from __future__ import annotations

from typing import Final

_NAMES: Final = {
    214: "uncorrectable memory error",
    700: "illegal address",
    702: "launch timeout",
    709: "context is destroyed",
    710: "assertion failed",
    714: "hardware stack error",
    715: "illegal instruction",
    716: "misaligned address",
    717: "invalid address space",
    718: "invalid program counter",
    719: "launch failed",
}


def ends_session(code: int) -> bool:
    """Whether nothing can be done any more after the error ``code``."""
    return code in _NAMES


def failure_name(code: int) -> str:
    """``illegal address`` for 700, the number where there is no name; empty for 0."""
    return _NAMES.get(code, f"CUDA error {code}") if code else ""
