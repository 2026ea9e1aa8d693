"""A connection that breaks, and a program that notices nothing but the time: every call is executed once.

A real worker with the software GPU, a proxy between it and a real program. What the programs compute depends on every
launch and every copy, so one that was lost, or executed twice, changes the digest at their end.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time

import pytest
from gpupool.client.session_file import SessionFile
from gpupool.client.worker_address import WorkerAddress

from benchmarks.network import NetworkProxy
from benchmarks.worker_process import boottime_ns
from tests.support.worker_client import ASKS, ASKS_FOR_EVER, BEGIN, Client, client

__all__ = ["client"]

#: How long there is no network in the middle of training; `make test-outage` says 20.
OUTAGE_SECONDS = int(os.environ.get("GPUPOOL_OUTAGE_SECONDS", "2"))
#: A connection that never holds for half a second is tried again after a second, and given up after a minute. A busy
#: machine would need longer than that for the whole program.
CUTTING_SECONDS = 10.0
#: How long nobody may listen where a worker was (`dead_after` of the client's reconnect_policy.h).
DEAD_AFTER = 3

# Each of these programs is connected when it says that it is ready: a connection that breaks while it is made is the
# call's error, and only one that stood is mended.
TRAINING = """
import hashlib, os, sys, time
import numpy as np
from numba import cuda

@cuda.jit
def step(weights, batch, rate):
    i = cuda.grid(1)
    if i < weights.size:
        weights[i] = weights[i] * 3 + batch[i % batch.size] * rate + 1

steps = int(os.environ["STEPS"])
cuda.synchronize()
print("ready", flush=True)
random = np.random.default_rng(7)
weights = cuda.to_device(np.arange(50_000, dtype=np.uint32))
digest = hashlib.sha256()
pinned = cuda.pinned_array(1000, dtype=np.uint32)
stream = cuda.stream()
for n in range(steps):
    size = 60_000 if n % 10 == 0 else 500
    batch = cuda.to_device(random.integers(0, 1000, size, dtype=np.uint32), stream=stream)
    for rate in range(3):
        step[196, 256, stream](weights, batch, rate)
    event = cuda.event()
    event.record(stream)
    if n % 3 == 0:
        while not event.query():
            pass
    elif n % 3 == 1:
        weights[:1000].copy_to_host(pinned, stream=stream)
        stream.synchronize()
        digest.update(pinned.tobytes())
    else:
        digest.update(weights.copy_to_host(stream=stream).tobytes())
stream.synchronize()
digest.update(weights.copy_to_host().tobytes())
print(digest.hexdigest(), flush=True)
"""

COPIES = (
    BEGIN
    + """
import hashlib
import numpy as np
size = 64 << 20
memory = check(cu.cuMemAlloc(size))
there = np.random.default_rng(5).integers(0, 256, size, dtype=np.uint8)
back = np.zeros_like(there)
print("ready", flush=True)
for n in range(2):
    there[n] ^= 255
    check(cu.cuMemcpyHtoD(memory, there.ctypes.data, size))
    back[:] = 0
    check(cu.cuMemcpyDtoH(back.ctypes.data, memory, size))
    assert (there == back).all(), n
host = check(cu.cuMemAllocHost(size))
stream = check(cu.cuStreamCreate(1))
for n in range(2):
    there[n] ^= 255
    check(cu.cuMemcpyHtoDAsync(memory, there.ctypes.data, size, stream))
    check(cu.cuMemcpyDtoHAsync(host, memory, size, stream))
    while cu.cuStreamQuery(stream)[0] != 0:
        pass
    import ctypes
    assert (np.frombuffer((ctypes.c_uint8 * size).from_address(host), dtype=np.uint8) == there).all(), n
print("ok", flush=True)
"""
)

PRINTS = """
from numba import cuda

@cuda.jit
def say(n):
    print("line", n)

cuda.synchronize()
print("ready", flush=True)
for n in range(300):
    say[1, 1](n)
    if n % 5 == 0:
        cuda.synchronize()
cuda.synchronize()
print("end", flush=True)
"""


HOST_FUNCTIONS = (
    BEGIN
    + """
import ctypes
stream = check(cu.cuStreamCreate(1))
called = []
Function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
function = Function(lambda n: called.append(n or 0))
address = ctypes.cast(function, ctypes.c_void_p).value
check(cu.cuCtxSynchronize())
print("ready", flush=True)
for n in range(400):
    check(cu.cuLaunchHostFunc(stream, cu.CUhostFn(address), n))
    if n % 20 == 0:
        check(cu.cuStreamSynchronize(stream))
check(cu.cuStreamSynchronize(stream))
assert called == list(range(400)), called
print("ok", flush=True)
"""
)


PARKED = (
    BEGIN
    + """
