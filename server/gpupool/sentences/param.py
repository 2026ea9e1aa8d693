"""The typed parameters of sentences, and how each kind is made: ``param.milli(500)``, ``param.user("ann")``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

#: What a parameter is. ``number`` is any other amount; ``text`` comes from elsewhere: a worker's message, a condition.
Kind = Literal[
    "milli",
    "mib",
    "seconds",
    "count",
    "number",
    "user",
    "device",
    "node",
    "project",
    "text",
    "sentence",
    "list",
]
KINDS: Final[frozenset[str]] = frozenset(get_args(Kind))


@dataclass(frozen=True, slots=True)
class Param:
    """A typed value. `value`: an amount, a name, a `Sentence`, or a tuple of parameters."""

    kind: Kind
    value: Any


def milli(value: int) -> Param:
    return Param("milli", value)


def mib(value: int) -> Param:
    return Param("mib", value)


def seconds(value: float) -> Param:
    return Param("seconds", float(value))


def count(value: int) -> Param:
    return Param("count", value)


def number(value: float) -> Param:
    return Param("number", float(value))


def user(name: str) -> Param:
    """The only kind of parameter that may hold the name of a user."""
    return Param("user", name)


def device(name: str) -> Param:
    return Param("device", name)


def node(name: str) -> Param:
    return Param("node", name)


def project(path: str) -> Param:
    return Param("project", path)


def text(words: str) -> Param:
    return Param("text", words)
