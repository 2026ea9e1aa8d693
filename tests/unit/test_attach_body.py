"""What an attach request's JSON may say of several devices."""

from __future__ import annotations

import pytest

from jupyter_gpupool.handlers.asked import AttachBody, BadRequest


def test_several_devices_and_where_they_may_lie() -> None:
    asked = AttachBody.read({"share": "0.5", "count": 2, "nodes": "any"}, "0.2", 60.0)
    assert (asked.share.milli, asked.count, asked.nodes) == (500, 2, "any")
    assert AttachBody.read({}, "0.2", 60.0).nodes == "auto"
    assert AttachBody.read({"nodes": None}, "0.2", 60.0).nodes == "auto"


@pytest.mark.parametrize("nodes", ["all", "one ", 2, ["any"]])
def test_anything_else_is_named(nodes: object) -> None:
    with pytest.raises(BadRequest, match="nodes"):
        AttachBody.read({"nodes": nodes}, "0.2", 60.0)
