"""What the value of an option is: how a text becomes one, which values it takes, and what is said of the others.

Each kind of value has one check, for the magic's line, the command line, Python, JSON and gRPC alike.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpupool.durations import DurationError, parse_duration
from gpupool.shares import ALLOWED, Share, ShareError

#: Longest text in a list, characters.
LONGEST_TEXT: Final = 256
_SHOWN: Final = 40
#: What JSON Schema says of a value.
Schema = Mapping[str, Any]


class ValueCheckError(ValueError):
    """A value makes no sense. ``str()`` follows the option's name, or is whole where ``complete``."""

    def __init__(self, problem: str, *, complete: bool = False) -> None:
        super().__init__(problem)
        self.complete = complete


class Value(ABC):
    """One kind of value."""

    #: What can be written, for completion.
    examples: tuple[str, ...] = ()

    @abstractmethod
    def of_text(self, text: str) -> Any:
        """The value that a text writes. Raises ValueCheckError."""

    @abstractmethod
    def of_value(self, value: object) -> Any:
        """The value itself, of Python, JSON or gRPC, checked. Raises ValueCheckError."""

    def plain(self, value: Any) -> Any:
        """As JSON has it."""
        return value

    def text(self, value: Any) -> str:
        """As it is written behind an option."""
        return str(value)

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """What JSON may have there."""


