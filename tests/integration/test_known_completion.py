"""What the client knows about completion without asking: never more than is true, with the effects of having waited."""

from __future__ import annotations

import textwrap

import pytest

from benchmarks.lone_session import LoneSession
from tests.integration.test_wire_lanes import pytestmark, run, session, transport

__all__ = ["pytestmark", "session", "transport"]

MORE = r"""
NOT_READY = cu.CUresult.CUDA_ERROR_NOT_READY
word = check(cu.cuMemAlloc(1 << 16))
kept = []

def host(function):
    kept.append(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function))
    return cu.CUhostFn(ctypes.cast(kept[-1], ctypes.c_void_p).value)

def kernel_node(graph, function, argument):
    params = cu.CUDA_KERNEL_NODE_PARAMS()
    params.func = function
    params.gridDimX = params.gridDimY = params.gridDimZ = 1
    params.blockDimX = params.blockDimY = params.blockDimZ = 1
    params.kernelParams = ((int(argument),), (ctypes.c_uint64,))
    return check(cu.cuGraphAddKernelNode(graph, [], 0, params))
"""


def known(session: LoneSession, body: str) -> None:
    run(session, MORE + textwrap.dedent(body))


@pytest.mark.usefixtures("transport")
def test_whatever_a_stream_is_given_is_waited_for(session: LoneSession) -> None:
    known(
        session,
        """
        stream, event = new_stream(), check(cu.cuEventCreate(0))
        graph = check(cu.cuGraphCreate(0))
        kernel_node(graph, spin_function, 10)
        runnable = check(cu.cuGraphInstantiate(graph, 0))
        source, address = pinned(1024)
        write = cu.CUstreamBatchMemOpParams()
        write.operation = cu.CUstreamBatchMemOpType.CU_STREAM_MEM_OP_WRITE_VALUE_32
        write.writeValue.operation = write.operation
        write.writeValue.address, write.writeValue.value = word, 5
        block = cu.CUDA_MEMCPY3D()
        block.srcMemoryType = block.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
        block.srcDevice, block.dstDevice = word, int(word) + 8192
        block.WidthInBytes, block.Height, block.Depth = 64, 1, 1
        managed = check(cu.cuMemAllocManaged(1 << 16, 1))
        works = {
            "launch": lambda: spin(10, stream),
            "fill": lambda: cu.cuMemsetD32Async(word, 1, 4, stream),
            "rows": lambda: cu.cuMemsetD2D8Async(word, 64, 1, 16, 4, stream),
            "device copy": lambda: cu.cuMemcpyDtoDAsync(int(word) + 4096, word, 16, stream),
            "any copy": lambda: cu.cuMemcpyAsync(int(word) + 4096, word, 16, stream),
            "block": lambda: cu.cuMemcpy3DAsync(block, stream),
            "to device": lambda: cu.cuMemcpyHtoDAsync(word, address, 64, stream),
            "much to device": lambda: cu.cuMemcpyHtoDAsync(managed, address, 4096, stream),
            "to host": lambda: cu.cuMemcpyDtoHAsync(address, word, 64, stream),
            "event": lambda: cu.cuEventRecord(event, stream),
            "event with flags": lambda: cu.cuEventRecordWithFlags(event, stream, 0),
            "wait for event": lambda: cu.cuStreamWaitEvent(stream, event, 0),
            "write": lambda: cu.cuStreamWriteValue32(stream, word, 5, 0),
            "wait": lambda: cu.cuStreamWaitValue32(stream, word, 5, 0),
            "batch": lambda: cu.cuStreamBatchMemOp(stream, 1, [write], 0),
            "upload": lambda: cu.cuGraphUpload(runnable, stream),
            "graph": lambda: cu.cuGraphLaunch(runnable, stream),
            "host function": lambda: cu.cuLaunchHostFunc(stream, host(lambda data: None), 0),
        }
        for name, work in works.items():
            check(cu.cuStreamSynchronize(stream))
            before = asks()
            check(cu.cuStreamSynchronize(stream))
            assert asks() == before, (name, "what is known was asked for")
            answer = work()
            assert answer is None or answer[0] == 0, (name, answer)
            before = asks()
            check(cu.cuStreamSynchronize(stream))
            assert asks() == before + 1, name
        check(cu.cuStreamSynchronize(0))
        for work in (lambda: cu.cuMemsetD8(word, 1, 4), lambda: cu.cuMemcpyDtoD(int(word) + 64, word, 4)):
            work()
            before = asks()
            check(cu.cuStreamSynchronize(0))
            assert asks() == before + 1
        print("ok")
        """,
    )


