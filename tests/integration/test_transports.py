"""What carries the calls: shared memory on the worker's own machine, TCP elsewhere; chosen by the runtime itself.

A real worker with the software GPU; every program is a process of its own that prints `ok` when its checks hold.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gpupool.client.worker_address import WorkerAddress

from benchmarks.network import Network, NetworkProxy, emulated
from tests.support.worker_client import ASKS, ASKS_FOR_EVER, Client, client

__all__ = ["client"]

NUMBA = """
import numpy as np
from numba import cuda

@cuda.jit
def add(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]

x = np.arange(3_000_000, dtype=np.float32)
out = np.zeros_like(x)
add[(x.size + 255) // 256, 256](x, 2 * x, out)
np.testing.assert_allclose(out, 3 * x)
print("ok", flush=True)
"""


@pytest.mark.parametrize(("transport", "used"), [("tcp", "tcp 127.0.0.1"), ("shm", "shared memory")])
def test_numba_computes_over_every_transport(client: Client, transport: str, used: str) -> None:
    assert f"connected by {used}" in client.run(NUMBA, GPUPOOL_TRANSPORT=transport)


def test_shared_memory_is_chosen_on_the_workers_own_machine_and_tcp_where_there_is_no_socket(
    client: Client,
) -> None:
    assert "connected by shared memory" in client.run(ASKS)
    client.worker.local_path.unlink()
    said = client.run(ASKS)
    assert "not by shared memory: cannot connect" in said
    assert "connected by tcp" in said
    assert "connected by" not in client.run(ASKS, GPUPOOL_DEBUG="0")


def test_a_socket_that_gives_no_memory_is_left_for_tcp(client: Client, tmp_path: Path) -> None:
    """Another program may listen at the path on the client's machine; it hangs up on what it does not know."""
    wrong = tmp_path / "wrong.sock"
    listener = subprocess.Popen(
        [sys.executable, "-c", f"import socket; s = socket.socket(socket.AF_UNIX); s.bind({str(wrong)!r}); s.listen()\n"
         "print(flush=True)\nwhile True: s.accept()[0].sendall(b'HTTP/1.1 400 Bad Request')"],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert listener.stdout is not None
        listener.stdout.readline()
        address = WorkerAddress("127.0.0.1", client.worker.port, local=str(wrong))
        assert "connected by tcp" in client.run(ASKS, str(address))
    finally:
        listener.kill()
        listener.wait()
        listener.stdout.close()


def test_shared_memory_that_was_asked_for_and_cannot_be_is_an_error(client: Client) -> None:
    address = str(WorkerAddress("127.0.0.1", client.worker.port))
    process = client.start(ASKS, address, GPUPOOL_TRANSPORT="shm")
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "GPUPOOL_TRANSPORT is shm, but this worker has no socket" in errors


def test_a_worker_that_is_killed_is_noticed_at_once(client: Client) -> None:
    process = client.start(ASKS_FOR_EVER, GPUPOOL_TRANSPORT="shm")
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ok"
    assert client.worker.process is not None
    os.kill(client.worker.process.pid, signal.SIGKILL)
    killed = time.monotonic()
    assert process.stdout.readline().strip() == "lost"
    assert time.monotonic() - killed < 15  # after which the system would have said it of any connection
    process.communicate(timeout=60)


def test_a_client_that_is_killed_leaves_its_seat_at_once(client: Client) -> None:
    process = client.start(ASKS_FOR_EVER, GPUPOOL_TRANSPORT="shm")
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ok"
    client.worker.wait_for("client connected=1")
    process.kill()
    process.communicate(timeout=60)
    assert "connected by shared memory" in client.run(ASKS)


def test_only_the_own_user_can_reach_the_socket(client: Client) -> None:
    assert client.worker.local_path.stat().st_mode & 0o777 == 0o600


TLS = pytest.mark.parametrize("client", [("--tls", "on")], indirect=True)


def without_tls(client: Client) -> str:
    return str(WorkerAddress("127.0.0.1", client.worker.port))


def fails(client: Client, address: str, **environment: str) -> str:
    """What a program says that cannot connect."""
    process = client.start(ASKS, address, GPUPOOL_TRANSPORT="tcp", **environment)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    return errors


def logged(client: Client) -> str:
    return client.worker.log_path.read_text()


@TLS
def test_numba_computes_over_tls(client: Client) -> None:
    assert len(client.worker.fingerprint) == 64
    # Python's own OpenSSL is in use in the same process, and stays so.
    own = "import ssl; ssl.create_default_context()\n"
    assert "connected by tls 127.0.0.1" in client.run(own + NUMBA + own, GPUPOOL_TRANSPORT="tcp")
    assert "connected by shared memory" in client.run(ASKS)


def test_a_worker_on_loopback_does_not_encrypt_by_itself(client: Client) -> None:
    assert client.worker.fingerprint == ""


@pytest.mark.parametrize("client", [("--listen", "0.0.0.0:0")], indirect=True)
def test_a_worker_that_others_can_reach_encrypts_by_itself(client: Client) -> None:
    assert "connected by tls" in client.run(ASKS, GPUPOOL_TRANSPORT="tcp")


@TLS
def test_another_certificate_is_refused_before_the_token_is_sent(client: Client) -> None:
    wrong = WorkerAddress("127.0.0.1", client.worker.port, tls="00" * 32)
    assert "shows another certificate than the one that the pool told of" in fails(client, str(wrong))


@TLS
def test_a_plain_client_is_refused_by_a_worker_that_encrypts(client: Client) -> None:
    assert "refused the connection" in fails(client, without_tls(client))
    assert "did not speak TLS as expected" in logged(client)
    assert "connected by tls" in client.run(ASKS, GPUPOOL_TRANSPORT="tcp")


def test_a_client_that_expects_tls_is_told_that_there_is_none(client: Client) -> None:
    wrong = WorkerAddress("127.0.0.1", client.worker.port, tls="00" * 32)
    assert "does not speak TLS as expected" in fails(client, str(wrong))
    assert "no valid HELLO" in logged(client)


@TLS
def test_a_visitor_that_says_nothing_keeps_nobody_out(client: Client) -> None:
    with socket.create_connection(("127.0.0.1", client.worker.port)) as silent:
        silent.sendall(b"\x16\x03\x01")
        assert "connected by tls" in client.run(ASKS, GPUPOOL_TRANSPORT="tcp")


# ---- slower networks

TIMED = (
    ASKS.replace('print("ok", flush=True)', "")
    + """
import time
start = time.monotonic()
for n in range(20):
    check(cu.cuCtxSynchronize())
asked = (time.monotonic() - start) / 20
start = time.monotonic()
for n in range(500):
    event = check(cu.cuEventCreate(0))
    check(cu.cuEventDestroy(event))
check(cu.cuCtxSynchronize())
posted = time.monotonic() - start
assert asked >= 0.02, asked
assert posted < 10, posted  # if each waited to be sent: ten milliseconds for each of a thousand
print("ok", flush=True)
"""
)


@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_an_emulated_network_delays_asks_and_not_each_post(client: Client, transport: str) -> None:
    environment = emulated(Network(20_000))
    assert "emulated network" in client.run(TIMED, GPUPOOL_TRANSPORT=transport, **environment)


def test_a_proxy_delays_stalls_and_cuts_and_the_program_goes_on(client: Client) -> None:
    with NetworkProxy(without_tls(client), Network(20_000)) as proxy:
        address = f"127.0.0.1:{proxy.port}"
        client.run(TIMED, address)
        process = client.start(ASKS_FOR_EVER, address)
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ok"
        proxy.stall()
        time.sleep(0.3)
        assert process.poll() is None
        proxy.resume()
        proxy.cut()
        time.sleep(0.5)
        assert process.poll() is None
        process.kill()
        _, errors = process.communicate(timeout=60)
        assert "connected again by tcp" in errors


def test_an_emulated_network_that_cannot_be_read_is_an_error(client: Client) -> None:
    assert "delay_us=N,mbit=N" in fails(client, client.worker.address, GPUPOOL_EMULATE="fast")
