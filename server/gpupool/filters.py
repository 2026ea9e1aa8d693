"""What a request wants its devices to be like: ``name=*H100*|*A100*``, ``memory>=40GiB``, ``label.zone=a``.

| key | what is compared |
|---|---|
| ``name`` | the device's name: patterns with ``*`` and ``?``, several joined by ``|``, whatever the case |
| ``memory`` | all of its memory, as its driver reports it (an "80 GB" H100 has 81559 MiB) |
| ``driver`` | its driver's version, number by number; a device whose version is not known does not match |
| ``node`` | the name of its node, as patterns |
| ``software`` | ``yes``: a software GPU |
| ``label.<name>`` | what the administrator said of its node: patterns, or numbers for ``>=`` and the like |
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import translate
from typing import Any, Final, Protocol

#: Keys that a filter may name, besides ``label.<name>``.
KEYS: Final = ("name", "memory", "driver", "node", "software")
#: Those that every device of a node answers alike, besides labels.
KEYS_OF_NODES: Final = ("node",)
_LABEL: Final = "label."
_NAMED: Final = "name="
_FILTER = re.compile(
    r"(?P<key>label\.[A-Za-z0-9_.-]{1,63}|[a-z]{1,16})\s*(?P<operator>>=|<=|!=|=|>|<)\s*(?P<value>\S.{0,127})"
)
_SIZE = re.compile(r"([0-9]{1,7}(?:\.[0-9]{1,3})?)\s*(MiB|GiB|TiB)", re.IGNORECASE | re.ASCII)
_UNITS: Final = {"mib": 1, "gib": 1024, "tib": 1024 * 1024}
_VERSION = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6}){0,3}", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,6})?", re.ASCII)
#: Patterns that the filters of one request may have in all: a look compares each of them with each kind of device.
MOST_PATTERNS: Final = 16
#: Bytes that the filters of one request may have in all: everybody's lie in one list, which has to fit into an answer.
MOST_BYTES: Final = 2048
_YES_OR_NO: Final = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
_COMPARE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "=": operator.eq, "!=": operator.ne,
}  # fmt: skip
_EXAMPLES: Final = (
    "write for example name=*H100*, memory>=40GiB, driver>=580, node=n1|n2, software=no or label.zone=a"
)


class Device(Protocol):
    """What a filter looks at; the scheduler's view of a device is one."""

    @property
    def kind(self) -> str: ...
    @property
    def node(self) -> str: ...
    @property
    def total_mib(self) -> int: ...
    @property
    def driver(self) -> str: ...
    @property
    def software(self) -> bool: ...
    @property
    def labels(self) -> Mapping[str, str]: ...


class FilterError(ValueError):
    """A text is no filter. ``str()`` is one sentence with the offending value."""


@dataclass(frozen=True, slots=True)
class Filter:
    """One condition; see :func:`parse`."""

    key: str
    operator: str
    value: str
    #: One expression for all its patterns. It is made once: a look at the queue asks each filter many times.
    _expression: re.Pattern[str] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        compiled = _expression(self.value) if self._has_patterns else None
        object.__setattr__(self, "_expression", compiled)

    def __str__(self) -> str:
        return f"{self.key}{self.operator}{self.value}"

    @property
    def of_node(self) -> bool:
        """Whether all devices of a node answer it alike."""
        return self.key in KEYS_OF_NODES or self.key.startswith(_LABEL)

    @property
    def patterns(self) -> int:
        """How many texts with ``*`` and ``?`` it joins; 0: it compares with a number, a size or a version."""
        return self.value.count("|") + 1 if self._has_patterns else 0

    @property
    def _has_patterns(self) -> bool:
        is_text = self.key in ("name", "node") or self.key.startswith(_LABEL)
        return is_text and self.operator in ("=", "!=")

    def matches(self, device: Device) -> bool:
        """Whether ``device`` is like that. What does not compare (a label that is no number) does not match."""
        if self.key.startswith(_LABEL):
            return self._matches_label(device.labels.get(self.key.removeprefix(_LABEL)))
        match self.key:
            case "name":
                return self._matches_text(device.kind)
            case "node":
                return self._matches_text(device.node)
            case "memory":
                return _COMPARE[self.operator](float(device.total_mib), _size(self.value))
            case "driver":
                return _matches_version(self, device.driver)
            case "software":
                return _COMPARE[self.operator](device.software, _YES_OR_NO.get(self.value.lower()))
        return False

    def _matches_text(self, text: str) -> bool:
        expression = self._expression
        return expression is not None and (expression.match(text.lower()) is None) == (self.operator == "!=")

    def _matches_label(self, value: str | None) -> bool:
        if self._has_patterns:
            return self.operator == "!=" if value is None else self._matches_text(value)
        if value is None or _NUMBER.fullmatch(value) is None or _NUMBER.fullmatch(self.value) is None:
            return False
        return _COMPARE[self.operator](float(value), float(self.value))


