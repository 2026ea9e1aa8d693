"""A session with some of everything that moves, spoken over the wire: what a client has, and how it looks at it again."""

from __future__ import annotations

import os
import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.worker_process import WorkerProcess, probe, software_driver
from tests.support.table_client import TableClient, handle

SOFTWARE = {"GPUPOOL_SOFTGPU_DEVICES": "2", "GPUPOOL_SOFTGPU_MEMORY_MIB": "256"}
GRANULE = 2 << 20
ARENA = 0x6000_0000_0000  # where clients wish to have it

# data[i] = data[i] * factor + step, and `step` grows by one with each launch (of one warp).
PTX = b"""
.version 7.0
.target sm_75
.address_size 64
.global .align 4 .u32 step = 5;
.visible .global .align 4 .b8 untouched[64];
.visible .entry other() { ret; }
.visible .entry scale(.param .u64 data, .param .u32 factor)
{
  .reg .b32 %r<9>; .reg .b64 %rd<5>; .reg .pred %p<2>;
  ld.param.u64 %rd1, [data]; ld.param.u32 %r1, [factor];
  mov.u32 %r2, %tid.x; mul.wide.u32 %rd2, %r2, 4; add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r3, [step]; ld.global.u32 %r4, [%rd3];
  mul.lo.u32 %r5, %r4, %r1; add.u32 %r6, %r5, %r3; st.global.u32 [%rd3], %r6;
  setp.ne.u32 %p1, %r2, 0; @%p1 bra DONE;
  add.u32 %r7, %r3, 1; st.global.u32 [step], %r7;
DONE: ret;
}
"""

CONTEXT = handle("context", 0)
STREAM, OTHER_STREAM = handle("stream", 3), handle("stream", 4, 7)
EVENT = handle("event", 9)
MODULE, LIBRARY = handle("module", 1), handle("library", 2)
SCALE, SCALE_OF_LIBRARY = handle("function", 5), handle("kernel", 6)

Start = Callable[..., WorkerProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts workers that the test need not end."""
    devices = probe(software_driver(), SOFTWARE)[1]
    running: list[WorkerProcess] = []

    def start_one(device: int = 0, mib: int = 128, both: bool = False, **more: object) -> WorkerProcess:
        folder = tmp_path / f"w{len(list(tmp_path.glob('w*')))}"
        folder.mkdir()
        lent = [device, 1 - device] if both else [device]
        worker = WorkerProcess(
            folder, software_driver(), [(devices[n], 500, mib) for n in lent], environment=SOFTWARE, **more
        )  # type: ignore[arg-type]
        running.append(worker.__enter__())
        return worker

    yield start_one
    for worker in running:
        worker.__exit__(None, None, None)


def connect(worker: WorkerProcess) -> TableClient:
    client = TableClient(worker.port)
    if worker.fingerprint:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        client.socket = context.wrap_socket(client.socket)
    client.epoch = worker.epoch
    reply = client.hello(worker.token, worker.session, pid=os.getpid(), arena=ARENA)
    assert reply.status == 0
    assert struct.unpack_from("<Q", reply.body, 8)[0] == ARENA
    return client


def kernel_names(kernels: bytes) -> list[str]:
    """The names in a LoadImage reply; each description begins with its name."""
    return [name for name in ("other", "scale") if name.encode() in kernels]


class Program:
    """What a client has on its worker, and how it looks at it again."""

    data = ARENA + 8 * GRANULE
    large = ARENA + 64 * GRANULE

    def __init__(self) -> None:
        self.pattern = os.urandom(GRANULE)

    def set_up(self, client: TableClient) -> None:
        client.post("SelectContext", context=CONTEXT)
        client.post("MapMemory", device=0, address=self.data, size=GRANULE)
        client.post("MapMemory", device=0, address=self.large, size=16 * GRANULE)
        client.post("cuStreamCreateWithPriority", phStream=STREAM, flags=1, priority=-1)
        client.post("cuStreamCreate", phStream=OTHER_STREAM, Flags=0)
        client.post("cuEventCreate", phEvent=EVENT, Flags=0)
        loaded = client.call("LoadImage", image=MODULE, payload=PTX)
        assert loaded["result"] == 0
        names = kernel_names(loaded["kernels"])
        assert client.call("LoadImage", image=LIBRARY, payload=PTX)["result"] == 0
        order = sorted(names, key=lambda name: loaded["kernels"].index(name.encode()))
        client.post("BindFunction", function=SCALE, image=MODULE, ordinal=order.index("scale"))
        client.post("BindFunction", function=SCALE_OF_LIBRARY, image=LIBRARY, ordinal=order.index("scale"))
        client.post("CopyFromHost", address=self.data, stream=STREAM, payload=struct.pack("<32I", *range(32)))
        # The same two megabytes three times, and zeros around them.
        for n in (1, 5, 6):
            client.post("CopyFromHost", address=self.large + n * GRANULE, stream=0, payload=self.pattern)
        self.launch(client, SCALE, STREAM, 3)  # step: 5, then 6
        client.post("cuEventRecord", hEvent=EVENT, hStream=STREAM)
        client.call("cuStreamSynchronize", hStream=STREAM)
        self.launch(client, SCALE_OF_LIBRARY, OTHER_STREAM, 1)
        assert client.call("cuStreamSynchronize", hStream=OTHER_STREAM)["result"] == 0
        assert client.deferred() == 0

    def launch(self, client: TableClient, function: int, stream: int, factor: int) -> None:
        client.post(
            "Launch", function=function, grid_x=1, grid_y=1, grid_z=1, block_x=32, block_y=1, block_z=1,
            stream=stream, parameters=struct.pack("<QI", self.data, factor),
        )  # fmt: skip

    def read(self, client: TableClient, address: int, size: int) -> bytes:
        answer = client.call("CopyToHost", address=address, size=size, stream=0)
        assert answer["result"] == 0
        return bytes(answer["payload"])

    def values(self, client: TableClient) -> list[int]:
        return list(struct.unpack("<32I", self.read(client, self.data, 128)))

    def check(self, client: TableClient) -> None:
        """Everything that set_up made is there and works; changes nothing for good but one launch."""
        before = [(n * 3 + 5) * 1 + 5 for n in range(32)]
        assert self.values(client) == before
        for n in range(16):
            expected = self.pattern if n in (1, 5, 6) else bytes(GRANULE)
            assert self.read(client, self.large + n * GRANULE, GRANULE) == expected
        assert client.call("cuEventQuery", hEvent=EVENT)["result"] == 0
        # The variable of each image has kept its value, and kernels their numbers.
        self.launch(client, SCALE, STREAM, 2)
        client.post("cuStreamWaitEvent", hStream=OTHER_STREAM, hEvent=EVENT, Flags=0)
        assert client.call("cuStreamSynchronize", hStream=STREAM)["result"] == 0
        after = [value * 2 + 6 for value in before]
        assert self.values(client) == after
        assert client.deferred() == 0


def written(worker: WorkerProcess, folder: Path) -> dict[str, str]:
    """Revokes the lease and writes the session out."""
    assert worker.ask(f"revoke epoch={worker.epoch}").startswith("ok")
    answer = worker.ask(f"export folder={folder}", timeout=30)
    assert answer.startswith("ok "), answer
    return dict(item.split("=") for item in answer.split()[1:])