import ctypes
import numpy as np
runtime = ctypes.CDLL("libcuda.so.1")
there = np.arange(100_000)
memory = check(cu.cuMemAlloc(there.nbytes))
check(cu.cuMemcpyHtoD(memory, there.ctypes.data, there.nbytes))
check(cu.cuCtxSynchronize())
print("first", flush=True)
for n in range(3):
    runtime.gpupool_detach()
    input()
    back = np.zeros_like(there)
    check(cu.cuMemcpyDtoH(back.ctypes.data, memory, back.nbytes))
    assert (there == back).all()
    print("same", flush=True)
"""
)


def through(client: Client, proxy: NetworkProxy) -> str:
    return str(WorkerAddress("127.0.0.1", proxy.port, tls=client.worker.fingerprint))


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def finished(process: subprocess.Popen[str], timeout: float = 60) -> tuple[str, str]:
    out, errors = process.communicate(timeout=timeout)
    assert process.returncode == 0, out + errors[-3000:]
    return out.strip(), errors


#: What the training ends with over a connection that nobody cuts.
UNCUT: dict[int, str] = {}


def uncut(client: Client, steps: int) -> str:
    if steps not in UNCUT:
        process = client.start(TRAINING, STEPS=str(steps))
        assert first_line(process) == "ready"
        UNCUT[steps] = finished(process)[0]
    return UNCUT[steps]


def cut_often(
    proxy: NetworkProxy, process: subprocess.Popen[str], seed: int, shortest: float, longest: float
) -> int:
    """Cuts at random moments, for a while or until the program has ended; how often."""
    moments = random.Random(seed)
    cuts = 0
    end = time.monotonic() + CUTTING_SECONDS
    while process.poll() is None and time.monotonic() < end:
        time.sleep(moments.uniform(shortest, longest))
        proxy.cut()
        cuts += 1
    return cuts


@pytest.mark.parametrize("client", [("--tls", "off"), ("--tls", "on")], indirect=True, ids=["tcp", "tls"])
def test_training_over_a_connection_that_is_cut_again_and_again(client: Client) -> None:
    # So many steps that the third cut is not the last thing that the program sees.
    expected = uncut(client, 180)
    with NetworkProxy(f"127.0.0.1:{client.worker.port}") as proxy:
        process = client.start(TRAINING, through(client, proxy), STEPS="180")
        assert first_line(process) == "ready"
        cuts = cut_often(proxy, process, 1, 0.02, 0.15)
        out, errors = finished(process)
        assert out == expected
        assert cuts >= 3
        assert errors.count("connected again by") >= 3


def test_a_network_that_is_gone_for_a_while_in_the_middle_of_training(client: Client) -> None:
    expected = uncut(client, 60)
    with NetworkProxy(f"127.0.0.1:{client.worker.port}") as proxy:
        process = client.start(TRAINING, through(client, proxy), STEPS="60")
        assert first_line(process) == "ready"
        time.sleep(0.3)
        proxy.stall()
        proxy.cut()
        time.sleep(OUTAGE_SECONDS)
        assert process.poll() is None, "it ended while there was no network"
        proxy.resume()
        out, errors = finished(process)
        assert out == expected
        assert "connected again by" in errors


def test_a_tunnel_that_ended_and_is_made_again_loses_nothing(client: Client) -> None:
    """As through SSH: nobody listens on this machine's port for longer than a worker that is dead would be waited for."""
    expected = uncut(client, 60)
    with NetworkProxy(f"127.0.0.1:{client.worker.port}") as tunnel:
        local, tls = "/elsewhere/sessions/one/data.sock", client.worker.fingerprint
        address = str(WorkerAddress("127.0.0.1", tunnel.port, local=local, tls=tls))
        process = client.start(TRAINING, address, STEPS="60")
        assert first_line(process) == "ready"
        time.sleep(0.3)
    time.sleep(DEAD_AFTER + 2)
    assert process.poll() is None, "it ended while there was no tunnel"
    with NetworkProxy(f"127.0.0.1:{client.worker.port}", listen=f"127.0.0.1:{tunnel.port}"):
        out, errors = finished(process)
    assert out == expected
    assert "connected again by" in errors


def test_large_copies_are_cut_in_the_middle_and_arrive(client: Client) -> None:
    with NetworkProxy(f"127.0.0.1:{client.worker.port}") as proxy:
        process = client.start(COPIES, through(client, proxy))
        assert first_line(process) == "ready"
        # As long as a few of the copies take: some are cut, and some come through.
        cuts = cut_often(proxy, process, 2, 0.03, 0.3)
        out, _ = finished(process)
        assert out == "ok"
        assert cuts >= 3


def test_what_kernels_print_is_neither_lost_nor_doubled(client: Client) -> None:
    with NetworkProxy(f"127.0.0.1:{client.worker.port}") as proxy:
        process = client.start(PRINTS, through(client, proxy))
        assert first_line(process) == "ready"
        cuts = cut_often(proxy, process, 3, 0.01, 0.1)
        out, _ = finished(process)
        assert out.splitlines() == [*(f"line {n}" for n in range(300)), "end"]
        assert cuts >= 3