def parse(text: str) -> Filter:
    """The condition that ``text`` writes.

    Raises:
        FilterError: it writes none, or its value is none for its key.
    """
    match = _FILTER.fullmatch(text.strip())
    if match is None or not (match["key"] in KEYS or match["key"].startswith(_LABEL)):
        raise FilterError(f"{text[:40]!r} is no filter; {_EXAMPLES}")
    found = Filter(match["key"], match["operator"], match["value"].strip())
    problem = _problem(found)
    if problem:
        raise FilterError(f"{text[:40]!r} is no filter: {problem}; {_EXAMPLES}")
    return found


def named(kind: str) -> str:
    """``H100|A100`` as a condition on the device's name; without a wildcard (``*``, ``?``) it is a part of the name."""
    return _NAMED + "|".join(part if set(part) & set("*?") else f"*{part}*" for part in kind.split("|"))


def type_of(text: str) -> str:
    """What :func:`named` made a condition of; empty: it had a wildcard, or the text is another condition."""
    if not text.startswith(_NAMED):
        return ""
    parts = text.removeprefix(_NAMED).split("|")
    inner = [part[1:-1] if part.startswith("*") and part.endswith("*") else "" for part in parts]
    return "|".join(inner) if all(part and not set(part) & set("*?") for part in inner) else ""


def parse_all(texts: Iterable[str]) -> tuple[Filter, ...]:
    """The conditions of one request.

    Raises:
        FilterError: a text writes none, or they are too long together.
    """
    found = tuple(parse(text) for text in texts)
    patterns = sum(wish.patterns for wish in found)
    if patterns > MOST_PATTERNS:
        most = max(found, key=lambda wish: wish.patterns)
        raise FilterError(
            f"the filters of a request may have {MOST_PATTERNS} patterns in all, these have {patterns}, "
            f"{str(most)[:40]!r} alone {most.patterns}"
        )
    length = sum(len(str(wish).encode()) for wish in found)
    if length > MOST_BYTES:
        longest = max(found, key=lambda wish: len(str(wish).encode()))
        raise FilterError(
            f"the filters of a request may have {MOST_BYTES} bytes in all, these have {length}; "
            f"the longest is {str(longest)[:40]!r}"
        )
    return found


def _problem(wish: Filter) -> str:
    if wish.key in ("name", "node", "software") and wish.operator not in ("=", "!="):
        return f"{wish.key} is compared with = or !="
    if wish.patterns > MOST_PATTERNS:
        return f"it joins {wish.patterns} patterns, more than {MOST_PATTERNS}"
    if wish.key == "memory" and _SIZE.fullmatch(wish.value) is None:
        return "memory is compared with a size such as 40GiB or 16384MiB"
    if wish.key == "driver" and _VERSION.fullmatch(wish.value) is None:
        return "driver is compared with a version such as 580 or 580.65.06"
    if wish.key == "software" and wish.value.lower() not in _YES_OR_NO:
        return "software is yes or no"
    ordered = wish.key.startswith(_LABEL) and wish.operator not in ("=", "!=")
    if ordered and _NUMBER.fullmatch(wish.value) is None:
        return f"with {wish.operator} a label is compared with a number"
    return ""


def _size(text: str) -> float:
    match = _SIZE.fullmatch(text)
    return float(match[1]) * _UNITS[match[2].lower()] if match else float("nan")


def _expression(value: str) -> re.Pattern[str]:
    return re.compile("|".join(translate(part.strip().lower()) for part in value.split("|")))


def _matches_version(wish: Filter, version: str) -> bool:
    """``=580`` means any 580: as many numbers are compared as the filter writes."""
    if _VERSION.fullmatch(version) is None or _VERSION.fullmatch(wish.value) is None:
        return False
    wanted = tuple(int(part) for part in wish.value.split("."))
    has = tuple(int(part) for part in version.split("."))
    has = (*has, *(0,) * (len(wanted) - len(has)))[: len(wanted)]
    return _COMPARE[wish.operator](has, wanted)