def test_a_stream_is_not_complete_before_its_host_function_has_returned(session: LoneSession) -> None:
    known(
        session,
        """
        stream, event = new_stream(), check(cu.cuEventCreate(0))
        started, let_go, ended = threading.Event(), threading.Event(), []
        def slow(data):
            started.set()
            assert let_go.wait(30)
            ended.append(cu.cuEventQuery(event)[0])
            ended.append(cu.cuEventSynchronize(event)[0])
            ended.append(cu.cuStreamQuery(stream)[0])
        check(cu.cuStreamSynchronize(stream))
        check(cu.cuLaunchHostFunc(stream, host(slow), 0))
        check(cu.cuEventRecord(event, stream))
        assert started.wait(30)
        got, address = pinned(16)
        check(cu.cuMemcpyDtoHAsync(address, word, 64, stream))  # is not held up by it
        end = time.perf_counter() + 0.2
        while time.perf_counter() < end:
            assert cu.cuEventQuery(event)[0] == NOT_READY and cu.cuStreamQuery(stream)[0] == NOT_READY
        threading.Timer(0.2, let_go.set).start()
        check(cu.cuEventSynchronize(event))
        assert ended == [cu.CUresult.CUDA_ERROR_NOT_PERMITTED] * 3, ended
        until_done(lambda: cu.cuStreamQuery(stream))
        print("ok")
        """,
    )


@pytest.mark.usefixtures("transport")
def test_asking_has_the_effects_of_waiting_on_memory_that_both_sides_use(session: LoneSession) -> None:
    known(
        session,
        """
        steps = steps_for(0.1)
        stream, event = new_stream(), check(cu.cuEventCreate(0))
        own = np.ones(5000, np.float32)
        check(cu.cuMemHostRegister(own.ctypes.data, own.nbytes, cu.CU_MEMHOSTREGISTER_DEVICEMAP))
        there = int(check(cu.cuMemHostGetDevicePointer(own.ctypes.data, 0)))
        managed = int(check(cu.cuMemAllocManaged(own.nbytes, 1)))
        shared = np.frombuffer((ctypes.c_byte * own.nbytes).from_address(managed), dtype=np.float32)
        shared[:] = 1
        waits = [
            lambda: until_done(lambda: cu.cuStreamQuery(stream)),
            lambda: until_done(lambda: cu.cuEventQuery(event)),
            lambda: check(cu.cuEventSynchronize(event)),
            lambda: check(cu.cuStreamSynchronize(stream)),
        ]
        for turn, wait in enumerate(waits, 1):
            scale(there, 3.0, own.size, stream)
            scale(managed, 3.0, own.size, stream)
            spin(steps, stream)
            check(cu.cuEventRecord(event, stream))
            wait()
            assert (own == 3.0**turn).all() and (shared == 3.0**turn).all(), (turn, own, shared)
        # What a copy brought from the device is what the next kernel finds in the mirror.
        memory = check(cu.cuMemAlloc(own.nbytes))
        check(cu.cuMemsetD32Async(memory, 0x40000000, own.size, stream))  # 2.0
        spin(steps, stream)
        check(cu.cuMemcpyDtoHAsync(own.ctypes.data, memory, own.nbytes, stream))
        scale(there, 5.0, own.size, stream)
        check(cu.cuStreamSynchronize(stream))
        assert (own == 10).all(), own
        # The same into memory that is the device's and the host's at once.
        check(cu.cuMemcpyDtoHAsync(managed, memory, own.nbytes, stream))
        scale(managed, 5.0, own.size, stream)
        until_done(lambda: cu.cuStreamQuery(stream))
        assert (shared == 10).all(), shared
        check(cu.cuMemHostUnregister(own.ctypes.data))
        print("ok")
        """,
    )


