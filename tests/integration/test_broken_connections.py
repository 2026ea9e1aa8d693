"""A connection that breaks, and a program that notices nothing but the time: every call is executed once.

A real worker with the software GPU, a proxy between it and a real program. What the programs compute depends on every
launch and every copy, so one that was lost, or executed twice, changes the digest at their end.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.bench.network import NetworkProxy
from gpupool.bench.worker_process import WorkerProcess, probe, software_driver
from gpupool.client.worker_address import WorkerAddress

from tests.integration.test_transports import SOFTWARE, Client

pytestmark = pytest.mark.serial

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

COPIES = """
import hashlib
import numpy as np
from cuda.bindings import driver as cu
def check(answer):
    assert answer[0] == 0, answer
    return answer[1] if len(answer) == 2 else answer[1:]
check(cu.cuInit(0))
check(cu.cuCtxSetCurrent(check(cu.cuDevicePrimaryCtxRetain(0))))
size = 64 << 20
memory = check(cu.cuMemAlloc(size))
there = np.random.default_rng(5).integers(0, 256, size, dtype=np.uint8)
back = np.zeros_like(there)
print("ready", flush=True)
for n in range(4):
    there[n] ^= 255
    check(cu.cuMemcpyHtoD(memory, there.ctypes.data, size))
    back[:] = 0
    check(cu.cuMemcpyDtoH(back.ctypes.data, memory, size))
    assert (there == back).all(), n
host = check(cu.cuMemAllocHost(size))
stream = check(cu.cuStreamCreate(1))
for n in range(3):
    there[n] ^= 255
    check(cu.cuMemcpyHtoDAsync(memory, there.ctypes.data, size, stream))
    check(cu.cuMemcpyDtoHAsync(host, memory, size, stream))
    while cu.cuStreamQuery(stream)[0] != 0:
        pass
    import ctypes
    assert (np.frombuffer((ctypes.c_uint8 * size).from_address(host), dtype=np.uint8) == there).all(), n
print("ok", flush=True)
"""

PRINTS = """
from numba import cuda

@cuda.jit
def say(n):
    print("line", n)

print("ready", flush=True)
for n in range(600):
    say[1, 1](n)
    if n % 5 == 0:
        cuda.synchronize()
cuda.synchronize()
print("end", flush=True)
"""


@pytest.fixture
def client(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Client]:
    """Parametrized indirectly: further options of the worker."""
    driver = software_driver()
    device = probe(driver, SOFTWARE)[1][0]
    options = getattr(request, "param", ())
    with WorkerProcess(
        tmp_path, driver, [(device, 500, 256)], environment=SOFTWARE, options=options
    ) as worker:
        yield Client(tmp_path, worker)


def through(client: Client, proxy: NetworkProxy) -> str:
    return str(WorkerAddress("127.0.0.1", proxy.port, tls=client.worker.fingerprint))


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def finished(process: subprocess.Popen[str], timeout: float = 60) -> tuple[str, str]:
    out, errors = process.communicate(timeout=timeout)
    assert process.returncode == 0, out + errors[-3000:]
    return out.strip(), errors


def uncut(client: Client, program: str, **environment: str) -> str:
    direct = str(WorkerAddress("127.0.0.1", client.worker.port, tls=client.worker.fingerprint))
    process = client.start(program, direct, **environment)
    assert first_line(process) == "ready"
    return finished(process)[0]


def cut_often(
    proxy: NetworkProxy, process: subprocess.Popen[str], seed: int, shortest: float, longest: float
) -> int:
    """Cuts at random moments until the program has ended; how often."""
    moments = random.Random(seed)
    cuts = 0
    while process.poll() is None:
        time.sleep(moments.uniform(shortest, longest))
        proxy.cut()
        cuts += 1
    return cuts


@pytest.mark.parametrize("client", [("--tls", "off"), ("--tls", "on")], indirect=True, ids=["tcp", "tls"])
def test_training_over_a_connection_that_is_cut_again_and_again(client: Client) -> None:
    expected = uncut(client, TRAINING, STEPS="150")
    with NetworkProxy(f"127.0.0.1:{client.worker.port}") as proxy:
        process = client.start(TRAINING, through(client, proxy), STEPS="150")
        assert first_line(process) == "ready"
        cuts = cut_often(proxy, process, 1, 0.02, 0.2)
        out, errors = finished(process)
        assert out == expected
        assert cuts >= 3
        assert errors.count("connected again by") >= 3
