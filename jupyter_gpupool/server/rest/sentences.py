"""What the pool says to people, as it travels."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypeAliasType, TypedDict


class Sentence(TypedDict):
    """The id of a sentence and its parameters."""

    code: str
    """Which one of the catalogue; empty: nothing is said."""
    params: dict[str, Param]


class Said(Sentence):
    """A sentence with its words, for what has no catalogue of its own: the widget."""

    text: str
    first: str
    """Of several clauses the first one."""


class AmountParam(TypedDict):
    """An amount: milli-GPU, MiB, seconds, how many, or any other."""

    kind: Literal["milli", "mib", "seconds", "count", "number"]
    value: float


class UserParam(TypedDict):
    """The name of a user; empty: another user, whose name is not for the reader."""

    kind: Literal["user"]
    value: str


class NameParam(TypedDict):
    """A name, or a text from elsewhere."""

    kind: Literal["device", "node", "project", "text"]
    value: str


class SentenceParam(TypedDict):
    """A sentence within another one."""

    kind: Literal["sentence"]
    value: Sentence


class ListParam(TypedDict):
    """Several parameters."""

    kind: Literal["list"]
    value: list[Param]


#: A typed value in a sentence.
Param = TypeAliasType("Param", "AmountParam | UserParam | NameParam | SentenceParam | ListParam")
