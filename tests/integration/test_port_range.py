"""Workers of a node whose firewall lets some ports through: each listens on one of them, or says that none is free."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from gpupool.client.errors import PoolRefusedError
from gpupool.client.native import native_directory
from gpupool.client.pool import PoolClient
from gpupool.client.types import LeaseRequest
from gpupool.client.worker_address import WorkerAddress
from gpupool.engines.local import LocalEngine
from gpupool.engines.records import DeviceGrant, EngineError, Placement, StartedWorker, WorkerSpec
from gpupool.node.clock import boottime_ns
from gpupool.node.driver import probe
from gpupool.shares import Share

from tests.support.pool_node import PoolAndNode, native_worker_is_built

pytestmark = pytest.mark.skipif(not native_worker_is_built(), reason="native worker not built")


async def start(engine: LocalEngine, session: str) -> StartedWorker:
    placement = await engine.reserve((DeviceGrant(0, "", 200, 512),))
    assert isinstance(placement, Placement)
    return await engine.start(
        placement, WorkerSpec(session, 1, placement.devices, "ab" * 32, boottime_ns() + 30 * 10**9)
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


async def test_a_worker_without_a_free_port_is_not_started_and_says_why(tmp_path: Path) -> None:
    native = native_directory()
    worker, driver = (str(native / "bin" / "gpupool-worker"),), str(native / "softgpu" / "libcuda.so.1")

    async def inventory():  # type: ignore[no-untyped-def]
        return (await probe(driver, worker, {})).inventory()

    port = free_port()
    ports = f"{port}-{port}"
    engine = LocalEngine(
        run_directory=tmp_path / "workers",
        worker_command=worker,
        driver=driver,
        inventory=inventory,
        listen_ports=ports,
    )
    try:
        first = await start(engine, "0" * 32)
        assert WorkerAddress.parse(first.address).port == port
        with pytest.raises(EngineError, match=f"no port of 127.0.0.1:{ports} is free"):
            await start(engine, "1" * 32)
        await engine.stop("0" * 32, 0.0)
        await engine.stop("1" * 32, 0.0)
        second = await start(engine, "2" * 32)
        assert WorkerAddress.parse(second.address).port == port
    finally:
        for session in "012":
            await engine.stop(session * 32, 0.0)
        await engine.close()


async def test_a_session_for_which_a_node_has_no_port_waits_until_another_one_ends() -> None:
    share = Share.parse("0.2")
    # Leases live without being renewed for as long as the test takes.
    options = ("--port-range", str(free_port()))
    with PoolAndNode(real_worker=True, gpus=1, scale=4.0, node_arguments=options) as stack:
        async with PoolClient(stack.endpoint) as pool:
            first = await pool.request(LeaseRequest(share, label="first"))
            await pool.release(first.lease_id)
            with pytest.raises(PoolRefusedError, match="the port of node n1 is taken"):
                await pool.request(LeaseRequest(share, label="second"), wait_seconds=0.0)
            again = await pool.request(LeaseRequest(share, label="first", session_id=first.session_id))
            assert again.session_id == first.session_id
            await pool.release(again.lease_id, close_session=True)
            second = await pool.request(LeaseRequest(share, label="second"), wait_seconds=30.0)
            assert second.session_id != first.session_id
