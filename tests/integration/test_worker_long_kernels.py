"""A kernel that runs long: it is counted and named while it runs, and it computes nothing once its lease has ended.

A real client process and a real worker with the software GPU, whose kernels are interpreted or compiled.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.lone_session import null_driver
from tests.support.effort import SOME, effort
from tests.support.moving_session import (
    ARENA,
    CONTEXT,
    MODULE,
    SCALE,
    STREAM,
    Start,
    connect,
    start,
)
from tests.support.parked_program import Program, attach, detach, in_seconds
from tests.support.runtime_share import Share, share_of_a_worker
from tests.support.stack import wait_until
from tests.support.wire_client import NOT_ATTACHED, OK

__all__ = ["start"]  # the fixture

#: How long work may go on after its lease has ended, seconds (src/worker/lease/lease_end.h).
GRACE = 4.0
#: A hang, not a measure of speed.
PATIENCE = 60.0

SPIN = b""".version 7.0
.target sm_75
.address_size 64
.visible .entry spin(.param .u64 flag)
{ .reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %rd<2>; ld.param.u64 %rd1, [flag];
AGAIN: ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra AGAIN; ret; }"""

ENDLESS = """
module = check(cu.cuModuleLoadData(WAIT))
wait_for = check(cu.cuModuleGetFunction(module, b"wait_for"))
flag = upload(np.zeros(1, np.uint32))
stream, other = check(cu.cuStreamCreate(1)), check(cu.cuStreamCreate(1))
def launch(blocks=4):
    check(cu.cuLaunchKernel(wait_for, blocks, 1, 1, 32, 1, 1, 0, stream, ((int(flag),), (ctypes.c_void_p,)), 0))
def finish():
    check(cu.cuMemsetD32Async(flag, 1, 1, other))
    check(cu.cuStreamSynchronize(stream))
def on_the_way():
    assert cu.cuStreamQuery(stream)[0] == cu.CUresult.CUDA_ERROR_NOT_READY
"""


@pytest.fixture(params=["off", "always"], ids=["interpreted", "compiled"])
def share(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Share]:
    yield from share_of_a_worker(
        tmp_path, GPUPOOL_SOFTGPU_JIT=request.param, GPUPOOL_SOFTGPU_JIT_CACHE=str(tmp_path / "cache")
    )


@pytest.fixture
def one_share(tmp_path: Path) -> Iterator[Share]:
    yield from share_of_a_worker(tmp_path)


def wait_for(share: Share, **fields: str) -> dict[str, str]:
    """The first figures of the worker that say so."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        stats = share.worker.stats()
        if all(stats.get(key) == value for key, value in fields.items()):
            return stats
        time.sleep(0.02)
    pytest.fail(f"the worker never said {fields}: {stats}")


def assert_computes(share: Share) -> None:
    assert share.worker.process is not None
    pid = share.worker.process.pid
    before = effort(pid)
    wait_until(lambda: effort(pid) - before > SOME, 30, "the kernel to compute")


def assert_nothing_computes(share: Share) -> None:
    assert share.worker.process is not None
    before = effort(share.worker.process.pid)
    time.sleep(1.0)
    assert effort(share.worker.process.pid) - before <= SOME


def test_device_time_grows_while_a_kernel_runs(share: Share) -> None:
    program = Program(share, ENDLESS + 'launch(); say("up"); finish(); print("ok")')
    program.says("up")
    wait_for(share, work="running", kernel="wait_for")
    earliest = time.monotonic()
    first = share.worker.stats()
    latest = time.monotonic()
    time.sleep(1.5)
    until_earliest = time.monotonic()
    second = share.worker.stats()
    until_latest = time.monotonic()
    counted = (int(second["device_ns"]) - int(first["device_ns"])) / 1e9
    assert (until_earliest - latest) * 0.98 <= counted <= (until_latest - earliest) * 1.02
    # The first look may be within a millisecond of the kernel's beginning: a worker that compiles answers after that.
    assert int(second["work_ms"]) - int(first["work_ms"]) >= (until_earliest - latest) * 980
    assert (second["in_flight"], second["failed"]) == ("1", "0")
    program.ends_well()


