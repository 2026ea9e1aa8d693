"""What a request's JSON body asks for, checked."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Final

from gpupool.client.refused_memory import RefusedMemory
from gpupool.shares import MAXIMUM_DEVICES, NODE_CHOICES, Share, ShareError
from gpupool.terms import (
    MOST_PRIORITY,
    Terms,
    TermsError,
    checked_filters,
    checked_kind,
    checked_pools,
    checked_project,
)

from jupyter_gpupool.server.session.quantities import duration_text
from jupyter_gpupool.server.session.shown import AutoMode
from jupyter_gpupool.server.watching.idle import LONGEST_SECONDS, IdleLimits

#: How long Keep puts a release off when the request does not say, seconds.
KEEP_SECONDS: Final = 600.0
#: Longest body; the largest valid one is a fraction of this.
MOST_BYTES: Final = 16 * 1024


class BadRequest(Exception):
    """The body cannot be used; ``str()`` names the value, ``reason`` is an id."""

    def __init__(self, message: str, reason: str = "bad-request") -> None:
        super().__init__(message)
        self.reason = reason


def body_of(raw: bytes) -> dict[str, Any]:
    """The JSON object in a request's body; empty means no arguments."""
    if len(raw) > MOST_BYTES:
        raise BadRequest(f"The request has {len(raw)} bytes, at most {MOST_BYTES} are read.")
    if not raw.strip():
        return {}
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise BadRequest("The request is not JSON.") from None
    if not isinstance(body, dict):
        raise BadRequest("The request is not a JSON object.")
    return body


def share_of(body: dict[str, Any], default: str) -> Share:
    """The share that is asked for: a text such as ``0.2``, or the number."""
    value = body.get("share")
    if value is None or value == "":
        value = default
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadRequest(f"{value!r} is not a share of a GPU.", "bad-share")
    text = value if isinstance(value, str) else f"{value:.12g}"
    try:
        return Share.parse(text)
    except ShareError as error:
        raise BadRequest(str(error), "bad-share") from None


def number_of(body: dict[str, Any], key: str, default: float, *, least: float, most: float) -> float:
    """A number within bounds, or the default when the key is absent or null."""
    value = body.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadRequest(f"{key} must be a number, {value!r} is not.")
    if not least <= value <= most:
        raise BadRequest(f"{key} must be between {least:g} and {most:g}, {value:g} is not.")
    return float(value)


def keep_seconds(body: dict[str, Any], limits: IdleLimits) -> float:
    """For how long Keep puts a release off; without a number of minutes it fits what is allowed."""
    default = min(KEEP_SECONDS, limits.longest) / 60
    seconds = 60 * number_of(body, "minutes", default, least=0, most=LONGEST_SECONDS / 60)
    if seconds > limits.longest:
        raise BadRequest(
            f"The administrator allows to keep an idle GPU for at most {duration_text(limits.longest)}, "
            f"{duration_text(seconds)} is more.",
            "not-allowed",
        )
    return seconds


def text_of(body: dict[str, Any], key: str, most: int = 128) -> str | None:
    """A short text, or None when absent."""
    value = body.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > most:
        raise BadRequest(f"{key} must be a text of at most {most} characters.")
    return value


def switch_of(body: dict[str, Any], key: str) -> bool:
    """True or false; absent or null is false."""
    value = body.get(key)
    if value is not None and not isinstance(value, bool):
        raise BadRequest(f"{key} must be true or false, {value!r} is not.")
    return bool(value)


def nodes_of(body: dict[str, Any]) -> str:
    """On how many nodes several devices may lie."""
    nodes = text_of(body, "nodes") or "auto"
    if nodes not in NODE_CHOICES:
        raise BadRequest(f"nodes must be one of {', '.join(NODE_CHOICES)}, {nodes!r} is not.")
    return nodes


def terms_of(body: dict[str, Any], default_project: str) -> Terms:
    """On what terms it is asked for."""
    priority = number_of(body, "priority", 0, least=0, most=MOST_PRIORITY)
    if priority != int(priority):
        raise BadRequest(f"priority must be a whole number, {priority:g} is not.")
    try:
        return Terms(
            project=checked_project(text_of(body, "project", most=512) or default_project),
            kind=checked_kind(text_of(body, "kind") or "interactive"),
            priority=int(priority),
            filters=checked_filters(_texts_of(body, "filters")),
            pools=checked_pools(_texts_of(body, "node_pools")),
        )
    except TermsError as error:
        raise BadRequest(str(error)) from None


def _texts_of(body: dict[str, Any], key: str) -> list[str]:
    value = body.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(text, str) and len(text) <= 256 for text in value):
        raise BadRequest(f"{key} must be a list of short texts.")
    return value


@dataclass(frozen=True, slots=True)
class AutoBody:
    """What ``%gpu auto`` was switched to; None: off."""

    mode: AutoMode | None

    @classmethod
    def read(cls, body: dict[str, Any]) -> AutoBody:
        if body.get("on") is not True:
            return cls(None)
        if body.get("share") is not None:
            share_of(body, "")
        count = number_of(body, "count", 1, least=1, most=MAXIMUM_DEVICES)
        return cls(AutoMode(text_of(body, "share", most=32), int(count), switch_of(body, "strict")))


@dataclass(frozen=True, slots=True)
class ReportBody:
    """What a kernel tells of its session."""

    failed_cell: str
    refused: RefusedMemory | None

    @classmethod
    def read(cls, body: dict[str, Any], cell: str, refused: RefusedMemory | None) -> ReportBody:
        """``cell`` and ``refused``: what stays where the body says nothing."""
        if "failed_cell" in body:
            cell = text_of(body, "failed_cell", most=64) or ""
        if "out_of_memory" in body:
            refused = _refused_of(body["out_of_memory"])
        return cls(cell, refused)


def _refused_of(value: Any) -> RefusedMemory | None:
    if value is None:
        return None
    try:
        return RefusedMemory.parse(value)
    except ValueError as error:
        raise BadRequest(f"out_of_memory: {error}.") from None


@dataclass(frozen=True, slots=True)
class AttachBody:
    """An attach request; ``wait_seconds`` None waits for ever, ``duration_seconds`` 0 has no deadline."""

    share: Share
    count: int
    nodes: str
    wait_seconds: float | None
    duration_seconds: float
    strict: bool
    terms: Terms

    @classmethod
    def read(
        cls, body: dict[str, Any], default_share: str, default_wait: float, default_project: str = ""
    ) -> AttachBody:
        count = number_of(body, "count", 1, least=1, most=MAXIMUM_DEVICES)
        if count != int(count):
            raise BadRequest(f"count must be a whole number, {count:g} is not.")
        wait = number_of(body, "wait", default_wait, least=-1, most=LONGEST_SECONDS)
        return cls(
            share=share_of(body, default_share),
            count=int(count),
            nodes=nodes_of(body),
            wait_seconds=None if wait < 0 else wait,
            duration_seconds=number_of(body, "for", 0.0, least=0, most=LONGEST_SECONDS),
            strict=switch_of(body, "strict"),
            terms=terms_of(body, default_project),
        )
