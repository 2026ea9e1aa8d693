"""A program with known bytes on its device, and what a node agent says to its worker: for tests of parked memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.worker_process import WorkerProcess, boottime_ns
from tests.support.runtime_share import PRELUDE, Share

PATTERNS = r"""
def pattern(seed, size):
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)

sizes = [1, 5000, 1 << 20, (24 << 20) + 12345]
start()
blocks = [(upload(pattern(n, size)), n, size) for n, size in enumerate(sizes)]

def intact():
    return all((download(at, np.empty(size, np.uint8)) == pattern(n, size)).all() for at, n, size in blocks)

def say(what):
    print(what, flush=True)
    input()

def say_and_come_back(what):
    # As a notebook's kernel does between two cells that have a share.
    runtime.gpupool_drain(1000)
    say(what)
    runtime.gpupool_detach()
    assert runtime.gpupool_attach() == 0, message()

ADD = b'''.version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 calls = 7;
.visible .entry add(.param .u64 to, .param .u32 value)
{ .reg .b32 %r<6>; .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [to]; ld.param.u32 %r1, [value]; mov.u32 %r2, %tid.x; mul.wide.u32 %rd2, %r2, 4;
  add.s64 %rd3, %rd1, %rd2; ld.global.u32 %r3, [%rd3]; add.u32 %r4, %r3, %r1; st.global.u32 [%rd3], %r4;
  mov.u64 %rd4, calls; atom.global.add.u32 %r5, [%rd4], 1; ret; }'''

WAIT = b'''.version 7.0
.target sm_75
.address_size 64
.visible .entry wait_for(.param .u64 flag)
{ .reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %rd<2>; ld.param.u64 %rd1, [flag];
AGAIN: nanosleep.u32 1000000; ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra AGAIN; ret; }'''
"""


class Program:
    """A client that says where it is and waits for a line before it goes on."""

    def __init__(self, share: Share, text: str, **environment: str) -> None:
        self.process = share.start(text, PRELUDE + PATTERNS, **environment)

    def says(self, what: str) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if line != what:
            self.process.kill()
            out, errors = self.process.communicate()
            pytest.fail(f"said {line!r} instead of {what!r}: {out} {errors}")

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def ends_well(self) -> None:
        out, errors = self.process.communicate("\n", timeout=60)
        assert out == "ok\n", out + errors


def detach(share: Share) -> None:
    assert share.worker.ask(f"revoke epoch={share.worker.epoch}", 30).startswith("ok")
    share.write(state="parked", generation=str(share.worker.epoch * 2))


def park(share: Share) -> int:
    answer = share.worker.ask(f"park epoch={share.worker.epoch}", 30)
    assert answer.startswith(f"ok epoch={share.worker.epoch} bytes="), answer
    assert share.worker.stats()["place"] == "host"
    return int(answer.split("bytes=")[1])


def attach(share: Share, *more: str) -> str:
    """Asks for the next lease; the session file says so when it is granted."""
    epoch = share.worker.epoch + 1
    answer = share.worker.ask(" ".join((f"lease epoch={epoch} deadline_ns={in_seconds(600)}", *more)), 30)
    if answer.startswith("ok"):
        share.worker.epoch = epoch
        share.write(state="attached", generation=str(epoch * 2 + 1), epoch=str(epoch))
    return answer


def in_seconds(seconds: float) -> int:
    return boottime_ns() + int(seconds * 1e9)


def mapped_device_memory(worker: WorkerProcess) -> int:
    """Bytes of device memory that are mapped into the worker: what the software GPU's device holds."""
    assert worker.process is not None
    total = 0
    for line in Path(f"/proc/{worker.process.pid}/maps").read_text().splitlines():
        if "memfd:softgpu-" in line and "event" not in line:
            begin, end = line.split()[0].split("-")
            total += int(end, 16) - int(begin, 16)
    return total