def test_a_kernel_is_stopped_when_its_lease_has_ended_and_goes_on_under_the_next(share: Share) -> None:
    program = Program(
        share,
        ENDLESS
        + """
launch()
say("up")
runtime.gpupool_detach()
assert runtime.gpupool_attach() == 0, message()
on_the_way()
finish()
assert intact()
print("ok")
""",
    )
    program.says("up")
    wait_for(share, work="running")
    assert_computes(share)
    began = time.monotonic()
    detach(share)  # answered when nothing computes any more
    assert time.monotonic() - began >= GRACE
    stats = wait_for(share, work="stopped", kernel="wait_for", state="parked", park="working")
    charged = int(stats["device_ns"])
    assert charged >= GRACE * 1e9
    assert_nothing_computes(share)
    assert int(share.worker.stats()["device_ns"]) == charged
    assert attach(share).startswith("ok")
    wait_for(share, work="running")
    program.ends_well()
    assert int(share.worker.stats()["device_ns"]) > charged


def test_a_lease_that_ends_is_draining_until_the_grace_is_over(one_share: Share) -> None:
    share = one_share
    program = Program(share, ENDLESS + 'launch(); say("up"); print("ok")')
    program.says("up")
    wait_for(share, work="running")
    share.worker.send(f"revoke epoch={share.worker.epoch}")
    while " work=draining kernel=wait_for " not in share.worker.wait_for("stats ", timeout=PATIENCE):
        pass
    assert share.worker.wait_for("ok ", timeout=PATIENCE) == f"ok epoch={share.worker.epoch}"
    assert wait_for(share, work="stopped")["kernel"] == "wait_for"
    program.process.kill()


def test_a_later_lease_revoked_while_one_ends_is_barred_at_once(one_share: Share) -> None:
    share = one_share
    program = Program(share, ENDLESS + 'launch(); say("up"); print("ok")')
    program.says("up")
    wait_for(share, work="running")
    epoch = share.worker.epoch
    share.worker.send(f"revoke epoch={epoch}")
    share.worker.send(f"revoke epoch={epoch + 1}")
    # It was on its way when it was revoked.
    share.worker.send(f"lease epoch={epoch + 1} deadline_ns={in_seconds(600)}")
    assert share.worker.wait_for("refused ", PATIENCE) == f"refused epoch={epoch + 1} reason=past-epoch"
    assert share.worker.wait_for("ok ", PATIENCE) == f"ok epoch={epoch}"
    assert share.worker.wait_for("ok ", PATIENCE) == f"ok epoch={epoch + 1}"
    wait_for(share, work="stopped")
    share.worker.send(f"lease epoch={epoch + 1} deadline_ns={in_seconds(600)}")
    assert share.worker.wait_for("refused ", PATIENCE) == f"refused epoch={epoch + 1} reason=past-epoch"
    program.process.kill()


def test_work_goes_on_under_a_lease_that_comes_within_the_grace(one_share: Share) -> None:
    share = one_share
    program = Program(share, ENDLESS + 'launch(); say("up"); print("ok")')
    program.says("up")
    wait_for(share, work="running")
    epoch = share.worker.epoch
    share.worker.send(f"revoke epoch={epoch}")
    share.worker.send(f"lease epoch={epoch + 1} deadline_ns={in_seconds(600)}")
    assert share.worker.wait_for("refused ", PATIENCE) == f"refused epoch={epoch} reason=past-epoch"
    assert share.worker.wait_for("ok ", PATIENCE) == f"ok epoch={epoch + 1}"
    time.sleep(1.5 * GRACE)
    assert wait_for(share, work="running")["epoch"] == str(epoch + 1)
    program.process.kill()


