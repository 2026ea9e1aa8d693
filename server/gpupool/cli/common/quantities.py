"""How people write quantities of GPUs and of GPU time, for projects and limits."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

import typer

from gpupool.cli.common.options import duration
from gpupool.shares import WHOLE_DEVICE_MILLI, format_milli, format_share

_GPUS: Final = re.compile(r"[0-9]{1,7}(\.[0-9]{1,3})?", re.ASCII)
_QUOTA: Final = re.compile(r"([^=\s]{1,128})=(.{1,40})", re.ASCII)
#: Milli-GPU-milliseconds of one GPU in one hour.
GPU_HOUR: Final = 1000 * 3_600_000
#: Words for "not set".
NONE: Final = "none"
REST: Final = "rest"


def milli(text: str) -> int:
    """Milli-GPU of ``2``, ``0.5`` or ``12.125`` GPUs."""
    if not _GPUS.fullmatch(text.strip()):
        raise typer.BadParameter(
            f"{text!r} is no number of GPUs; write for example 2 or 0.5, in steps of 0.001"
        )
    return int(Decimal(text.strip()) * WHOLE_DEVICE_MILLI)


def quota(text: str) -> tuple[str, int]:
    """User and milli-GPU of ``ann=2`` or ``*=0.5``."""
    match = _QUOTA.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"{text[:200]!r} is no quota; write USER=GPUS, for example ann=2 or '*=0.5'")
    return match[1], milli(match[2])


def milli_or(word: str, text: str) -> int | None:
    """The same, or None for ``word``."""
    if text.strip() == word:
        return None
    try:
        return milli(text)
    except typer.BadParameter as error:
        raise typer.BadParameter(f"{error.message}, or {word}") from None


def number_or_none(text: str) -> int | None:
    """A count, or None for ``none``."""
    written = text.strip()
    if written == NONE:
        return None
    if not (written.isascii() and written.isdigit()) or len(written) > 9:
        raise typer.BadParameter(f"{text!r} is no count; write a whole number, or {NONE}")
    return int(written)


def seconds_or(word: str, text: str) -> float | None:
    """A time, or None for ``word``."""
    return None if text.strip() == word else duration(text)


def gpus(amount: int | None, none: str = "-") -> str:
    """Milli-GPU that somebody has set, as GPUs; ``none`` when it is not set."""
    return none if amount is None else format_milli(amount)


def measured(amount: int) -> str:
    """Milli-GPU that are held, free or waited for, as GPUs."""
    return format_share(amount)


def gpus_set(amount: int) -> str:
    """What somebody has set: ``1 GPU``, ``0.5 GPUs``."""
    return f"{format_milli(amount)} GPU{'' if amount == WHOLE_DEVICE_MILLI else 's'}"


def gpus_word(amount: int) -> str:
    """What is measured or computed: ``1 GPU``, ``0.33 GPUs``."""
    return f"{format_share(amount)} GPU{'' if amount == WHOLE_DEVICE_MILLI else 's'}"


def gpu_hours(milli_ms: int) -> str:
    """Milli-GPU-milliseconds as GPU hours, to thousandths."""
    return f"{milli_ms / GPU_HOUR:.3f}"
