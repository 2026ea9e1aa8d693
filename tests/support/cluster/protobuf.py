"""Kubernetes' binary form of what `helm` writes: its Secrets, and the options of deletions. Everything else comes as JSON."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

#: Before the envelope, which names the kind.
_MAGIC = b"k8s\x00"


def decode(raw: bytes) -> dict[str, Any]:
    """An object as its JSON is. Raises ValueError: it is none, or of a kind that is not known here."""
    if not raw.startswith(_MAGIC):
        raise ValueError("it does not begin as Kubernetes' binary form does")
    envelope = dict(_fields(raw[len(_MAGIC) :]))
    what = {number: value.decode() for number, value in _fields(envelope[1])}
    head = {"apiVersion": what.get(1, ""), "kind": what.get(2, "")}
    if head["kind"] == "Secret":
        return {**head, **_secret(envelope[2])}
    if head["kind"] == "DeleteOptions":
        return {**head, **_delete_options(envelope.get(2, b""))}
    raise ValueError(f"{head['kind']!r} is not known in this form")


def _secret(raw: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {"metadata": {}, "data": {}}
    for number, value in _fields(raw):
        if number == 1:
            found["metadata"] = _metadata(value)
        elif number == 2:
            key, content = _pair(value)
            found["data"][key] = base64.b64encode(content).decode()
        elif number == 3:
            found["type"] = value.decode()
    return found


def _metadata(raw: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, value in _fields(raw):
        name = {1: "name", 3: "namespace", 5: "uid", 6: "resourceVersion"}.get(number)
        if name and value:
            found[name] = value.decode()
        elif number in (11, 12):
            key, text = _pair(value)
            found.setdefault("labels" if number == 11 else "annotations", {})[key] = text.decode()
    return found


def _delete_options(raw: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, value in _fields(raw):
        if number == 1:
            found["gracePeriodSeconds"] = value
        elif number == 4:
            found["propagationPolicy"] = value.decode()
    return found


def _pair(raw: bytes) -> tuple[str, bytes]:
    fields = dict(_fields(raw))
    return fields[1].decode(), fields.get(2, b"")


def _fields(raw: bytes) -> Iterator[tuple[int, Any]]:
    """Numbers and values: integers, or bytes."""
    at = 0
    while at < len(raw):
        key, at = _integer(raw, at)
        if key & 7 == 0:
            value: Any
            value, at = _integer(raw, at)
        elif key & 7 == 2:
            length, at = _integer(raw, at)
            value = raw[at : at + length]
            if len(value) != length:
                raise ValueError("it is cut short")
            at += length
        else:
            raise ValueError(f"wire type {key & 7}")
        yield key >> 3, value


def _integer(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(raw) or shift > 63:
            raise ValueError("an integer has no end")
        value |= (raw[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if raw[at - 1] < 0x80:
            return value, at