def test_work_that_ends_in_time_is_not_stopped(one_share: Share) -> None:
    share = one_share
    program = Program(share, ENDLESS + 'launch(); say("up"); finish(); print("ok")')
    program.says("up")
    wait_for(share, work="running")
    share.worker.send(f"revoke epoch={share.worker.epoch}")
    program.ends_well()
    assert share.worker.wait_for("ok ", timeout=PATIENCE) == f"ok epoch={share.worker.epoch}"
    assert share.worker.stats()["work"] == "none"


NEVER_RETURNS = """
import threading
returns, third = threading.Event(), check(cu.cuStreamCreate(1))
function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: returns.wait())
check(cu.cuLaunchHostFunc(third, cu.CUhostFn(ctypes.cast(function, ctypes.c_void_p).value), 0))
"""


def test_a_host_function_that_never_returns_hides_no_kernel(one_share: Share) -> None:
    share = one_share
    program = Program(share, ENDLESS + NEVER_RETURNS + 'launch(); say("up"); print("ok")')
    program.says("up")
    wait_for(share, work="running", kernel="wait_for")
    detach(share)
    wait_for(share, work="stopped", kernel="wait_for", state="parked")
    assert_nothing_computes(share)
    program.process.kill()


def test_a_host_function_that_runs_keeps_no_lease_and_what_comes_after_it_is_stopped(
    one_share: Share,
) -> None:
    share = one_share
    program = Program(
        share,
        ENDLESS
        + NEVER_RETURNS
        + """
stream = third
launch()
say("up")
returns.set()
say("returned")
print("ok")
""",
    )
    program.says("up")
    assert wait_for(share, in_flight="1")["work"] == "none"
    detach(share)  # answered though the function runs
    assert wait_for(share, state="parked")["work"] == "none"
    program.go_on()
    program.says("returned")
    wait_for(share, work="stopped", kernel="wait_for")
    assert_nothing_computes(share)
    program.process.kill()


@pytest.mark.parametrize(
    "call", ["cuStreamSynchronize(stream)", "cuCtxSynchronize()", "cuMemcpyDtoH(a, flag, 4)"]
)
def test_calls_that_wait_behind_a_stopped_kernel_are_refused(one_share: Share, call: str) -> None:
    share = one_share
    program = Program(
        share,
        ENDLESS
        + f"""
space = np.zeros(1, np.uint32)
a = space.ctypes.data
if "DtoH" in {call!r}: stream = 0
launch()
print("up", flush=True)
answer = cu.{call}
assert answer[0] == cu.CUresult.CUDA_ERROR_DEVICE_UNAVAILABLE, answer
assert "gone" in message(), message()
say("refused")
runtime.gpupool_detach()
assert runtime.gpupool_attach() == 0, message()
finish()
assert intact()
print("ok")
""",
    )
    program.says("up")
    wait_for(share, work="running")
    share.worker.send(f"revoke epoch={share.worker.epoch}")
    share.write(state="parked", generation="2", message="gone")
    program.says("refused")
    assert share.worker.wait_for("ok ", timeout=PATIENCE) == f"ok epoch={share.worker.epoch}"
    assert attach(share).startswith("ok")
    program.ends_well()


def test_a_client_that_does_not_read_does_not_hold_up_the_end_of_its_lease(start: Start) -> None:
    worker = start()
    client = connect(worker)
    size = 16 << 20  # more than a connection's buffers hold
    client.post("SelectContext", context=CONTEXT)
    client.post("MapMemory", device=0, address=ARENA, size=size)
    client.post("cuStreamCreate", phStream=STREAM, Flags=1)
    assert client.call("LoadImage", image=MODULE, payload=SPIN)["result"] == 0
    client.post("BindFunction", function=SCALE, image=MODULE, ordinal=0)
    client.post(
        "Launch", function=SCALE, grid_x=1, grid_y=1, grid_z=1, block_x=1, block_y=1, block_z=1,
        stream=STREAM, parameters=struct.pack("<Q", ARENA),
    )  # fmt: skip
    assert client.deferred() == 0
    wait_until(lambda: worker.stats()["work"] == "running", PATIENCE, "the kernel to run", interval=0.02)
    client.ask_without_reading("cuStreamSynchronize", hStream=STREAM)
    client.ask_without_reading("CopyToHost", address=ARENA, size=size, stream=0)
    assert worker.ask("revoke epoch=1", timeout=20) == "ok epoch=1"
    assert worker.stats()["work"] == "stopped"
    status, payload = client.read_answer()
    assert (status, len(payload)) == (OK, size)
    assert client.read_answer() == (NOT_ATTACHED, b"")


