"""A worker in one network namespace, its client in another, a cable between them: encrypted without being told so."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.client.netperf import machine_mark
from gpupool.client.worker_address import WorkerAddress

from benchmarks.network import Network, NetworkProxy
from benchmarks.worker_process import WorkerProcess, probe, software_driver
from tests.support.patience import BUSY
from tests.support.worker_client import ASKS, SOFTWARE, Client

HERE, THERE = "10.213.7.1", "10.213.7.2"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=10)


@pytest.fixture
def far_away() -> Iterator[str]:
    """The name of a network namespace at 10.213.7.2, with this machine at 10.213.7.1."""
    name = f"gpupool-{os.getpid()}"
    cable = f"gp{os.getpid()}"
    try:
        ip("netns", "add", name)
    except (OSError, subprocess.SubprocessError) as refused:
        pytest.skip(f"no network namespace can be made here: {refused}")
    try:
        try:
            ip("link", "add", cable, "type", "veth", "peer", "name", "far", "netns", name)
            ip("address", "add", f"{HERE}/30", "dev", cable)
            ip("link", "set", cable, "up")
            for words in (
                ("address", "add", f"{THERE}/30", "dev", "far"),
                ("link", "set", "far", "up"),
                ("link", "set", "lo", "up"),
            ):
                ip("-n", name, *words)
        except (OSError, subprocess.SubprocessError) as refused:
            pytest.skip(f"no virtual cable can be made here: {refused}")
        yield name
    finally:
        with contextlib.suppress(subprocess.SubprocessError):
            ip("link", "delete", cable)
        with contextlib.suppress(subprocess.SubprocessError):
            ip("netns", "delete", name)


def test_a_client_elsewhere_uses_tls_through_a_slower_network(far_away: str, tmp_path: Path) -> None:
    driver = software_driver()
    device = probe(driver, SOFTWARE)[1][0]
    with WorkerProcess(
        tmp_path, driver, [(device, 500, 256)], environment=SOFTWARE, options=("--listen", f"{HERE}:0")
    ) as worker:
        client = Client(tmp_path, worker, ("ip", "netns", "exec", far_away))
        direct = WorkerAddress(HERE, worker.port, tls=worker.fingerprint)
        assert f"connected by tls {HERE}" in client.run(ASKS, str(direct))
        with NetworkProxy(
            f"{HERE}:{worker.port}",
            Network(500),
            listen=f"{THERE}:0",
            command=("ip", "netns", "exec", far_away),
        ) as proxy:
            slower = WorkerAddress(THERE, proxy.port, tls=worker.fingerprint)
            assert f"connected by tls {THERE}" in client.run(ASKS, str(slower))


def test_a_network_of_its_own_is_another_machine(far_away: str) -> None:
    program = [
        sys.executable,
        "-c",
        "from gpupool.client.netperf import machine_mark; print(machine_mark('x').hex())",
    ]

    def said(*before: str) -> str:
        return subprocess.run(
            [*before, *program], check=True, capture_output=True, text=True, timeout=60 * BUSY
        ).stdout.strip()

    assert said() == machine_mark("x").hex() != said("ip", "netns", "exec", far_away)