@dataclass(frozen=True, slots=True)
class Whole(Value):
    """A whole number of ``what`` within bounds; ``unset`` stands for: it was not said."""

    least: int
    most: int
    what: str = ""
    unset: int | None = None
    examples: tuple[str, ...] = ()

    def of_text(self, text: str) -> int:
        digits = text.isascii() and text.isdigit() and len(text) <= 9
        if not digits or not self.least <= int(text) <= self.most:
            raise self._problem(text)
        return int(text)

    def of_value(self, value: object) -> int:
        number = finite(value)
        if number is None or number != int(number):
            raise self._problem(value)
        if not (self.least <= number <= self.most or number == self.unset):
            raise self._problem(value)
        return int(number)

    def _problem(self, value: object) -> ValueCheckError:
        number = f"a whole number {self.what} from" if self.what else "a whole number from"
        return ValueCheckError(f"needs {number} {self.least} to {self.most}, {shown(value)} is not one")

    @property
    def schema(self) -> Schema:
        least = self.least if self.unset is None else min(self.least, self.unset)
        return {"type": "integer", "minimum": least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Choice(Value):
    """One of a few words."""

    names: tuple[str, ...]

    @property
    def examples(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.names

    def of_text(self, text: str) -> str:
        return self.of_value(text)

    def of_value(self, value: object) -> str:
        if not isinstance(value, str) or value not in self.names:
            raise ValueCheckError(f"is one of {', '.join(self.names)}, {shown(value)} is not")
        return value

    @property
    def schema(self) -> Schema:
        return {"type": "string", "enum": list(self.names)}


@dataclass(frozen=True, slots=True)
class Seconds(Value):
    """A time; where it may be ``endless``, -1 is a time without end."""

    most: float
    endless: bool = False
    examples: tuple[str, ...] = ()

    def of_text(self, text: str) -> float:
        if self.endless and text.strip() in ("forever", "-1"):
            return -1.0
        try:
            seconds = parse_duration(text)
        except DurationError:
            raise self._problem(text) from None
        return self._within(seconds, text)

    def of_value(self, value: object) -> float:
        if isinstance(value, str):
            return self.of_text(value)
        number = finite(value)
        if self.endless and (number == -1 or (isinstance(value, float) and value == math.inf)):
            return -1.0
        if number is None:
            raise self._problem(value)
        return self._within(number, value)

    def _within(self, seconds: float, said: object) -> float:
        if not 0 <= seconds <= self.most:
            raise self._problem(said)
        return seconds

    def _problem(self, value: object) -> ValueCheckError:
        without_end = ", or forever" if self.endless else ""
        days = f"{self.most / 86400:.0f} days"
        return ValueCheckError(
            f"needs a time from 0 s to {days} (90, 90s, 10m, 2h{without_end}), {shown(value)} is not one"
        )

    def text(self, value: float) -> str:
        return "forever" if value < 0 else f"{value:.12g}"

    @property
    def schema(self) -> Schema:
        return {"type": "number", "minimum": -1 if self.endless else 0, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Switch(Value):
    """On or off; as a word it has no value behind it."""

    def of_text(self, text: str) -> bool:
        raise ValueCheckError(f"takes no value, {shown(text)} was given")

    def of_value(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueCheckError(f"is true or false, {shown(value)} is not")
        return value

    @property
    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Part(Value):
    """A share of one GPU; ``bare`` stands behind a number without a unit."""

    bare: str = ""

    def of_text(self, text: str) -> Share:
        written = text.strip()
        if self.bare and written.isascii() and written.isdigit():
            written += self.bare
        try:
            return Share.parse(written)
        except ShareError as error:
            raise ValueCheckError(str(error), complete=True) from None

    def of_value(self, value: object) -> Share:
        if isinstance(value, Share):
            return value
        if isinstance(value, str):
            return self.of_text(value)
        number = finite(value)
        if number is None:
            raise ValueCheckError(f"{shown(value)} is not a share of a GPU: {ALLOWED}.", complete=True)
        return self.of_text(f"{number:.12g}")

    def plain(self, value: Share | None) -> str | None:
        return None if value is None else value.written

    def text(self, value: Share) -> str:
        return value.written

    @property
    def schema(self) -> Schema:
        return {"type": "string"}


@dataclass(frozen=True, slots=True)
class Text(Value):
    """A text; ``check`` returns it as it is passed on, or raises ValueError with a sentence."""

    check: Callable[[str], str]

    def of_text(self, text: str) -> str:
        try:
            return self.check(text)
        except ValueError as error:
            raise ValueCheckError(str(error), complete=True) from None

    def of_value(self, value: object) -> str:
        if not isinstance(value, str):
            raise ValueCheckError(f"is a text, {shown(value)} is not")
        return self.of_text(value)

    @property
    def schema(self) -> Schema:
        return {"type": "string"}


@dataclass(frozen=True, slots=True)
class Texts(Value):
    """Several texts, each checked as in :class:`Text` and kept once; as words the option is given several times."""

    check: Callable[[str], str]
    most: int = 16

    def of_text(self, text: str) -> tuple[str, ...]:
        return self.of_value([text])

    def of_value(self, value: object) -> tuple[str, ...]:
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            raise ValueCheckError(f"is a list of texts, {shown(value)} is not")
        texts = list(value)
        if len(texts) > self.most:
            raise ValueCheckError(f"takes at most {self.most}, {len(texts)} were given")
        found = []
        for text in texts:
            if not isinstance(text, str):
                raise ValueCheckError(f"is a list of texts, {shown(text)} in it is not one")
            if len(text) > LONGEST_TEXT:
                raise ValueCheckError(
                    f"takes texts of at most {LONGEST_TEXT} characters, one has {len(text)}"
                )
            found.append(Text(self.check).of_text(text))
        return tuple(dict.fromkeys(found))

    def plain(self, value: tuple[str, ...]) -> list[str]:
        return list(value)

    @property
    def schema(self) -> Schema:
        return {"type": "array", "items": {"type": "string"}, "maxItems": self.most}


def finite(value: object) -> float | None:
    """A number of Python or JSON; None for everything else, and for those that are larger than any double."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def shown(value: object) -> str:
    """A value as errors name it."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of thousands of digits
        return "a number of thousands of digits"
    return (
        text
        if len(text) <= _SHOWN + 2
        else f"{text[:_SHOWN]}…{text[0] if text[0] in chr(39) + chr(34) else ''}"
    )
