"""One row of the option table, and how rows lie in a record: each field of the record carries its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum, auto
from typing import Any, Final, TypeVar

from gpupool.request.values import Schema, Switch, Texts, Value, ValueCheckError

T = TypeVar("T")
_ROW: Final = "option"


class Place(StrEnum):
    """Where an option may be written."""

    CELL = auto()  # %%gpu
    LINE = auto()  # %gpu attach
    AUTO = auto()  # %gpu auto on
    CODE = auto()  # gpupool.attach
    COMMAND = auto()  # gpupool lease request, run, explain
    BODY = auto()  # POST attach
    PAGE = auto()  # commands of JupyterLab


MAGICS: Final = frozenset({Place.CELL, Place.LINE, Place.AUTO})
EVERYWHERE: Final = frozenset(Place)
#: Where people write words; the same request has one form only in JSON.
WORDS: Final = MAGICS | {Place.CODE}


class Known(StrEnum):
    """What the pool can be asked for, for completion."""

    PROJECTS = auto()
    NAMES = auto()
    CONDITIONS = auto()
    NODE_POOLS = auto()


class RequestError(ValueError):
    """A request makes no sense; ``str()`` names the value and what is allowed, ``reason`` is an id."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Option:
    """One row.

    Attributes:
        name: how it is told apart: its field's name, or that of another way to write the same field.
        field: the field of the record that it says.
        default: what counts when it is not given.
        value: what it takes, with the check.
        help: a phrase without a capital and a full stop.
        flags: as words have it; the first is the one that magics know.
        metavar: what its value is called in help; empty: it has none.
        unit: of a number.
        key: in JSON.
        keyword: of :func:`gpupool.attach`.
        where: it may be written.
        known: what the pool has of it.
        reason: id of a refusal.
    """

    name: str
    field: str
    default: Any
    value: Value
    help: str
    flags: tuple[str, ...] = ()
    metavar: str = ""
    unit: str = ""
    key: str = ""
    keyword: str = ""
    where: frozenset[Place] = EVERYWHERE
    known: Known | None = None
    reason: str = "bad-request"

    @property
    def flag(self) -> str:
        return self.flags[0] if self.flags else ""

    @property
    def switch(self) -> bool:
        return isinstance(self.value, Switch)

    @property
    def repeated(self) -> bool:
        return isinstance(self.value, Texts)

    @property
    def schema(self) -> Schema:
        unit = f" ({self.unit})" if self.unit else ""
        return {**self.value.schema, "description": f"{self.help[:1].upper()}{self.help[1:]}{unit}."}

    def of_text(self, text: str, named: str = "") -> Any:
        """Raises RequestError, which calls the option ``named``."""
        try:
            return self.value.of_text(text)
        except ValueCheckError as problem:
            raise self._refusal(problem, named or self.flag) from None

    def of_value(self, value: object, named: str = "") -> Any:
        """Null and the empty text count as not given. Raises RequestError, which calls the option ``named``."""
        if value is None or value == "":
            return self.default
        try:
            return self.value.of_value(value)
        except ValueCheckError as problem:
            raise self._refusal(problem, named or self.key) from None

    def _refusal(self, problem: ValueCheckError, named: str) -> RequestError:
        return RequestError(str(problem) if problem.complete else f"{named} {problem}.", self.reason)


def option(
    default: T,
    value: Value,
    help: str,
    *flags: str,
    metavar: str = "",
    unit: str = "",
    key: str = "",
    keyword: str = "",
    where: frozenset[Place] = EVERYWHERE,
    known: Known | None = None,
    reason: str = "bad-request",
) -> T:
    """A field of a request with its row; the arguments are the row's, and names that are left out are the field's."""
    more = {"flags": flags, "metavar": metavar, "unit": unit, "key": key, "keyword": keyword or key}
    row = {"default": default, "value": value, "help": help, "where": where, "known": known, "reason": reason}
    made: T = field(default=default, metadata={_ROW: {**row, **more}})
    return made


def options_of(record: type[Any]) -> tuple[Option, ...]:
    """The rows of a record, in the order of its fields."""
    return tuple(_row(one.name, one.metadata[_ROW]) for one in fields(record) if _ROW in one.metadata)


def _row(name: str, row: Mapping[str, Any]) -> Option:
    return Option(name, name, **{**row, "key": row["key"] or name, "keyword": row["keyword"] or name})
