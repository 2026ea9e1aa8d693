"""The line that tells a client where its worker is."""

from __future__ import annotations

import re

import pytest
from gpupool.client.worker_address import (
    MAX_LENGTH,
    WorkerAddress,
    WorkerAddressError,
    can_be_told,
    checked_host,
)

FINGERPRINT = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "address",
    [
        WorkerAddress("127.0.0.1", 4711),
        WorkerAddress("[::1]", 4711, local="/run/gpupool/data.sock"),
        WorkerAddress("gpu-1.example", 65535, tls=FINGERPRINT),
        WorkerAddress("10.0.0.6", 1, local="/home/ann/.gpupool/run/n/workers/00/data.sock", tls=FINGERPRINT),
    ],
)
def test_what_is_written_is_read(address: WorkerAddress) -> None:
    assert WorkerAddress.parse(str(address)) == address
    assert len(str(address)) <= MAX_LENGTH


def test_a_key_of_a_later_version_is_skipped() -> None:
    assert WorkerAddress.parse("h:1 rdma=yes local=/a tls=" + FINGERPRINT) == WorkerAddress(
        "h", 1, "/a", FINGERPRINT
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nowhere",
        "h:x",
        "h:1 tls=",
        "h:1 tls=00",
        "h:1 tls=" + "g" * 64,
        "h:1 local=/ö",
        "h:1 x=" + "a" * 600,
    ],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(WorkerAddressError):
        WorkerAddress.parse(text)


def test_what_is_refused_is_named() -> None:
    for text, named in (
        ("http://gpu1:40001", "'http://gpu1:40001' is not host:port"),
        ("h:1 local=/\u00f6", "'/\u00f6' for 'local'"),
        ("h:1 tls=00", "'00' for a fingerprint"),
    ):
        with pytest.raises(WorkerAddressError, match=re.escape(named)):
            WorkerAddress.parse(text)


@pytest.mark.parametrize("host", ["gpu1", "gpu-1.example", "10.0.0.6", "::1", "[fe80::1]", "gpu_1"])
def test_a_host_that_is_accepted_makes_an_address(host: str) -> None:
    assert WorkerAddress.parse(str(WorkerAddress(checked_host(host), 40001))).host == host


@pytest.mark.parametrize(
    "host", ["", "http://gpu1", "gpu 1", "gpu-m\u00fcller", "gpu1:40001", "h" * 256, "a\nb"]
)
def test_another_host_is_refused_by_its_name(host: str) -> None:
    with pytest.raises(WorkerAddressError, match=re.escape(repr(host[:80]))):
        checked_host(host)


def test_a_path_that_no_socket_can_have_is_not_told() -> None:
    assert can_be_told("/run/data.sock")
    assert not can_be_told("/run/a folder/data.sock")
    assert not can_be_told("/run/" + "x" * 103)
    assert not can_be_told("")
