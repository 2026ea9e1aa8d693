"""Compares what a Jupyter server really answers with what is said of its routes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from jupyter_gpupool.server.handlers.base import GpupoolHandler
from jupyter_gpupool.server.rest.document import document
from jupyter_gpupool.server.rest.route import LINES

_DOCUMENT = "urn:openapi"


def wrong_answer(method: str, path: str, status: int, media: str, body: bytes) -> str | None:
    """What is not as described; None: all is. ``path``: below ``<base_url>/gpupool``."""
    described = _operation(method, path)
    if described is None:
        return None if status in (404, 405) else f"{method} {path} is not described"
    if status == 304 and method == "GET":
        return None  # the handler wrote what is not sent then
    answer = described["responses"].get(str(status))
    if answer is None:
        return f"{method} {path} answers {status}, which is not described: {body[:300]!r}"
    content = answer["content"].get(media)
    if content is None:
        return f"{method} {path} answers {media}, which is not described"
    lines = body.splitlines() if media == LINES else [body]
    for line in lines:
        error = best_match(_validator(content["schema"]["$ref"]).iter_errors(json.loads(line)))
        if error is not None:
            return f"{method} {path} {status}: {error.json_path}: {error.message}"
    return None


def shape_error(name: str, value: Any) -> str | None:
    """Why a value has not the shape of this name."""
    error = best_match(_validator(f"#/components/schemas/{name}").iter_errors(value))
    return None if error is None else f"{error.json_path}: {error.message}"


@contextmanager
def compared() -> Iterator[list[str]]:
    """While this is entered, every answer of the extension is compared; the list has what was wrong.

    That is done in the handlers, so that answers to real kernels and pages count as well as those to tests.
    """
    wrong: list[str] = []
    write, flush, finished = GpupoolHandler.write, GpupoolHandler.flush, GpupoolHandler.on_finish

    def keep(handler: Any, chunk: Any) -> None:
        raw = chunk if isinstance(chunk, bytes) else str(chunk).encode()
        handler.__dict__.setdefault("answered", bytearray()).extend(raw)
        write(handler, chunk)

    def send(handler: Any, *arguments: Any, **named: Any) -> Any:
        # With the first piece go the headers; what Jupyter sets when a stream ends is not sent.
        handler.__dict__.setdefault("media", handler._headers.get("Content-Type", "").partition(";")[0])
        return flush(handler, *arguments, **named)

    def compare(handler: Any) -> None:
        finished(handler)
        media = handler.__dict__.get("media", "")
        path = handler.request.path.partition("/gpupool")[2]
        body = bytes(handler.__dict__.get("answered", b""))
        error = wrong_answer(handler.request.method, path, handler.get_status(), media, body)
        if error is not None:
            wrong.append(error)

    with mock.patch.multiple(GpupoolHandler, write=keep, flush=send, on_finish=compare):
        yield wrong


@cache
def _described() -> dict[str, Any]:
    return document()


def _operation(method: str, path: str) -> dict[str, Any] | None:
    for pattern, operations in _described()["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", pattern), path):
            found: dict[str, Any] | None = operations.get(method.lower())
            return found
    return None


@cache
def _validator(reference: str) -> Draft202012Validator:
    resource = Resource.from_contents(_described(), default_specification=DRAFT202012)
    registry: Registry[Any] = Registry().with_resource(_DOCUMENT, resource)
    return Draft202012Validator({"$ref": _DOCUMENT + reference}, registry=registry)
