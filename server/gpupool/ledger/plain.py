"""Records and events as JSON values, and back: fields that have their default are left out.

What is never written: secrets, and what is worked out anew whenever it is needed (`LEFT_OUT`).
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any, Final

from gpupool.filters import Filter
from gpupool.model import events
from gpupool.model.state import DeviceRecord, RequestRecord, SessionRecord, Usage
from gpupool.records import reader_of
from gpupool.scheduler.model import Decision
from gpupool.sentences import NOTHING, Sentence

#: Fields that are not recorded. Of a request: what the next look at the queue says again. Of a worker's counters:
#: those that no rule of the pool reads (`tests/unit/test_ledger_steps.py` holds them to that).
LEFT_OUT: Final[Mapping[type, frozenset[str]]] = {
    SessionRecord: frozenset({"secret"}),
    Filter: frozenset({"_expression"}),
    RequestRecord: frozenset({"place", "said", "eta", "growth"}),
    # Of why a request waits, what the queue goes by; the rest is said anew.
    Decision: frozenset({"shares", "said", "wants", "to_disk", "facts", "helps"}),
    Usage: frozenset(
        {
            "kernels",
            "calls",
            "posts",
            "asks",
            "ask_seconds",
            "bytes_to_device",
            "bytes_from_device",
            "memory_peak",
            "kernel",
            "work_seconds",
            "failure",
            "failed_kernel",
            "busy",
        }
    ),
}
#: Long texts that many records share; they are stored once, by their SHA-256.
INTERNED: Final[Mapping[type, str]] = {DeviceRecord: "profile", events.OfferedDevice: "profile"}
#: Stands in for what is left out and has no default.
_PLACEHOLDERS: Final[Mapping[tuple[type, str], Any]] = {
    (SessionRecord, "secret"): "",
    (Decision, "said"): NOTHING,
}
#: What the waiter of a request was told last is left out; that he was told something is not.
TOLD: Final = (0, None)

Plain = Any
Intern = Callable[[str], str]


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    name: str
    default: Any
    interned: bool
    told: bool


@dataclasses.dataclass(frozen=True, slots=True)
class _Fields:
    """Those of a record that are written, and what reads all of them at once."""

    all: tuple[_Field, ...]
    values_of: Callable[[Any], tuple[Any, ...]]


@cache
def _fields(kind: type[Any]) -> _Fields:
    out = LEFT_OUT.get(kind, frozenset())
    written = tuple(
        _Field(
            field.name,
            field.default if field.default_factory is dataclasses.MISSING else field.default_factory(),
            INTERNED.get(kind) == field.name,
            kind is RequestRecord and field.name == "told",
        )
        for field in dataclasses.fields(kind)
        if field.name not in out
    )
    return _Fields(written, reader_of([field.name for field in written]))


def encode(value: Any, intern: Intern) -> Plain:
    """`value` as JSON has it. `intern` stores a long text and returns its name."""
    kind = type(value)
    if value is None or kind in (str, int, float, bool):
        return value
    if kind in (tuple, list):
        return [encode(item, intern) for item in value]
    if kind in (frozenset, set):
        return sorted(value)
    if kind is Sentence:
        return value.as_json()
    if isinstance(value, Mapping):
        return {str(name): encode(item, intern) for name, item in value.items()}
    if dataclasses.is_dataclass(value):
        return record(value, intern)
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"a {kind.__name__} cannot be recorded")


def record(value: Any, intern: Intern) -> dict[str, Plain]:
    """All fields of a dataclass that differ from their default."""
    written = {}
    fields = _fields(value.__class__)
    for field, found in zip(fields.all, fields.values_of(value), strict=True):
        if found is field.default or found == field.default:
            continue
        plain = _encode_field(field, found, intern)
        # What differs from the default may be left out.
        if plain == {} and type(found) is type(field.default):
            continue
        written[field.name] = plain
    return written


def difference(old: Any, new: Any, intern: Intern) -> dict[str, Plain]:
    """The fields of `new` that `old` has otherwise."""
    changed = {}
    fields = _fields(new.__class__)
    for field, before, after in zip(fields.all, fields.values_of(old), fields.values_of(new), strict=True):
        if before is after:
            continue
        # Of these something is left out, which may be all that differs.
        partly = field.told or dataclasses.is_dataclass(after)
        if not partly and before == after:
            continue
        written = _encode_field(field, after, intern)
        if not partly or written != _encode_field(field, before, intern):
            changed[field.name] = written
    return changed


def _encode_field(field: _Field, value: Any, intern: Intern) -> Plain:
    if field.interned:
        return intern(value)
    if field.told:
        return None if value is None else list(TOLD)
    return encode(value, intern)


def decode(kind: Any, plain: Plain, text: Callable[[str], str]) -> Any:
    """The value of type `kind` that :func:`encode` wrote as `plain`; `text` gives interned texts back.

    Raises:
        ValueError: there is no such field or type here: the record is of another version of this program.
    """
    if plain is None:
        return None
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (item for item in typing.get_args(kind) if item is not type(None))
        return decode(inner, plain, text)
    if origin is tuple:
        inner = typing.get_args(kind)
        if len(inner) == 2 and inner[1] is Ellipsis:
            return tuple(decode(inner[0], item, text) for item in plain)
        return tuple(decode(each, item, text) for each, item in zip(inner, plain, strict=True))
    if origin is frozenset:
        return frozenset(plain)
    if kind is Sentence:
        return Sentence.from_json(plain)
    if isinstance(kind, type):
        if dataclasses.is_dataclass(kind):
            return make(kind, plain, text)
        if issubclass(kind, Enum):
            return kind(plain)
    return plain


def make(kind: type, fields: Mapping[str, Plain], text: Callable[[str], str]) -> Any:
    """The record that :func:`record` wrote."""
    values = {name: placeholder for (owner, name), placeholder in _PLACEHOLDERS.items() if owner is kind}
    return _construct(kind, {**values, **decode_fields(kind, fields, text)})


def decode_fields(kind: type, fields: Mapping[str, Plain], text: Callable[[str], str]) -> dict[str, Any]:
    """The values of single fields, as :func:`difference` wrote them."""
    hints, interned = _hints(kind), INTERNED.get(kind)
    unknown = fields.keys() - hints.keys()
    if unknown:
        raise ValueError(f"{kind.__name__} has no field {sorted(unknown)[0]!r} in this version")
    return {
        name: text(value) if name == interned else decode(hints[name], value, text)
        for name, value in fields.items()
    }


def _construct(kind: type, values: Mapping[str, Any]) -> Any:
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(f"{kind.__name__} needs a field that was not recorded: {error}") from None


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)