def test_a_worker_that_fences_itself_computes_no_longer_than_the_grace(tmp_path: Path) -> None:
    for share in share_of_a_worker(tmp_path, lease_seconds=6.0):
        program = Program(share, ENDLESS + 'launch(); say("up"); print("ok")')
        program.says("up")
        assert share.worker.wait_for("fenced ", timeout=PATIENCE)
        wait_for(share, state="fenced", work="stopped")
        assert_nothing_computes(share)
        share.worker.epoch += 1
        deadline = in_seconds(600)
        assert share.worker.ask(f"lease epoch={share.worker.epoch} deadline_ns={deadline}").startswith("ok")
        wait_for(share, work="running")
        program.process.kill()


def test_a_graph_and_several_streams_stop_too(one_share: Share) -> None:
    share = one_share
    program = Program(
        share,
        ENDLESS
        + """
check(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
launch(1)
graph = check(cu.cuGraphInstantiate(check(cu.cuStreamEndCapture(stream)), 0))
check(cu.cuGraphLaunch(graph, stream))
for _ in range(3):
    stream = check(cu.cuStreamCreate(1))
    launch(1)
say("up")
runtime.gpupool_detach()
assert runtime.gpupool_attach() == 0, message()
check(cu.cuMemsetD32Async(flag, 1, 1, other))
check(cu.cuCtxSynchronize())
assert intact()
print("ok")
""",
    )
    program.says("up")
    wait_for(share, work="running")
    detach(share)
    wait_for(share, work="stopped")
    assert_nothing_computes(share)
    assert attach(share).startswith("ok")
    program.ends_well()


def test_an_error_of_the_device_is_told_with_the_kernel_that_made_it(one_share: Share) -> None:
    share = one_share
    program = Program(
        share,
        r"""
POKE = b'''.version 7.0
.target sm_75
.address_size 64
.visible .entry poke()
{ .reg .b64 %rd<2>; mov.u64 %rd1, 64; st.global.u64 [%rd1], %rd1; ret; }'''
module = check(cu.cuModuleLoadData(POKE))
check(cu.cuLaunchKernel(check(cu.cuModuleGetFunction(module, b"poke")), 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
assert cu.cuCtxSynchronize()[0] == cu.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
say("up")
print("ok")
""",
    )
    program.says("up")
    assert wait_for(share, failed="700")["failed_kernel"] == "poke"
    program.ends_well()


def test_where_the_driver_cannot_stop_work_the_session_ends(tmp_path: Path) -> None:
    for share in share_of_a_worker(tmp_path, driver=null_driver()):
        program = Program(
            share,
            """
stream = check(cu.cuStreamCreate(1))
flag = upload(np.zeros(1, np.uint32))
check(cu.cuStreamWaitValue32(stream, flag, 1, 1))
check(cu.cuMemsetD32Async(flag, 2, 1, stream))
say("up")
assert cu.cuStreamSynchronize(stream)[0] != 0
print("ok")
""",
        )
        program.says("up")
        wait_for(share, work="running")  # what was posted may still be on its way
        share.worker.send(f"revoke epoch={share.worker.epoch}")
        assert share.worker.process is not None
        assert share.worker.process.wait(PATIENCE) == 11
        assert "cannot stop" in share.worker.log_path.read_text()
        share.write(state="closed", generation="2", message="stopped")
        program.ends_well()
