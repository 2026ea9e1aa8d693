"""Sentences as data: an id of the catalogue and typed parameters.

Whoever decides something says why with these. What travels (in the machine, in the ledger, over gRPC and HTTP) is the
id and its parameters; `render` makes the words, where somebody reads them. So a program never searches in prose, and a
user's name is a parameter of its own kind, which can be left out without looking for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from gpupool.sentences import param
from gpupool.sentences.param import KINDS, Param


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, or a part of one. False in a condition when there is nothing to say.

    Attributes:
        code: which one of `catalogue.json`; empty: nothing is said.
        params: what its template names.
    """

    code: str = ""
    params: Mapping[str, Param] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.code)

    def __hash__(self) -> int:
        return hash((self.code, frozenset(self.params.items())))

    def __str__(self) -> str:
        """The words, with all names: for logs, and for who may see everything."""
        from gpupool.sentences.render import render  # it is made of what is defined here

        return render(self)

    def as_json(self) -> dict[str, Any]:
        """``{"code": "full", "params": {"free": {"kind": "milli", "value": 500}}}``."""
        return {"code": self.code, "params": {name: _as_json(value) for name, value in self.params.items()}}

    def first(self) -> Sentence:
        """What it says first: of several clauses the first one, else all."""
        clause: Sentence = self.params["of"].value[0].value if self.code == "clauses" else self
        return clause

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Sentence:
        """What :meth:`as_json` made.

        Raises:
            ValueError: it is none.
        """
        return cls(value["code"], {name: _from_json(item) for name, item in value["params"].items()})


#: Nothing is said.
NOTHING: Final = Sentence()

#: What a parameter can be made of: itself, a sentence, several.
Given: TypeAlias = "Param | Sentence | Sequence[Given]"


def say(code: str, **params: Given) -> Sentence:
    """A sentence of the catalogue."""
    return Sentence(code, {name: _param(value) for name, value in params.items()})


def plain(words: Sentence | str) -> Sentence:
    """Words that name no user, as they are; nothing, if there are none. A sentence stays what it is."""
    if isinstance(words, Sentence):
        return words
    return say("plain", words=param.text(words)) if words else NOTHING


def clauses(*parts: Sentence) -> Sentence:
    """Several, one behind the other; those that say nothing are left out."""
    said: list[Sentence] = []
    for part in parts:
        if part.code == "clauses":
            said += [item.value for item in part.params["of"].value]
        elif part:
            said.append(part)
    if len(said) < 2:
        return said[0] if said else NOTHING
    return say("clauses", of=said)


def without_users(sentence: Sentence, viewer: str) -> Sentence:
    """The sentence, in which nobody but `viewer` has a name."""
    return Sentence(sentence.code, {name: _hidden(value, viewer) for name, value in sentence.params.items()})


def _hidden(value: Param, viewer: str) -> Param:
    if value.kind == "user":
        return value if value.value == viewer else param.user("")
    if value.kind == "sentence":
        return Param("sentence", without_users(value.value, viewer))
    if value.kind == "list":
        return Param("list", tuple(_hidden(item, viewer) for item in value.value))
    return value


def _param(value: Given) -> Param:
    if isinstance(value, Param):
        return value
    if isinstance(value, Sentence):
        return Param("sentence", value)
    return Param("list", tuple(_param(item) for item in value))


def _as_json(value: Param) -> dict[str, Any]:
    content = value.value
    if value.kind == "sentence":
        content = content.as_json()
    elif value.kind == "list":
        content = [_as_json(item) for item in content]
    return {"kind": value.kind, "value": content}


def _from_json(value: Mapping[str, Any]) -> Param:
    kind, content = value["kind"], value["value"]
    if kind not in KINDS:
        raise ValueError(f"{str(kind)[:40]!r} is no kind of parameter")
    if kind == "sentence":
        return Param(kind, Sentence.from_json(content))
    if kind == "list":
        return Param(kind, tuple(_from_json(item) for item in content))
    return Param(kind, content)
