"""What an attach request's JSON may say of several devices and of terms, and what the pool advises instead."""

from __future__ import annotations

import pytest
from gpupool.request.gpu_request import GpuRequest

from jupyter_gpupool.server.handlers.asked import BadRequest, request_of
from jupyter_gpupool.server.handlers.explained import attach_body


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
    with pytest.raises(BadRequest, match="nodes"):
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
    with pytest.raises(BadRequest) as refused:
        read(body)
    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "body"),
    [
        ("-p 0.3", {"share": "0.3"}),
        ("-p 0.5 -n 2 --nodes any", {"share": "0.5", "count": 2, "nodes": "any"}),
        ("-m 2048 --project a/b", {"share": "2048MiB", "project": "a/b"}),
        (
            "-p 1 --filter 'name=*A100*' --node-pool a",
            {"share": "1", "filters": ["name=*A100*"], "node_pools": ["a"]},
        ),
        ("", None),
        ("-n 2", None),
        ("-p 0.3 --of-a-newer-pool", None),
        ("-p 'open", None),
    ],
)
def test_an_advice_of_the_pool_is_a_request_that_can_be_made(
    arguments: str, body: dict[str, object] | None
) -> None:
    assert attach_body(arguments) == body
