"""One process's shares on several nodes, without pool or node agents: real workers with the software GPU, and the session
file that names them all, written here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpupool.client.worker_address import WorkerAddress

from benchmarks.network import NetworkProxy
from benchmarks.worker_process import WorkerProcess, boottime_ns, probe, software_driver
from tests.support.runtime_share import SHARE_MIB, SOFTWARE, Share

#: A second device for programs that begin with runtime_share.PRELUDE, and a kernel.
TWO_DEVICES = '''
PTX = b"""
.version 8.0
.target sm_75
.address_size 64
.visible .global .u32 table[4];
.visible .entry add(.param .u64 words, .param .u32 step, .param .u32 count)
{
    .reg .pred %p<2>; .reg .b32 %r<7>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [words]; ld.param.u32 %r2, [step]; ld.param.u32 %r6, [count];
    mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;
    mad.lo.u32 %r3, %r3, %r4, %r5;
    setp.ge.u32 %p1, %r3, %r6;
    @%p1 ret;
    mul.wide.u32 %rd2, %r3, 4;
    add.u64 %rd3, %rd1, %rd2;
    ld.global.u32 %r1, [%rd3];
    add.u32 %r1, %r1, %r2;
    st.global.u32 [%rd3], %r1;
    ret;
}
\\0"""
Error = cu.CUresult
check(cu.cuInit(0))
contexts = [check(cu.cuDevicePrimaryCtxRetain(device)) for device in range(check(cu.cuDeviceGetCount()))]

def use(device):
    check(cu.cuCtxSetCurrent(contexts[device]))

def launch(function, words, step, count, stream=0):
    arguments = ((int(words), step, count), (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32))
    check(cu.cuLaunchKernel(function, (count + 255) // 256, 1, 1, 256, 1, 1, 0, stream, arguments, 0))
'''


@dataclass
class SeveralShares(Share):
    """What runtime_share.Share is, with the further workers."""

    workers: list[WorkerProcess] = field(default_factory=list)
    #: Between the program and a worker, by its number.
    wires: dict[int, NetworkProxy] = field(default_factory=dict)

    def attach(self, epoch: int) -> None:
        """All leases anew, under this epoch plus the worker's number."""
        for number, worker in enumerate(self.workers):
            shares = ",".join(f"{n}:{milli}:{mib}" for n, (_, milli, mib) in enumerate(worker.devices))
            deadline = boottime_ns() + 600 * 10**9
            answer = worker.ask(f"lease epoch={epoch + number} deadline_ns={deadline} share={shares}")
            assert answer.startswith("ok"), answer
            worker.epoch = epoch + number
        self.write_attached()

    def detach(self, message: str) -> None:
        for worker in self.workers:
            assert worker.ask(f"revoke epoch={worker.epoch}").startswith("ok")
        self.write(state="parked", generation=str(int(self.fields["generation"]) + 1), message=message)

    def write_attached(self) -> None:
        fields = {"state": "attached", "generation": str(int(self.fields.get("generation", "0")) + 1)}
        for number, worker in enumerate(self.workers):
            end = f".{number}" if number else ""
            wire = self.wires.get(number)
            fields |= {
                f"session{end}": worker.session,
                f"epoch{end}": str(worker.epoch),
                f"address{end}": str(WorkerAddress("127.0.0.1", wire.port)) if wire else worker.address,
                f"token{end}": worker.token,
            }
        fields["devices"] = ",".join(str(len(worker.devices)) for worker in self.workers)
        self.write(**fields)


@contextlib.contextmanager
def several_shares(
    folder: Path,
    devices: Sequence[int] = (1, 1),
    cut: Sequence[int] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[SeveralShares]:
    """A worker with so many devices on each of several nodes; a proxy before those in `cut`."""
    driver = software_driver()
    variables = SOFTWARE | {"GPUPOOL_SOFTGPU_DEVICES": str(max(devices))} | dict(environment or {})
    probed = probe(driver, variables)[1]
    with contextlib.ExitStack() as stack:
        workers = []
        for number, count in enumerate(devices):
            place = folder / f"w{number}"
            place.mkdir()
            lent = [(device, 500, SHARE_MIB) for device in probed[:count]]
            worker = WorkerProcess(place, driver, lent, environment=variables, epoch=1 + number)
            workers.append(stack.enter_context(worker))
        made = SeveralShares(workers[0], folder / "session", folder / "client.log", workers=workers)
        for number in cut:
            target = f"127.0.0.1:{workers[number].port}"
            made.wires[number] = stack.enter_context(NetworkProxy(target))
        made.fields |= {"version": "1", "message": "", "software": "1", "log": str(made.log)}
        made.write_attached()
        yield made
