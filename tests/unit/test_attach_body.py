"""What an attach request's JSON may say of several devices and of terms, and what the pool advises instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gpupool.client import convert
from gpupool.client.types import LeaseRequest
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.request.forms import of_body
from gpupool.request.gpu_request import GpuRequest

from jupyter_gpupool.server.handlers.asked import BadRequestError, body_of, keep_seconds, request_of
from jupyter_gpupool.server.handlers.explained import explanation_view
from jupyter_gpupool.server.handlers.idle_choice import choice_of
from jupyter_gpupool.server.handlers.personal import Reader
from jupyter_gpupool.server.watching.idle import IdleLimits


def read(body: dict[str, object], project: str = "") -> GpuRequest:
    return request_of(body, default_share="0.2", default_wait=60.0, default_project=project)


def test_several_devices_and_where_they_may_lie() -> None:
    asked = read({"share": "0.5", "count": 2, "nodes": "any"})
    assert asked.share is not None
    assert (asked.share.milli, asked.count, asked.nodes) == (500, 2, "any")
    assert read({}).nodes == "auto"
    assert read({"nodes": None}).nodes == "auto"


@pytest.mark.parametrize("nodes", ["all", "one ", 2, ["any"]])
def test_anything_else_is_named(nodes: object) -> None:
    with pytest.raises(BadRequestError, match="nodes"):
        read({"nodes": nodes})


def test_the_terms_of_a_request() -> None:
    body = {
        "project": "research/vision",
        "kind": "preemptible",
        "priority": 60,
        "filters": ["name=*H100*", " memory>=40GiB "],
        "node_pools": ["a", "b"],
    }
    asked = read(body)
    assert (asked.project, asked.kind, asked.priority) == ("research/vision", "preemptible", 60)
    assert asked.filters == ("name=*H100*", "memory>=40GiB")
    assert asked.pools == ("a", "b")
    assert read({}, "research").project == "research"
    assert read({"project": "other"}, "research").project == "other"


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"project": "a//b"}, "a//b"),
        ({"kind": "urgent"}, "urgent"),
        ({"priority": 1001}, "1001"),
        ({"priority": 1.5}, "1.5"),
        ({"filters": ["fast"]}, "fast"),
        ({"filters": "name=x"}, "filters"),
        ({"node_pools": ["a b"]}, "a b"),
    ],
)
def test_terms_that_make_no_sense_are_named(body: dict[str, object], named: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        read(body)
    assert named in str(refused.value)


@pytest.mark.parametrize("minutes", ["1" + 400 * "0", "Infinity", "NaN", '"10"', "true", "-1"])
@pytest.mark.parametrize("read_minutes", [keep_seconds, choice_of])
def test_minutes_that_are_none_are_refused(
    read_minutes: Callable[[dict[str, Any], IdleLimits], object], minutes: str
) -> None:
    body = body_of(f'{{"minutes": {minutes}}}'.encode())
    with pytest.raises(BadRequestError, match="minutes"):
        read_minutes(body, IdleLimits(never_allowed=True))


def view(asked: GpuRequest | None) -> object:
    """What the page is told of a help that the pool gives with a request."""
    message = pb.Help(action="smaller")
    if asked is not None:
        message.request.CopyFrom(convert.lease_request(LeaseRequest.of(asked), 0.0))
    told = explanation_view(convert.explanation(pb.Explanation(helps=[message])), Reader("ann"))
    assert told is not None
    return told["helps"][0]["request"]


@pytest.mark.parametrize(
    "body",
    [
        {"share": "0.3"},
        {"share": "0.5", "count": 2, "nodes": "any"},
        {"share": "2048MiB", "project": "a/b"},
        {"share": "1", "filters": ["name=*A100*"], "node_pools": ["a"]},
        {"share": "0.2", "strict": True, "kind": "preemptible", "priority": 70},
        {"share": "0.2", "no_isolation": True},
    ],
)
def test_an_advice_of_the_pool_is_a_request_that_can_be_made(body: dict[str, object]) -> None:
    assert view(of_body(body)) == body


def test_an_advice_that_is_no_request_is_a_sentence_only() -> None:
    assert view(None) is None
