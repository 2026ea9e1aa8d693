"""Parts of the node agent that need no pool: instructions, endpoints, tokens, addresses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpupool.client.endpoint import read_token, resolve_endpoint
from gpupool.client.errors import GpupoolError
from gpupool.node.address import pool_host, reaches_only_here
from gpupool.node.messages import BadInstructionError, device_grants
from gpupool.proto import pool_pb2


def share(device: str, milli: int = 100, mib: int = 100) -> Any:
    return pool_pb2.DeviceShare(device_id=device, share=pool_pb2.Share(milli=milli, mib=mib))


def test_instructions_name_devices_of_this_node() -> None:
    grants = device_grants("node/1", [share("node/1/0"), share("node/1/11", 1000, 7936)])
    assert [(g.ordinal, g.milli, g.mib) for g in grants] == [(0, 100, 100), (11, 1000, 7936)]


@pytest.mark.parametrize(
    "wrong",
    [share("other/0"), share("n"), share("n/"), share("n/-1"), share("n/x"), share("n/٣"), share("n/99999"),
     share("n/0", 0), share("n/0", 1001), share("n/0", 100, 0)],
)  # fmt: skip
def test_instructions_that_make_no_sense_here_are_refused(wrong: Any) -> None:
    with pytest.raises(BadInstructionError):
        device_grants("n", [wrong])


def test_the_endpoint_is_what_is_named_then_the_environment_then_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUPOOL_HOME", str(tmp_path))
    monkeypatch.delenv("GPUPOOL_ENDPOINT", raising=False)
    assert resolve_endpoint() == f"unix:{tmp_path}/pool.sock"
    monkeypatch.setenv("GPUPOOL_ENDPOINT", "pool:7460")
    assert resolve_endpoint() == "pool:7460"
    assert resolve_endpoint("other:1") == "other:1"


Spoil = Callable[[Path], object]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda path: path.chmod(0o644), "open to others"),
        (lambda path: path.write_text(""), "holds no token"),
        (lambda path: path.write_text("two words"), "holds no token"),
        (lambda path: path.write_bytes(b"\xff" * 10), "holds no token"),
        (lambda path: path.write_text("x" * 5000), "holds no token"),
        (lambda path: path.unlink(), "cannot be read"),
    ],
)
def test_a_token_file_that_is_none_is_refused_without_showing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Spoil, says: str
) -> None:
    path = tmp_path / "token"
    path.write_text("gpupool_1_secret\n")
    path.chmod(0o600)
    assert read_token(path) == "gpupool_1_secret"
    monkeypatch.setenv("GPUPOOL_TOKEN_FILE", str(path))
    assert read_token() == "gpupool_1_secret"
    spoil(path)
    with pytest.raises(GpupoolError, match=says) as caught:
        read_token()
    assert "secret" not in str(caught.value)
    assert "xxxx" not in str(caught.value)


@pytest.mark.parametrize(
    ("endpoint", "host"),
    [
        ("unix:/run/pool.sock", None),
        ("127.0.0.1:7460", None),
        ("127.0.0.5:7460", None),
        ("localhost:7460", None),
        ("[::1]:7460", None),
        ("10.0.0.5:7460", "10.0.0.5"),
        ("[2001:db8::1]:7460", "[2001:db8::1]"),
        ("pool.example.org:7460", "pool.example.org"),
        ("dns:///pool.example.org:7460", "pool.example.org"),
        ("ipv4:127.0.0.1:7460", None),
    ],
)
def test_a_pool_elsewhere_is_known_by_its_endpoint(endpoint: str, host: str | None) -> None:
    assert pool_host(endpoint) == host


@pytest.mark.parametrize(
    ("host", "only_here"),
    [("127.0.0.1", True), ("0.0.0.0", True), ("::1", True), ("localhost", True), ("10.0.0.6", False),
     ("gpu1.example.org", False)],
)  # fmt: skip
def test_addresses_that_other_machines_cannot_dial(host: str, only_here: bool) -> None:
    assert reaches_only_here(host) is only_here
