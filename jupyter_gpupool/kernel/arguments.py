"""The words after ``%%gpu`` and ``%gpu``: what they mean, and errors that name the value."""

from __future__ import annotations

import argparse
import math
import shlex
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from gpupool.durations import DurationError, parse_duration
from gpupool.shares import MAXIMUM_DEVICES, NODE_CHOICES, WHOLE_DEVICE_MILLI, Share, ShareError
from gpupool.terms import (
    MOST_PRIORITY,
    Terms,
    TermsError,
    checked_filters,
    checked_kind,
    checked_pools,
    checked_project,
    checked_type,
)

from jupyter_gpupool.kernel.errors import GpuUsageError
from jupyter_gpupool.kernel.option_table import OPTIONS, SHARE_HELP

ANY_TERMS: Final = Terms()

TERMS_USAGE: Final = (
    "[--project PATH] [--type NAME] [--kind KIND] [--priority N] [--filter CONDITION] [--node-pool NAME]"
)
CELL_USAGE: Final = (
    "%%gpu [SHARE] [-n N] [--nodes auto|one|any] [--wait TIME] [--hold] [--for TIME] [--strict] [--exclusive] "
    f"{TERMS_USAGE}"
)
AUTO_USAGE: Final = (
    "%gpu auto on [SHARE] [-n N] [--nodes auto|one|any] [--wait TIME] [--strict] [--exclusive] "
    f"{TERMS_USAGE} | off"
)
#: Longest wait and duration, seconds (31 days), as the server has it.
LONGEST_SECONDS: Final = 31 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class CellArguments:
    """What one ``%%gpu`` line asks for.

    Attributes:
        share: as written and checked; None means the server's default.
        count: devices, the same share of each.
        wait_seconds: longest wait in the queue; None means the server's default, negative for ever.
        hold: keep the GPU after the cell, until detached or idle.
        duration_seconds: the lease ends by itself after so long, even while the cell runs; 0: no end.
        strict: GPU time is capped at the share, also while nobody else wants the device.
        nodes: on how many nodes they may lie: ``one``, ``any``, or ``auto``: one, if a node could ever serve it.
        terms: project, kind, priority, filters, node pools.
    """

    share: str | None = None
    count: int = 1
    wait_seconds: float | None = None
    hold: bool = False
    duration_seconds: float = 0.0
    strict: bool = False
    nodes: str = "auto"
    terms: Terms = ANY_TERMS


class _Parser(argparse.ArgumentParser):
    """An argument parser that raises: argparse would end the kernel process."""

    def error(self, message: str) -> NoReturn:
        raise GpuUsageError(f"{message[:1].upper()}{message[1:]}. Usage: {self.usage}")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise GpuUsageError(message or f"Usage: {self.usage}")


def cell_parser(usage: str = CELL_USAGE) -> argparse.ArgumentParser:
    """The parser of ``%%gpu`` and ``%gpu attach``; its help is the magic's help."""
    parser = _Parser(prog="gpu", usage=usage, add_help=False, allow_abbrev=False)
    parser.add_argument("share", nargs="?", metavar="SHARE", help=SHARE_HELP)
    for option in OPTIONS:
        more: dict[str, Any] = {"action": "store_true"}
        if option.metavar:
            more = {"metavar": option.metavar, "action": "append" if option.repeated else "store"}
        parser.add_argument(option.name, dest=option.field, help=option.help, **more)
    return parser


def parse_cell(line: str, usage: str = CELL_USAGE) -> CellArguments:
    """Reads the words after ``%%gpu``.

    Raises:
        GpuUsageError: names the word that is wrong, and what is allowed.
    """
    parsed = cell_parser(usage).parse_args(split(line))
    return CellArguments(
        share=_exclusive_share(parsed.share) if parsed.exclusive else checked_share(parsed.share),
        count=_count(parsed.count or "1"),
        nodes=_nodes(parsed.nodes or "auto"),
        wait_seconds=None if parsed.wait is None else _wait(parsed.wait),
        hold=parsed.hold,
        duration_seconds=0.0 if parsed.duration is None else _duration(parsed.duration, "--for", least=1),
        strict=parsed.strict,
        terms=_terms(parsed),
    )