def test_host_functions_run_once_each(client: Client) -> None:
    with NetworkProxy(f"127.0.0.1:{client.worker.port}") as proxy:
        process = client.start(HOST_FUNCTIONS, through(client, proxy))
        assert first_line(process) == "ready"
        cuts = cut_often(proxy, process, 4, 0.01, 0.08)
        out, _ = finished(process)
        assert out == "ok"
        assert cuts >= 3


def test_a_worker_that_dies_while_the_network_is_gone_is_found_out(client: Client) -> None:
    """Nobody listens where the session file says that the worker is."""
    process = client.start(ASKS_FOR_EVER, GPUPOOL_TRANSPORT="tcp")
    assert first_line(process) == "ok"
    assert client.worker.process is not None
    client.worker.process.kill()
    died = time.monotonic()
    assert first_line(process) == "lost"
    assert time.monotonic() - died > 2.0
    _, errors = process.communicate(timeout=60)
    assert "the GPU worker is gone" in errors


def test_a_call_under_way_is_refused_when_the_share_went_back_and_the_worker_is_gone(client: Client) -> None:
    """The session may lie on disk or be on its way to another worker: it is not lost."""
    process = client.start(ASKS_FOR_EVER, GPUPOOL_TRANSPORT="tcp")
    assert first_line(process) == "ok"
    SessionFile(client.folder / "session").write(
        "parked", session=client.worker.session, message="It was not used."
    )
    assert client.worker.process is not None
    client.worker.process.kill()
    died = time.monotonic()
    assert first_line(process) == "lost"
    assert time.monotonic() - died > 2.0
    _, errors = process.communicate(timeout=60)
    assert "It was not used." in errors
    assert "the GPU worker is gone" not in errors


def test_a_session_that_is_closed_meanwhile_is_lost_at_once(client: Client) -> None:
    with NetworkProxy(f"127.0.0.1:{client.worker.port}") as proxy:
        process = client.start(ASKS_FOR_EVER, through(client, proxy))
        assert first_line(process) == "ok"
        proxy.stall()
        SessionFile(client.folder / "session").write("closed", session=client.worker.session)
        closed = time.monotonic()
        proxy.cut()
        assert first_line(process) == "lost"
        assert time.monotonic() - closed < 30  # half of the time for which it is tried again
        process.communicate(timeout=60)


def test_a_network_that_does_not_come_back_is_given_up(client: Client) -> None:
    with NetworkProxy(f"127.0.0.1:{client.worker.port}") as proxy:
        process = client.start(ASKS_FOR_EVER, through(client, proxy), GPUPOOL_RECONNECT_SECONDS="1")
        assert first_line(process) == "ok"
        proxy.stall()
        proxy.cut()
        assert first_line(process) == "lost"
        _, errors = process.communicate(timeout=60)
        assert "could not be reached again" in errors


def test_another_process_still_gets_a_fresh_session(client: Client) -> None:
    """What the first one left behind is not gone on with, and it is told so when it comes back."""
    with NetworkProxy(f"127.0.0.1:{client.worker.port}") as proxy:
        first = client.start(ASKS_FOR_EVER, through(client, proxy))
        assert first_line(first) == "ok"
        first.send_signal(signal.SIGSTOP)
        proxy.cut()
        assert client.run(ASKS, GPUPOOL_TRANSPORT="tcp")
        first.send_signal(signal.SIGCONT)
        assert first_line(first) == "lost"
        _, errors = first.communicate(timeout=60)
        assert "does not know this process's session any more" in errors


def test_a_parked_session_is_not_lost_while_there_is_no_network_and_is_followed_to_another_address(
    client: Client,
) -> None:
    session = SessionFile(client.folder / "session")

    def attached(proxy: NetworkProxy, epoch: int) -> None:
        answer = client.worker.ask(f"lease epoch={epoch} deadline_ns={boottime_ns() + 600 * 10**9}")
        assert answer.startswith("ok"), answer
        session.write(
            "attached",
            session=client.worker.session,
            epoch=epoch,
            address=through(client, proxy),
            token=client.worker.token,
            software=True,
        )

    target = f"127.0.0.1:{client.worker.port}"
    with NetworkProxy(target) as here, NetworkProxy(target) as there:
        process = client.start(PARKED, through(client, here), GPUPOOL_RECONNECT_SECONDS="1")
        assert process.stdin is not None
        assert first_line(process) == "first"
        epoch = client.worker.epoch
        for proxy in (there, here):
            client.worker.ask(f"revoke epoch={epoch}")
            session.write("parked", session=client.worker.session)
            other = here if proxy is there else there
            other.stall()
            other.cut()
            time.sleep(2)  # more than it is tried again
            epoch += 1
            attached(proxy, epoch)
            process.stdin.write("\n")
            process.stdin.flush()
            assert first_line(process) == "same"
            other.resume()
        # A connection that stands is left for another address.
        client.worker.ask(f"revoke epoch={epoch}")
        attached(there, epoch + 1)
        process.stdin.write("\n")
        process.stdin.flush()
        assert first_line(process) == "same"
        _, errors = finished(process)
        assert f"connected again by tcp 127.0.0.1:{there.port}" in errors.splitlines()[-1]
