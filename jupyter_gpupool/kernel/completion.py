"""What can stand where the cursor is, in a ``%%gpu`` or ``%gpu`` line.

Pure: :func:`offers` takes the line and what the pool has; :mod:`jupyter_gpupool.kernel.matcher` asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpupool.request.gpu_request import table
from gpupool.request.option import Known, Option, Place

#: Words behind ``%gpu``, and what they do.
COMMANDS: Final = {
    "attach": "hold a share over several cells",
    "detach": "give the GPU back; what is in its memory is kept",
    "reset": "end the GPU session: arrays in GPU memory are lost, Python variables stay",
    "resize": "change the size of the share",
    "status": "what this kernel has and uses",
    "list": "the pool: devices, shares, queue",
    "keep": "no idle release for so many minutes",
    "auto": "CUDA calls attach by themselves",
    "widget": "live usage",
    "help": "what there is to say",
}
SHARES: Final = ("0.1", "0.2", "0.25", "0.5", "1", "20%", "2GiB", "4GiB")
_MINUTES: Final = ("10", "30", "60")
_NUMBERS_ABOVE: Final = ("memory>=", "driver>=")
_MODEL = re.compile(r"[A-Za-z]+-?[0-9]+[A-Za-z0-9]*", re.ASCII)
_PLAIN = re.compile(r"[\w.,:/=*?%+-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Choices:
    """What the pool has; all empty where it did not say."""

    projects: Sequence[str] = ()
    names: Sequence[str] = ()
    nodes: Sequence[str] = ()
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    node_pools: Sequence[str] = ()
    shares: Sequence[str] = SHARES

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Choices:
        """The answer of ``self/choices``; what is not as it should be is left out."""
        labels = said.get("labels")
        return cls(
            projects=_texts(said.get("projects")),
            names=_texts(said.get("names")),
            nodes=_texts(said.get("nodes")),
            labels={str(name): _texts(values) for name, values in labels.items()}
            if isinstance(labels, Mapping)
            else {},
            node_pools=_texts(said.get("node_pools")),
        )


def _texts(value: object) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


@dataclass(frozen=True, slots=True)
class Offers:
    """``texts`` that can take the place of ``fragment``, the end of the line."""

    fragment: str
    texts: tuple[str, ...] = ()


def offers(line: str, choices: Callable[[], Choices]) -> Offers | None:
    """For a line up to the cursor; None: it is not a line of ours.

    ``choices`` is called only where the pool's answer matters.
    """
    match = re.match(r"\s*(%%gpu|%gpu)(\s+)", line)
    if match is None:
        return None
    *before, fragment = _words(line[match.end() :])
    found = (
        _of_cell(before, fragment, choices, Place.CELL)
        if match[1] == "%%gpu"
        else _of_line(before, fragment, choices)
    )
    return Offers(fragment, tuple(found))


def _words(text: str) -> list[str]:
    """Words as they stand, quotes included; the last is the one that is being written (perhaps empty)."""
    words, quote = [""], ""
    for character in text:
        if quote:
            words[-1] += character
            quote = "" if character == quote else quote
        elif character.isspace():
            if words[-1]:
                words.append("")
        else:
            words[-1] += character
            quote = character if character in "'\"" else ""
    return words


def _of_line(before: list[str], fragment: str, choices: Callable[[], Choices]) -> Iterable[str]:
    match before:
        case []:
            return _beginning(fragment, COMMANDS)
        case ["attach", *rest]:
            return _of_cell(rest, fragment, choices, Place.LINE)
        case ["auto"]:
            return _beginning(fragment, ("on", "off"))
        case ["auto", "on", *rest]:
            return _of_cell(rest, fragment, choices, Place.AUTO)
        case ["resize"]:
            return _beginning(fragment, choices().shares)
        case ["keep"]:
            return _beginning(fragment, _MINUTES)
    return ()


def _of_cell(before: list[str], fragment: str, choices: Callable[[], Choices], place: Place) -> Iterable[str]:
    by_name = {option.flag: option for option in table(place) if option.flag}
    name, equals, value = fragment.partition("=")
    if equals and name in by_name and by_name[name].metavar:
        return [f"{name}={text}" for text in _values(by_name[name], value, choices)]
    if before and before[-1] in by_name and by_name[before[-1]].metavar:
        return _values(by_name[before[-1]], fragment, choices)
    given = {word.partition("=")[0] for word in before}
    names = [flag for flag, option in by_name.items() if option.repeated or flag not in given]
    if fragment.startswith("-"):
        return _beginning(fragment, names)
    if _has_share(before, by_name):
        return _beginning(fragment, names)
    return _beginning(fragment, (*choices().shares, *names))


def _has_share(before: list[str], by_name: Mapping[str, Option]) -> bool:
    """Whether a word that is neither an option nor its value stands there."""
    value_follows = False
    for word in before:
        if not value_follows and not word.startswith("-"):
            return True
        value_follows = not value_follows and word in by_name and bool(by_name[word].metavar)
    return False


def _values(option: Option, fragment: str, choices: Callable[[], Choices]) -> Iterable[str]:
    quote = fragment[:1] if fragment[:1] in ("'", '"') else ""
    written = fragment.removeprefix(quote)
    found: Iterable[str] = option.value.examples
    match option.known:
        case Known.PROJECTS:
            found = choices().projects
        case Known.NODE_POOLS:
            found = choices().node_pools
        case Known.NAMES:
            found = map(model_of, choices().names)
        case Known.CONDITIONS:
            found = _conditions(choices())
    return [_quoted(text, quote) for text in _beginning(written, found)]


def _conditions(choices: Choices) -> Iterable[str]:
    """Whole conditions where the values are known, else the beginnings of them."""
    yield from (f"name=*{model_of(name)}*" for name in choices.names)
    yield from _NUMBERS_ABOVE
    yield from (f"node={node}" for node in choices.nodes)
    yield from ("software=yes", "software=no")
    for label, values in choices.labels.items():
        yield from (f"label.{label}={value}" for value in values)


def model_of(name: str) -> str:
    """The part of a device's name that people say: ``NVIDIA H100 80GB HBM3`` → ``H100``."""
    match = _MODEL.search(name)
    return match[0] if match else name.replace(" ", "*")


def _quoted(text: str, quote: str) -> str:
    """As a shell would have to see it; an unfinished value (``memory>=``) keeps its quote open."""
    if not quote and _PLAIN.fullmatch(text):
        return text
    used = quote or "'"
    return f"{used}{text}" + ("" if text.endswith("=") else used)


def _beginning(fragment: str, texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(text for text in texts if text.startswith(fragment)))