@pytest.mark.usefixtures("transport")
def test_what_graphs_and_captures_record_is_not_taken_for_complete(session: LoneSession) -> None:
    known(
        session,
        """
        gate, stream, event = Gate(), new_stream(), check(cu.cuEventCreate(0))
        check(cu.cuEventRecord(event, stream))
        check(cu.cuStreamSynchronize(stream))
        assert cu.cuEventQuery(event)[0] == 0
        graph = check(cu.cuGraphCreate(0))
        held = kernel_node(graph, held_function, gate.flag)
        check(cu.cuGraphAddEventRecordNode(graph, [held], 1, event))
        runnable = check(cu.cuGraphInstantiate(graph, 0))
        check(cu.cuStreamSynchronize(stream))
        check(cu.cuGraphLaunch(runnable, stream))
        assert cu.cuEventQuery(event)[0] == NOT_READY
        gate.open_later()
        check(cu.cuEventSynchronize(event))
        assert gate.is_open
        check(cu.cuStreamSynchronize(stream))

        # Waiting for a stream that is being captured is an error, however much is known about it.
        unsupported = cu.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
        for wrong in (cu.cuStreamSynchronize, cu.cuStreamQuery):
            check(cu.cuStreamSynchronize(stream))
            check(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
            assert wrong(stream)[0] == unsupported, wrong
            cu.cuStreamEndCapture(stream)  # whether it is still a good one is the driver's matter
        until_done(lambda: cu.cuStreamQuery(stream))
        print("ok")
        """,
    )


@pytest.mark.usefixtures("transport")
def test_what_a_wait_has_told_is_not_asked_for_again(session: LoneSession) -> None:
    """Of any stream, the legacy stream among them: what PyTorch and numba use when nobody chooses another."""
    known(
        session,
        """
        for stream in (0, 1, new_stream()):
            event = check(cu.cuEventCreate(0))
            waits = {
                "stream": lambda: cu.cuStreamSynchronize(stream),
                "event": lambda: cu.cuEventSynchronize(event),
                "context": lambda: cu.cuCtxSynchronize(),
            }
            for name, wait in waits.items():
                check(cu.cuMemsetD32Async(word, 1, 4, stream))
                check(cu.cuEventRecord(event, stream))
                check(wait())
                before = asks()
                for turn in range(3):
                    assert cu.cuEventQuery(event)[0] == 0 and cu.cuStreamQuery(stream)[0] == 0, (name, stream)
                    check(cu.cuEventSynchronize(event))
                    check(cu.cuStreamSynchronize(stream))
                assert asks() == before, (name, stream)
        print("ok")
        """,
    )


def test_copies_that_the_program_waits_for_are_counted_by_size(session: LoneSession) -> None:
    known(
        session,
        """
        text = ctypes.create_string_buffer(1 << 16)
        def copies():
            runtime.gpupool_counters(text, len(text), 0)
            return json.loads(text.value)["copies_to_host"]
        into, address = pinned(1 << 20)
        memory = check(cu.cuMemAlloc(into.nbytes))
        stream, other, event = new_stream(), new_stream(), check(cu.cuEventCreate(0))
        def copy(*sizes):
            gate = Gate()  # or they may have come before the program waits
            gate.hold(stream)
            for size in sizes:
                check(cu.cuMemcpyDtoHAsync(address, memory, size, stream))
            check(cu.cuEventRecord(event, stream))
            gate.open_later()
        for turn, wait in enumerate((lambda: cu.cuStreamSynchronize(stream), lambda: cu.cuEventSynchronize(event),
                                     lambda: cu.cuCtxSynchronize()), 1):
            copy(8, into.nbytes)
            check(wait())
            assert copies() == [turn, 0, 0, turn], copies()
        copy(8)
        until_done(lambda: cu.cuStreamQuery(stream))  # polled for, not waited for
        check(cu.cuStreamSynchronize(stream))
        check(cu.cuMemsetD32Async(word, 1, 4, other))
        check(cu.cuStreamSynchronize(other))
        assert copies() == [3, 0, 0, 3], copies()
        print("ok")
        """,
    )


def test_a_capture_ends_with_its_stream(session: LoneSession) -> None:
    known(
        session,
        """
        stream, event = new_stream(), check(cu.cuEventCreate(0))
        for mode in (cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED,
                     cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL):
            captured = new_stream()
            check(cu.cuStreamBeginCapture(captured, mode))
            check(cu.cuMemsetD32Async(word, 1, 4, captured))
            check(cu.cuStreamDestroy(captured))
            check(cu.cuEventRecord(event, stream))
            check(cu.cuStreamSynchronize(stream))
            before = asks()
            for turn in range(3):
                assert cu.cuEventQuery(event)[0] == 0
            assert asks() == before, mode
        print("ok")
        """,
    )
