"""Sentences as messages, and back."""

from __future__ import annotations

from typing import Any

from gpupool.proto import pool_pb2 as pb
from gpupool.sentences import Param, Sentence


def to_message(sentence: Sentence) -> pb.Sentence:
    """A sentence as a message: its id and its parameters, no words."""
    return pb.Sentence(
        code=sentence.code, params={name: _to_param(value) for name, value in sentence.params.items()}
    )


def from_message(message: Any) -> Sentence:
    """A sentence of a message; ids that this program does not know are kept as they are."""
    return Sentence(message.code, {name: _from_param(message.params[name]) for name in message.params})


def _to_param(value: Param) -> pb.Param:
    if value.kind == "sentence":
        return pb.Param(sentence=to_message(value.value))
    if value.kind == "list":
        return pb.Param(list=pb.ParamList(items=[_to_param(item) for item in value.value]))
    return pb.Param(**{value.kind: value.value})


def _from_param(message: Any) -> Param:
    kind = message.WhichOneof("value")
    if kind is None:  # of a later version
        return Param("text", "")
    value = getattr(message, kind)
    if kind == "sentence":
        return Param("sentence", from_message(value))
    if kind == "list":
        return Param("list", tuple(_from_param(item) for item in value.items))
    return Param(kind, value)
