"""A request as people and programs write it: words of a line, keywords of Python, a JSON object."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Mapping
from typing import Any, Final

from gpupool.request.gpu_request import LONGEST_SECONDS, GpuRequest, made_of, table
from gpupool.request.option import Option, Place, RequestError, options_of
from gpupool.request.values import Schema
from gpupool.shares import Share

_WAIT: Final = "wait_seconds"


def of_body(body: Mapping[str, Any], record: type[GpuRequest] = GpuRequest) -> GpuRequest:
    """The request in a JSON object; keys that are none of a request's are somebody else's.

    Raises:
        RequestError: names the key and its value.
    """
    rows = table(Place.BODY, record)
    return made_of({row.name: row.of_value(body[row.key]) for row in rows if row.key in body}, record)


def body_of(
    request: GpuRequest, *, short: bool = False, record: type[GpuRequest] = GpuRequest
) -> dict[str, Any]:
    """The JSON object of a request; ``short``: without what is as by default."""
    return {
        row.key: row.value.plain(value)
        for row in options_of(record)
        if Place.BODY in row.where and ((value := getattr(request, row.field)) != row.default or not short)
    }


def of_keywords(given: Mapping[str, Any], record: type[GpuRequest] = GpuRequest) -> GpuRequest:
    """The request that keyword arguments of :func:`gpupool.attach` make.

    Raises:
        TypeError: there is no such argument.
        RequestError: names the argument and its value.
    """
    rows = {row.keyword: row for row in table(Place.CODE, record)}
    for name in given:
        if name not in rows:
            raise TypeError(f"attach() has no argument {name!r}; there are {', '.join(rows)}.")
    values = {}
    for name, value in given.items():
        row = rows[name]
        # One type is a text, as people write it.
        listed = [value] if row.repeated and isinstance(value, str) and value else value
        values[row.name] = row.of_value(listed, named=name)
    return made_of(values, record)


def of_words(row: Option, said: Any) -> Any:
    """The value of an option as an argument parser has it: True, a text, or texts. Raises RequestError."""
    return row.of_value(said, named=row.flag) if row.switch or row.repeated else row.of_text(said)


def command_line(request: GpuRequest, record: type[GpuRequest] = GpuRequest) -> str:
    """The options of ``gpupool lease request`` for the same."""
    words: list[str] = []
    if request.share is not None:
        words += ["-m" if request.share.milli is None else "-p", str(request.share)]
    for row in options_of(record):
        value = getattr(request, row.field)
        if Place.COMMAND not in row.where or value == row.default:
            continue
        for one in value if row.repeated else (value,):
            words += [row.flag] if row.switch else [row.flag, row.value.text(one)]
    return shlex.join(words)


def of_message(message: Any, record: type[GpuRequest] = GpuRequest) -> GpuRequest:
    """The request in a ``RequestLease``; what the message leaves unsaid is as by default.

    Raises:
        RequestError: names the field and its value.
    """
    known = message.DESCRIPTOR.fields_by_name
    values = {
        row.name: row.of_value(said, row.field)
        for row in options_of(record)
        if row.field in known and row.field != _WAIT and (said := getattr(message, row.field))
    }
    wait = message.wait_seconds
    if math.isnan(wait):
        raise RequestError(f"wait_seconds needs a time in seconds, {wait} is not one.", "bad-request")
    # Zero means not at all here, and whatever is below it or above the longest wait: without end.
    values[_WAIT] = wait if 0 <= wait <= LONGEST_SECONDS else -1.0
    if bool(message.milli) != bool(message.mib):
        values["share"] = Share(message.milli or None, message.mib or None)
    return made_of(values, record)


def message_fields(
    request: GpuRequest, known: Collection[str], record: type[GpuRequest] = GpuRequest
) -> dict[str, Any]:
    """The fields of a ``RequestLease``; ``known``: those that the message has."""
    values = {row.field: getattr(request, row.field) for row in options_of(record) if row.field in known}
    if request.share is not None:
        values |= {"milli": request.share.milli, "mib": request.share.mib}
    return {name: value for name, value in values.items() if value is not None}


def schema(place: Place, record: type[GpuRequest] = GpuRequest) -> dict[str, Schema]:
    """JSON Schema of each property of a request."""
    return {row.key: row.schema for row in options_of(record) if place in row.where}
