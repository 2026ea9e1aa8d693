"""What a request may say of project, kind, priority, filters and node pools, and what is told of the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gpupool.client import convert
from gpupool.client.types import LeaseRequest
from gpupool.filters import Filter
from gpupool.node.driver_version import driver_version
from gpupool.pool.access import validate
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.shares import Share


def read(**fields: Any) -> Any:
    return validate.request(pb.RequestLease(idempotency_key="k", milli=200, **fields), "ann", 0.0)


def test_what_a_client_asks_is_what_the_pool_reads() -> None:
    request = LeaseRequest(
        Share.parse("0.2"),
        project="research/vision",
        kind="preemptible",
        priority=70,
        filters=("name=*H100*|*A100*", "memory>=40GiB"),
        pools=("fast", "slow", "fast"),
        no_isolation=True,
    )
    event = validate.request(convert.lease_request(request, 5.0), "ann", 0.0)
    assert (event.project, event.kind, event.priority) == ("research/vision", "preemptible", 70)
    assert event.filters == (Filter("name", "=", "*H100*|*A100*"), Filter("memory", ">=", "40GiB"))
    assert (event.pools, event.isolated) == (("fast", "slow"), False)


def test_a_request_of_before_says_nothing_of_it_and_means_what_it_meant() -> None:
    event = read()
    assert (event.project, event.kind, event.priority) == ("", "interactive", None)
    assert (event.filters, event.pools, event.isolated) == ((), (), True)


@pytest.mark.parametrize(
    ("fields", "names", "reason"),
    [
        ({"project": "a//b"}, "a//b", "unknown-project"),
        ({"project": "../etc"}, "../etc", "unknown-project"),
        ({"project": "p" * 201}, "ppp", "unknown-project"),
        ({"kind": "urgent"}, "urgent", "bad-request"),
        ({"priority": -1}, "-1", "bad-request"),
        ({"priority": 1001}, "1001", "bad-request"),
        ({"filters": ["colour=red"]}, "colour=red", "bad-request"),
        ({"filters": ["name=a"] * 17}, "17", "bad-request"),
        ({"filters": ["name=" + "x" * 300]}, "305", "bad-request"),
        (
            {"filters": [f"name=a{n}" for n in range(9)] + [f"node=b{n}|c" for n in range(7)]},
            "23",
            "bad-request",
        ),
        ({"filters": [f"name={n}" + "\U0001f600" * 120 for n in range(5)]}, "2430", "bad-request"),
        ({"pools": ["fast lane"]}, "fast lane", "bad-request"),
        ({"pools": ["a"] * 17}, "17", "bad-request"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], names: str, reason: str) -> None:
    with pytest.raises(validate.BadInputError) as caught:
        read(**fields)
    assert names in str(caught.value)
    assert caught.value.reason == reason


@pytest.mark.parametrize("user", ["", "*", "@group", "a b", "\x1b[2J", "u" * 129])
def test_a_request_is_of_one_user(user: str) -> None:
    with pytest.raises(validate.BadInputError) as caught:
        validate.request(pb.RequestLease(idempotency_key="k", milli=200), user, 0.0)
    assert caught.value.reason == "bad-request"


def test_labels_are_ordered_and_obey_no_terminal() -> None:
    assert validate.labels({"zone": "a", "rack": "\x1b[2J"}) == (("rack", "\\x1b[2J"), ("zone", "a"))
    with pytest.raises(validate.BadInputError, match="not a name"):
        validate.labels({"not a name": "x"})
    with pytest.raises(validate.BadInputError, match="65 labels"):
        validate.labels({f"l{i}": "" for i in range(65)})


@pytest.mark.parametrize(
    ("line", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC",
            "535.104.05",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs)\n",
            "580.65.06",
        ),
        ("something else\n", ""),
    ],
)
def test_the_kernel_module_says_its_version_where_nvml_does_not(
    tmp_path: Path, line: str, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpupool.node.driver_version._of_nvml", str)
    file = tmp_path / "version"
    file.write_text(line)
    assert driver_version(software=False, kernel_module=file) == version
    assert driver_version(software=False, kernel_module=tmp_path / "none") == ""


@pytest.mark.parametrize("said", ["consolidate", "budget", "lost", "boredom", "admin"])
def test_a_holder_gives_no_reason_that_is_the_pools(said: str) -> None:
    with pytest.raises(validate.BadInputError, match="not a reason that you may give"):
        validate.reason(said, "release")


def test_a_holder_says_why_it_gives_back_and_an_administrator_that_she_took_it() -> None:
    assert [validate.reason(said, "release") for said in ("", "exit", "idle", "reset")] == [
        "release",
        "exit",
        "idle",
        "reset",
    ]
    assert validate.reason("admin", "release", admin=True) == "admin"


def test_who_hands_over_before_a_notice_is_over_gives_its_reason() -> None:
    assert validate.reason("reclaim", "release", told={"reclaim"}) == "reclaim"
    with pytest.raises(validate.BadInputError):
        validate.reason("preempt", "release", told={"reclaim"})
