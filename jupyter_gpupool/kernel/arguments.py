"""The words after ``%%gpu`` and ``%gpu``: a request, and errors that name the value."""

from __future__ import annotations

import argparse
import math
import shlex
from typing import Any, Final, NoReturn

from gpupool.likeness import nearest
from gpupool.request.forms import of_words
from gpupool.request.gpu_request import GpuRequest, made_of, table
from gpupool.request.option import Option, Place, RequestError
from gpupool.shares import Share, ShareError

from jupyter_gpupool.kernel.errors import GpuUsageError

#: Words behind a number that belong to it.
_UNITS: Final = ("mib", "gib", "mb", "gb", "%")
#: How each place is called.
_NAMES: Final = {Place.CELL: "%%gpu", Place.LINE: "%gpu attach", Place.AUTO: "%gpu auto on"}


class _Parser(argparse.ArgumentParser):
    """An argument parser that raises: argparse would end the kernel process."""

    def error(self, message: str) -> NoReturn:
        raise GpuUsageError(f"{message[:1].upper()}{message[1:]}.{self._hint(message)} Usage: {self.usage}")

    def _hint(self, message: str) -> str:
        """What may have been meant by the first word that it does not know."""
        _, unknown, words = message.partition("unrecognized arguments: ")
        word = words.split()[0].partition("=")[0] if unknown and words.strip() else ""
        flags = [flag for action in self._actions for flag in action.option_strings]
        meant = nearest(word, flags) if word.startswith("-") else ""
        return f" Did you mean {meant}?" if meant else ""

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise GpuUsageError(message or f"Usage: {self.usage}")


def usage(place: Place = Place.CELL, record: type[GpuRequest] = GpuRequest) -> str:
    """The line as one writes it there."""
    words = [_NAMES[place], "[SHARE]"]
    for option in table(place, record):
        if option.flag:
            words.append(f"[{option.flag} {option.metavar}]" if option.metavar else f"[{option.flag}]")
    return " ".join([*words, "| off"] if place is Place.AUTO else words)


def cell_parser(place: Place = Place.CELL, record: type[GpuRequest] = GpuRequest) -> argparse.ArgumentParser:
    """The parser of ``%%gpu`` and its like; its help is the magic's help."""
    parser = _Parser(prog="gpu", usage=usage(place, record), add_help=False, allow_abbrev=False)
    for option in table(place, record):
        # argparse wants percent signs doubled.
        said = option.help.replace("%", "%%")
        if not option.flag:
            parser.add_argument(option.name, nargs="?", metavar=option.metavar, help=said)
            continue
        more: dict[str, Any] = {"action": "store_true", "default": None}
        if option.metavar:
            more = {"metavar": option.metavar, "action": "append" if option.repeated else "store"}
        parser.add_argument(option.flag, dest=option.name, help=said, **more)
    return parser


def parse_cell(line: str, place: Place = Place.CELL, record: type[GpuRequest] = GpuRequest) -> GpuRequest:
    """Reads the words after ``%%gpu``.

    Raises:
        GpuUsageError: names the word that is wrong, and what is allowed.
    """
    said = vars(cell_parser(place, record).parse_args(_share_as_one_word(split(line))))
    rows: dict[str, Option] = {option.name: option for option in table(place, record)}
    try:
        given = {name: of_words(rows[name], text) for name, text in said.items() if text is not None}
        return made_of(given, record)
    except RequestError as error:
        raise GpuUsageError(str(error)) from None


def _share_as_one_word(words: list[str]) -> list[str]:
    """``2 GiB`` as people write it is one share."""
    if len(words) > 1 and words[0][:1].isdigit() and words[1].lower() in _UNITS:
        return ["".join(words[:2]), *words[2:]]
    return words


def parse_auto(words: list[str]) -> GpuRequest | None:
    """Reads the words after ``%gpu auto``; None means off.

    Raises:
        GpuUsageError: names the word that is wrong, and what is allowed.
    """
    switch = words[0] if words else ""
    if switch not in ("on", "off"):
        raise GpuUsageError(
            f"%gpu auto is switched on or off, {switch!r} is neither. Usage: {usage(Place.AUTO)}"
        )
    if switch == "on":
        return parse_cell(shlex.join(words[1:]), Place.AUTO)
    if len(words) > 1:
        raise GpuUsageError(f"%gpu auto off takes no argument, {' '.join(words[1:])!r} was given.")
    return None


def split(line: str) -> list[str]:
    """Words as a shell would split them; a comment behind them is not one of them."""
    try:
        return shlex.split(line, comments=True)
    except ValueError as error:
        raise GpuUsageError(f"{line.strip()!r} cannot be read: {error}.") from None


def checked_share(text: str) -> str:
    """The share as written, if it is one."""
    try:
        Share.parse(text)
    except ShareError as error:
        raise GpuUsageError(str(error)) from None
    return text


def minutes(text: str) -> float:
    """How long an idle GPU is to be kept."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise GpuUsageError(
            f"%gpu keep needs a number of minutes, for instance %gpu keep 10; {text!r} is none."
        )
    return value
