"""What a request's JSON body asks for, checked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from gpupool.client.refused_memory import RefusedMemory
from gpupool.durations import duration_text
from gpupool.request.forms import of_body
from gpupool.request.gpu_request import GpuRequest
from gpupool.request.option import RequestError
from gpupool.request.values import Part, finite, shown
from gpupool.shares import Share

from jupyter_gpupool.server.session.shown import AutoMode
from jupyter_gpupool.server.watching.idle import LONGEST_SECONDS, IdleLimits

#: How long Keep puts a release off when the request does not say, seconds.
KEEP_SECONDS: Final = 600.0
#: Longest body; the largest valid one is a fraction of this.
MOST_BYTES: Final = 16 * 1024


class BadRequestError(Exception):
    """The body cannot be used; ``str()`` names the value, ``reason`` is an id."""

    def __init__(self, message: str, reason: str = "bad-request") -> None:
        super().__init__(message)
        self.reason = reason


def body_of(raw: bytes) -> dict[str, Any]:
    """The JSON object in a request's body; empty means no arguments."""
    if len(raw) > MOST_BYTES:
        raise BadRequestError(f"The request has {len(raw)} bytes, at most {MOST_BYTES} are read.")
    if not raw.strip():
        return {}
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise BadRequestError("The request is not JSON.") from None
    if not isinstance(body, dict):
        raise BadRequestError("The request is not a JSON object.")
    return body


def share_of(body: dict[str, Any]) -> Share:
    """The share that is asked for: a text such as ``0.2``, or the number."""
    try:
        share: Share = Part().of_value(body.get("share"))
    except ValueError as error:
        raise BadRequestError(str(error), "bad-share") from None
    return share


def request_of(
    body: dict[str, Any], *, default_share: str, default_wait: float, default_project: str = ""
) -> GpuRequest:
    """The request for a GPU in a body, complete: what it leaves out is as the server's settings have it."""
    return _read(body).with_defaults(share=default_share, wait_seconds=default_wait, project=default_project)


def _read(body: dict[str, Any]) -> GpuRequest:
    try:
        return of_body(body)
    except RequestError as error:
        raise BadRequestError(str(error), error.reason) from None


def number_of(body: dict[str, Any], key: str, default: float, *, least: float, most: float) -> float:
    """A number within bounds, or the default when the key is absent or null."""
    value = body.get(key)
    if value is None:
        return default
    number = finite(value)
    if number is None or not least <= number <= most:
        raise BadRequestError(f"{key} must be a number from {least:g} to {most:g}, {shown(value)} is not.")
    return number


def keep_seconds(body: dict[str, Any], limits: IdleLimits) -> float:
    """For how long Keep puts a release off; without a number of minutes it fits what is allowed."""
    default = min(KEEP_SECONDS, limits.longest) / 60
    seconds = 60 * number_of(body, "minutes", default, least=0, most=LONGEST_SECONDS / 60)
    if seconds > limits.longest:
        raise BadRequestError(
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
        raise BadRequestError(f"{key} must be a text of at most {most} characters.")
    return value


@dataclass(frozen=True, slots=True)
class AutoBody:
    """What ``%gpu auto`` was switched to; None: off."""

    mode: AutoMode | None

    @classmethod
    def read(cls, body: dict[str, Any]) -> AutoBody:
        if body.get("on") is not True:
            return cls(None)
        asked = _read(body)
        share = asked.share.written if asked.share is not None else None
        return cls(AutoMode(share, asked.count, asked.strict))


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
        raise BadRequestError(f"out_of_memory: {error}.") from None
