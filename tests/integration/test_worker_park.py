"""Device memory goes to the host and comes back: bytes, kernels, streams, events, modules and graphs, frees meanwhile.

A real client process, a real worker with the software GPU, and the lines of its control socket.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.worker_process import (
    ProbedDevice,
    WorkerError,
    WorkerProcess,
    boottime_ns,
    probe,
    software_driver,
)
from tests.support.parked_program import Program, attach, detach, in_seconds, mapped_device_memory, park
from tests.support.runtime_share import MIB, Share, share_of_a_worker
from tests.support.wire_client import SESSION, WireClient, hello_frame
from tests.support.worker_state import used_bytes


@pytest.fixture
def share(tmp_path: Path) -> Iterator[Share]:
    """On a node with two devices."""
    yield from share_of_a_worker(tmp_path, devices=2)


@pytest.fixture
def devices(share: Share) -> list[ProbedDevice]:
    return probe(software_driver(), share.worker.environment)[1]


def test_every_byte_comes_back_and_the_device_is_empty_meanwhile(share: Share) -> None:
    program = Program(
        share,
        """
        say("up")
        assert intact()
        print("ok")
        """,
    )
    program.says("up")
    stats = share.worker.stats()
    assert (stats["place"], stats["park"]) == ("device", "ok")
    used = used_bytes(share.worker)
    assert mapped_device_memory(share.worker) == used >= 25 * MIB
    detach(share)
    assert mapped_device_memory(share.worker) == used  # parking is lazy: nothing has moved yet
    assert park(share) == used
    assert mapped_device_memory(share.worker) == 0
    assert park(share) == used  # asked again, it is there already
    assert used_bytes(share.worker) == used  # the session still has its memory
    assert attach(share).startswith("ok")
    assert share.worker.stats()["place"] == "device"
    assert mapped_device_memory(share.worker) == used
    program.ends_well()


def test_kernels_streams_events_modules_and_graphs_work_after_the_return(share: Share) -> None:
    program = Program(
        share,
        """
        module = check(cu.cuModuleLoadData(ADD))
        add = check(cu.cuModuleGetFunction(module, b"add"))
        calls = check(cu.cuModuleGetGlobal(module, b"calls"))[0]
        numbers = upload(np.zeros(32, np.uint32))
        stream, event = check(cu.cuStreamCreate(0)), check(cu.cuEventCreate(0))
        def launch(value):
            arguments = ((int(numbers), value), (ctypes.c_void_p, ctypes.c_uint32))
            check(cu.cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, stream, arguments, 0))
        check(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
        launch(100)
        graph = check(cu.cuStreamEndCapture(stream))
        ready = check(cu.cuGraphInstantiate(graph, 0))
        launch(1)
        pool = check(cu.cuMemAllocAsync(3 << 20, stream))
        check(cu.cuMemsetD32Async(pool, 77, 3 << 18, stream))
        host = check(cu.cuMemAllocHost(4096))
        managed = check(cu.cuMemAllocManaged(1 << 20, 1))
        ctypes.memset(int(managed), 9, 1 << 20)
        check(cu.cuMemsetD8(int(managed) + 4096, 5, 4096))
        say_and_come_back("up")
        launch(10)
        check(cu.cuGraphLaunch(ready, stream))
        check(cu.cuEventRecord(event, stream))
        check(cu.cuEventSynchronize(event))
        assert (download(numbers, np.empty(32, np.uint32)) == 111).all()
        assert download(calls, np.empty(1, np.uint32))[0] == 7 + 3 * 32
        assert (download(pool, np.empty(3 << 18, np.uint32)) == 77).all()
        check(cu.cuMemFreeAsync(pool, stream))
        again = check(cu.cuModuleLoadData(ADD))
        check(cu.cuModuleUnload(module))
        seen = (ctypes.c_uint8 * (1 << 20)).from_address(int(managed))
        assert seen[4095] == 9 and seen[4096] == 5 and seen[8191] == 5 and seen[8192] == 9
        assert intact()
        print("ok")
        """,
    )
    program.says("up")
    for _ in range(2):
        detach(share)
        park(share)
        assert attach(share).startswith("ok")
    program.ends_well()


def test_memory_resumes_onto_another_device(share: Share, devices: list[ProbedDevice]) -> None:
    program = Program(
        share,
        """
        say("up")
        assert intact()
        more = upload(pattern(9, 1 << 20))
        assert (download(more, np.empty(1 << 20, np.uint8)) == pattern(9, 1 << 20)).all()
        say("there")
        assert intact()
        print("ok")
        """,
    )
    program.says("up")
    assert attach(share, f"device=0:{devices[1].uuid}").endswith("reason=resident")
    assert attach(share, f"device=0:{devices[0].uuid}").startswith("ok")  # where it is anyway
    detach(share)
    park(share)
    assert attach(share, f"device=0:{'0' * 32}").endswith("reason=resume-failed why=unknown-device")
    assert attach(share, f"device=1:{devices[1].uuid}").endswith("reason=bad-share")
    assert share.worker.stats()["place"] == "host"
    assert attach(share, f"device=0:{devices[1].uuid}").startswith("ok")
    program.go_on()
    program.says("there")
    detach(share)
    park(share)
    # Asked for what is true already, as an agent does that has missed an answer.
    assert attach(share, f"device=0:{devices[1].uuid}").startswith("ok")
    program.ends_well()


def test_what_the_client_frees_meanwhile_is_freed_when_the_memory_is_back(share: Share) -> None:
    program = Program(
        share,
        """
        stream, event = check(cu.cuStreamCreate(0)), check(cu.cuEventCreate(0))
        big = upload(pattern(5, 64 << 20))
        say("up")
        refused = cu.CUresult.CUDA_ERROR_DEVICE_UNAVAILABLE
        check(cu.cuMemFree(big))
        check(cu.cuStreamDestroy(stream))
        check(cu.cuEventDestroy(event))
        # What needs a share is refused, whatever was freed before it. Who waited for the memory would do so for ever.
        assert cu.cuMemcpyDtoH(bytearray(1), blocks[0][0], 1)[0] == refused
        assert cu.cuCtxSynchronize()[0] == refused
        say("freed")
        assert intact()
        # The addresses serve again, and the share has the room.
        again = upload(pattern(6, 64 << 20))
        assert (download(again, np.empty(64 << 20, np.uint8)) == pattern(6, 64 << 20)).all()
        say("again")
        print("ok")
        """,
    )
    program.says("up")
    used = used_bytes(share.worker)
    detach(share)
    park(share)
    program.go_on()
    program.says("freed")
    assert share.worker.stats()["place"] == "host"
    assert used_bytes(share.worker) == used
    assert attach(share).startswith("ok")
    program.go_on()
    program.says("again")
    assert used_bytes(share.worker) <= used
    program.ends_well()


def test_nothing_moves_while_a_lease_is_in_force_or_work_goes_on(share: Share) -> None:
    program = Program(
        share,
        """
        wait = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(WAIT)), b"wait_for"))
        flag = upload(np.zeros(1, np.uint32))
        first = check(cu.cuStreamCreate(1))
        second = check(cu.cuStreamCreate(1))
        check(cu.cuLaunchKernel(wait, 1, 1, 1, 1, 1, 1, 0, first, ((int(flag),), (ctypes.c_void_p,)), 0))
        download(blocks[0][0], np.empty(1, np.uint8))  # answered when the worker has launched it
        say("running")
        runtime.gpupool_detach()
        assert runtime.gpupool_attach() == 0, message()
        check(cu.cuMemsetD32Async(flag, 1, 1, second))
        check(cu.cuCtxSynchronize())
        say("finished")
        assert intact()
        print("ok")
        """,
    )
    program.says("running")
    epoch = share.worker.epoch
    assert share.worker.ask(f"park epoch={epoch}").endswith("reason=attached")
    detach(share)  # the kernel is stopped
    share.worker.send(f"park epoch={epoch}")
    assert share.worker.wait_for("refused", 30).endswith("reason=working")
    assert share.worker.stats()["place"] == "device"
    assert attach(share).startswith("ok")
    program.go_on()
    program.says("finished")
    detach(share)
    park(share)
    assert share.worker.ask(f"park epoch={epoch}").endswith("reason=past-epoch")
    assert attach(share).startswith("ok")
    program.ends_well()


def test_shared_memory_and_captures_are_obstacles_that_are_known_beforehand_and_go_away(
    tmp_path: Path,
) -> None:
    sharing = share_of_a_worker(tmp_path, user="ada")
    share = next(sharing)
    program = Program(
        share,
        """
        shared = check(cu.cuMemAlloc(2 << 20))
        handle = check(cu.cuIpcGetMemHandle(shared))
        say("shared")
        check(cu.cuMemFree(shared))
        check(cu.cuCtxSynchronize())
        stream = check(cu.cuStreamCreate(1))
        check(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        check(cu.cuMemcpyDtoH(bytearray(1), blocks[0][0], 1))
        say("capturing")
        check(cu.cuStreamEndCapture(stream))
        say("free")
        print("ok")
        """,
    )
    for place, obstacle in (("shared", "ipc"), ("capturing", "capture")):
        program.says(place)
        assert share.worker.stats()["park"] == obstacle
        detach(share)
        assert share.worker.ask(f"park epoch={share.worker.epoch}").endswith(f"reason={obstacle}")
        assert share.worker.stats()["place"] == "device"
        assert attach(share).startswith("ok")
        program.go_on()
    program.says("free")
    assert share.worker.stats()["park"] == "ok"
    program.ends_well()
    sharing.close()


def test_a_driver_that_cannot_says_so_beforehand(tmp_path: Path) -> None:
    source = tmp_path / "old.c"
    # Between the worker and the driver: a driver from before the process checkpoint.
    source.write_text(
        "int cuCheckpointProcessGetState(int pid, int* state) { (void)pid; (void)state; return 801; }\n"
    )
    library = tmp_path / "old.so"
    real = software_driver()
    linked = ["-Wl,--no-as-needed", real, f"-Wl,-rpath,{real.parent}"]
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, *linked], check=True)
    device = probe(software_driver())[1][0]
    with WorkerProcess(tmp_path, library, [(device, 500, 256)]) as worker:
        assert worker.stats()["park"] == "old-driver"
        assert worker.ask("revoke epoch=1").startswith("ok")
        assert worker.ask("park epoch=1").endswith("reason=old-driver")
        assert worker.ask(f"lease epoch=2 deadline_ns={in_seconds(60)}").startswith("ok")


def test_a_session_whose_memory_is_lost_on_its_way_to_another_worker_ends(tmp_path: Path) -> None:
    source = tmp_path / "lost.c"
    # Between the worker and the driver: one that gives the process up when memory is to come back.
    source.write_text(
        "int cuCheckpointProcessGetState(int pid, int* state) { (void)pid; *state = 3; return 0; }\n"
        "int cuCheckpointProcessRestore(int pid, void* how) { (void)pid; (void)how; return 999; }\n"
    )
    library = tmp_path / "lost.so"
    real = software_driver()
    linked = ["-Wl,--no-as-needed", real, f"-Wl,-rpath,{real.parent}"]
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, *linked], check=True)
    device = probe(software_driver())[1][0]
    with WorkerProcess(tmp_path, library, [(device, 500, 256)]) as worker:
        assert worker.ask("revoke epoch=1").startswith("ok")
        assert worker.ask("park epoch=1").startswith("ok")
        assert worker.process is not None
        with WireClient(worker.port) as other:
            other.socket.sendall(hello_frame(worker.move_key, worker.session, message=SESSION))
            assert worker.process.wait(60) == 0
        assert "memory is lost" in worker.log_path.read_text()


def test_a_lease_that_is_over_before_the_memory_is_back_can_be_had_with_another_deadline(
    share: Share,
) -> None:
    detach(share)
    park(share)
    answer = share.worker.ask(f"lease epoch=2 deadline_ns={boottime_ns() + 1}")
    assert answer == "refused epoch=2 reason=late"
    assert share.worker.stats()["place"] == "device"
    assert share.worker.ask(f"lease epoch=2 deadline_ns={in_seconds(60)}") == "ok epoch=2"


def test_a_worker_that_is_killed_while_it_parks_ends_and_the_client_is_told(share: Share) -> None:
    program = Program(
        share,
        """
        say("up")
        answer = cu.cuCtxSynchronize()[0]
        assert answer == cu.CUresult.CUDA_ERROR_DEVICE_UNAVAILABLE, answer
        print("ok")
        """,
        GPUPOOL_RECONNECT_SECONDS="1",
    )
    program.says("up")
    detach(share)
    share.worker.send(f"park epoch={share.worker.epoch}")
    assert share.worker.process is not None
    os.kill(share.worker.process.pid, signal.SIGKILL)
    share.worker.process.wait(10)
    share.write(state="closed", generation="9", message="The worker ended.")  # as the session's owner does
    program.ends_well()


def test_stop_and_stats_are_answered_while_the_memory_is_away(share: Share) -> None:
    program = Program(
        share,
        """
        say("up")
        print("ok")
        """,
    )
    program.says("up")
    detach(share)
    park(share)
    assert share.worker.stats()["state"] == "parked"
    assert share.worker.ask("stop") == "ok"
    assert share.worker.process is not None
    assert share.worker.process.wait(60) == 0
    with pytest.raises((WorkerError, OSError)):
        share.worker.stats()
    program.ends_well()
