"""A pool, a node that encrypts, and a program started with a grant: the fingerprint travels the whole way by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from gpupool.client.native import native_directory
from gpupool.client.pool import PoolClient
from gpupool.client.session_file import SessionFile
from gpupool.client.types import LeaseRequest
from gpupool.client.worker_address import WorkerAddress
from gpupool.shares import Share

from tests.support.pool_node import PoolAndNode
from tests.support.worker_client import ASKS


class EncryptingNode(PoolAndNode):
    def start_node(self, *arguments: str, script: str = "", name: str = "n1") -> None:
        super().start_node("--tls", "on", *arguments, script=script, name=name)


@pytest.mark.parametrize(("transport", "used"), [("tcp", "tls 127.0.0.1"), ("auto", "shared memory")])
async def test_a_grant_names_certificate_and_socket_of_its_worker(
    tmp_path: Path, transport: str, used: str
) -> None:
    with EncryptingNode(real_worker=True, gpus=1) as stack:
        async with PoolClient(stack.endpoint) as pool:
            grant = await pool.request(LeaseRequest(Share.parse("0.2"), reservation=True), wait_seconds=10)
            address = WorkerAddress.parse(grant.worker_address)
            assert len(address.tls) == 64
            assert Path(address.local).is_socket()
            file = SessionFile(tmp_path / "session")
            file.write(
                "attached",
                session=grant.session_id,
                epoch=grant.epoch,
                address=grant.worker_address,
                token=grant.worker_token,
                software=grant.software,
            )
            done = subprocess.run(
                [sys.executable, "-c", ASKS],
                env=dict(
                    os.environ,
                    GPUPOOL_SESSION_FILE=str(file.path),
                    GPUPOOL_DEBUG="1",
                    GPUPOOL_TRANSPORT=transport,
                    LD_LIBRARY_PATH=str(native_directory() / "client"),
                ),
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.stdout.strip() == "ok", done.stderr
            assert f"connected by {used}" in done.stderr
            await pool.release(grant.lease_id, close_session=True)