def _exclusive_share(text: str | None) -> str:
    """The share of a device that nobody else has a part of: all of it."""
    if text is not None and Share.parse(str(checked_share(text))).milli != WHOLE_DEVICE_MILLI:
        raise GpuUsageError(
            f"--exclusive is a whole GPU, which nobody shares; {text} is a part of one. "
            "Leave the share out, or leave --exclusive out."
        )
    return "1"


def _wait(text: str) -> float:
    """Longest wait, seconds; negative: without end."""
    if text == "forever" or text == "-1":
        return -1.0
    return _duration(text, "--wait", least=0)


def _duration(text: str, option: str, *, least: float) -> float:
    try:
        value = parse_duration(text)
    except DurationError:
        value = math.nan
    if not least <= value <= LONGEST_SECONDS:
        without_end = ", or forever" if option == "--wait" else ""
        raise GpuUsageError(
            f"{option} needs a time from {least:g} s to 31 days (90, 90s, 10m, 2h{without_end}), {text!r} is not one."
        )
    return value


def _terms(parsed: argparse.Namespace) -> Terms:
    priority = 0
    if parsed.priority is not None:
        text = parsed.priority
        digits = text.isascii() and text.isdigit() and len(text) <= 6
        if not digits or not 1 <= int(text) <= MOST_PRIORITY:
            raise GpuUsageError(
                f"--priority needs a whole number from 1 to {MOST_PRIORITY}, {text!r} is not one."
            )
        priority = int(text)
    try:
        return Terms(
            project=checked_project(parsed.project or ""),
            kind=checked_kind(parsed.kind or "interactive"),
            priority=priority,
            filters=checked_filters([*map(checked_type, parsed.types or ()), *(parsed.filters or ())]),
            pools=checked_pools(parsed.pools or []),
        )
    except TermsError as error:
        raise GpuUsageError(str(error)) from None


def parse_auto(words: list[str]) -> CellArguments | None:
    """Reads the words after ``%gpu auto``; None means off.

    Raises:
        GpuUsageError: names the word that is wrong, and what is allowed.
    """
    switch = words[0] if words else ""
    if switch not in ("on", "off"):
        raise GpuUsageError(f"%gpu auto is switched on or off, {switch!r} is neither. Usage: {AUTO_USAGE}")
    if switch == "on":
        arguments = parse_cell(shlex.join(words[1:]), AUTO_USAGE)
        if arguments.duration_seconds or arguments.hold:
            raise GpuUsageError(f"%gpu auto takes no --hold and no --for. Usage: {AUTO_USAGE}")
        return arguments
    if len(words) > 1:
        raise GpuUsageError(f"%gpu auto off takes no argument, {' '.join(words[1:])!r} was given.")
    return None


def split(line: str) -> list[str]:
    """Words as a shell would split them; a comment behind them is not one of them."""
    try:
        return shlex.split(line, comments=True)
    except ValueError as error:
        raise GpuUsageError(f"{line.strip()!r} cannot be read: {error}.") from None


def checked_share(text: str | None) -> str | None:
    """The share as written, if it is one."""
    if text is None:
        return None
    try:
        Share.parse(text)
    except ShareError as error:
        raise GpuUsageError(str(error)) from None
    return text


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:6]) <= MAXIMUM_DEVICES:
        raise GpuUsageError(
            f"-n needs a whole number of GPUs from 1 to {MAXIMUM_DEVICES}, {text!r} is not one."
        )
    return int(text)


def _nodes(text: str) -> str:
    if text not in NODE_CHOICES:
        raise GpuUsageError(f"--nodes is one of {', '.join(NODE_CHOICES)}, {text!r} is not.")
    return text


def seconds(text: str, option: str, *, least: float) -> float:
    """A finite number of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < least:
        raise GpuUsageError(f"{option} needs a number of seconds (at least {least:g}), {text!r} is not one.")
    return value
