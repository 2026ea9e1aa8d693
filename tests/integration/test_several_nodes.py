"""One process with devices on two nodes: two real workers with the software GPU, no pool.

Whatever crosses from one node to the other goes through the process, which waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.runtime_share import PRELUDE, SHARE_MIB
from tests.support.several_shares import TWO_DEVICES, SeveralShares, several_shares

TWO = PRELUDE + TWO_DEVICES + f"\nSHARE = {SHARE_MIB} << 20\n"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[SeveralShares]:
    with several_shares(tmp_path) as shares:
        yield shares


def test_a_program_computes_on_both_and_copies_between_them(nodes: SeveralShares) -> None:
    nodes.run(
        """
        assert len(contexts) == 2
        for device in range(2):
            use(device)
            assert check(cu.cuMemGetInfo())[1] == SHARE
            assert int(check(cu.cuCtxGetDevice())) == device
            assert check(cu.cuDeviceCanAccessPeer(device, 1 - device)) == 0
            assert cu.cuCtxEnablePeerAccess(contexts[1 - device], 0)[0] == Error.CUDA_ERROR_PEER_ACCESS_UNSUPPORTED
        # Each device has its own module, its stream, its memory; they work at once.
        count = 3_000_000  # more than is staged at once
        functions, streams, memory = [], [], []
        for device in range(2):
            use(device)
            functions.append(check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(PTX)), b"add")))
            streams.append(check(cu.cuStreamCreate(1)))
            memory.append(check(cu.cuMemAlloc(4 * count)))
            check(cu.cuMemsetD32(memory[device], 100 * device, count))
            check(cu.cuCtxSynchronize())
        for step in range(3):
            for device in range(2):
                use(device)
                launch(functions[device], memory[device], device + 1, count, streams[device])
        def word(device, n=0):
            out = np.zeros(1, np.uint32)
            check(cu.cuMemcpyDtoH(out.ctypes.data, int(memory[device]) + 4 * n, 4))
            return int(out[0])
        # A stream is waited for whatever device is current.
        use(0)
        check(cu.cuStreamSynchronize(streams[1]))
        assert word(1, count - 1) == 106 and word(1) == 106
        check(cu.cuStreamSynchronize(streams[0]))
        assert word(0) == 3
        # Pointers say which device they are of.
        device_of = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        assert [int(check(cu.cuPointerGetAttribute(device_of, m))) for m in memory] == [0, 1]

        # Copies between them, in all forms: what was given to the streams before comes first.
        launch(functions[0], memory[0], 7, count, streams[0])
        check(cu.cuMemcpyPeerAsync(memory[1], contexts[1], memory[0], contexts[0], 4 * count, streams[0]))
        assert word(1) == 10 and word(1, count - 1) == 10
        use(1)
        launch(functions[1], memory[1], 5, count, streams[1])
        check(cu.cuMemcpyDtoDAsync(memory[0], memory[1], 4 * count, streams[1]))
        assert word(0) == 15 and word(0, count - 1) == 15
        check(cu.cuMemsetD32(memory[0], 21, count))  # of the other node than the current one
        assert word(0, count - 1) == 21
        check(cu.cuMemcpy(memory[1], memory[0], 4 * count))
        assert word(1, count - 1) == 21
        check(cu.cuMemsetD32(memory[1], 0, count))
        check(cu.cuMemcpyPeer(memory[0], contexts[0], memory[1], contexts[1], 400))
        assert [word(0, n) for n in (0, 99, 100)] == [0, 0, 21]

        # Two dimensions: a rectangle of one becomes one of the other.
        host = np.arange(64 * 64, dtype=np.uint32)
        use(0)
        check(cu.cuMemcpyHtoD(memory[0], host.ctypes.data, host.nbytes))
        shape = cu.CUDA_MEMCPY2D()
        shape.srcMemoryType = shape.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
        shape.srcDevice, shape.srcPitch, shape.srcXInBytes, shape.srcY = memory[0], 256, 16, 3
        shape.dstDevice, shape.dstPitch = memory[1], 128
        shape.WidthInBytes, shape.Height = 80, 40
        check(cu.cuMemcpy2D(shape))
        got = np.zeros((40, 32), np.uint32)
        check(cu.cuMemcpyDtoH(got.ctypes.data, memory[1], got.nbytes))
        assert (got[:, :20] == host.reshape(64, 64)[3:43, 4:24]).all() and (got[:, 20:] == 0).all()

        # The host copies to and from the device that is not current, also in a stream of the other one.
        check(cu.cuMemcpyHtoD(memory[1], host.ctypes.data, host.nbytes))
        check(cu.cuMemcpyHtoDAsync(int(memory[1]) + host.nbytes, host.ctypes.data, host.nbytes, streams[0]))
        back = np.zeros(2 * host.size, np.uint32)
        check(cu.cuMemcpyDtoHAsync(back.ctypes.data, memory[1], back.nbytes, streams[0]))
        check(cu.cuStreamSynchronize(streams[0]))
        assert (back == np.tile(host, 2)).all()
        assert counters()["worker"]["kernels"] == 8 and len(counters()["worker"]["memory_used"]) == 2
        print("ok")
        """,
        TWO,
    )


def test_streams_wait_for_events_of_the_other_node_and_threads_keep_to_their_own(
    nodes: SeveralShares,
) -> None:
    nodes.run(
        """
        import threading
        functions, streams, memory, events = [], [], [], []
        for device in range(2):
            use(device)
            functions.append(check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(PTX)), b"add")))
            streams.append(check(cu.cuStreamCreate(1)))
            memory.append(check(cu.cuMemAlloc(4096)))
            events.append(check(cu.cuEventCreate(0)))
            check(cu.cuMemsetD32(memory[device], 0, 1024))
            check(cu.cuCtxSynchronize())
        word = np.zeros(1, np.uint32)
        for n in range(20):  # round and round, each step behind the other node's
            for device in range(2):
                use(device)
                check(cu.cuStreamWaitEvent(streams[device], events[1 - device], 0))
                check(cu.cuMemcpyDtoDAsync(memory[device], memory[1 - device], 4, streams[device]))
                launch(functions[device], memory[device], 1, 1, streams[device])
                check(cu.cuEventRecord(events[device], streams[device]))
        while cu.cuEventQuery(events[1])[0] != 0:
            pass
        check(cu.cuMemcpyDtoH(word.ctypes.data, memory[1], 4))
        assert word[0] == 40, word
        # What CUDA refuses for two devices of one machine is refused here too.
        assert cu.cuEventRecord(events[0], streams[1])[0] == Error.CUDA_ERROR_INVALID_HANDLE
        assert cu.cuEventElapsedTime(events[0], events[1])[0] != 0
        use(0)
        assert cu.cuLaunchKernel(functions[1], 1, 1, 1, 1, 1, 1, 0, streams[0], 0, 0)[0] != 0

        wrong = []
        def work(device):
            use(device)
            mine = np.zeros(1024, np.uint32)
            for n in range(1, 60):
                launch(functions[device], memory[device], device + 1, 1024, streams[device])
                if n % 10 == 0:
                    check(cu.cuMemcpyDtoHAsync(mine.ctypes.data, memory[device], 4096, streams[device]))
                    check(cu.cuStreamSynchronize(streams[device]))
                    if (mine[1:] != n * (device + 1)).any():
                        wrong.append((device, n, mine))
        for device in range(2):
            check(cu.cuMemsetD32(memory[device], 0, 1024))
        threads = [threading.Thread(target=work, args=(device,)) for device in range(2)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert not wrong, wrong
        # Host functions run for both.
        called = []
        CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        note = CALL(lambda data: called.append(data))
        for device in range(2):
            use(device)
            check(cu.cuLaunchHostFunc(streams[device], cu.CUhostFn(ctypes.cast(note, ctypes.c_void_p).value), device + 1))
        for device in range(2):
            check(cu.cuStreamSynchronize(streams[device]))
        assert sorted(called) == [1, 2], called
        print("ok")
        """,
        TWO,
    )


def test_numba_and_a_library_of_kernels_serve_both(tmp_path: Path) -> None:
    """The first node lends two devices: those of the next begin behind them."""
    with several_shares(tmp_path, devices=(2, 1)) as nodes:
        nodes.run(
            """
            assert len(contexts) == 3
            library = check(cu.cuLibraryLoadData(PTX, [], [], 0, [], [], 0))
            kernel = check(cu.cuLibraryGetKernel(library, b"add"))
            bases = []
            for device in range(3):
                use(device)
                memory = check(cu.cuMemAlloc(4000))
                bases.append(int(memory) >> 40)
                check(cu.cuMemsetD32(memory, device, 1000))
                launch(kernel, memory, 10, 1000)
                launch(check(cu.cuKernelGetFunction(kernel)), memory, 100, 1000)
                assert (download(memory, np.zeros(1000, np.uint32)) == 110 + device).all()
            assert bases == [bases[0], bases[0] + 1, bases[0] + 2]  # a terabyte of addresses each, in their order
            for device, content in ((0, 7), (2, 9)):
                use(device)
                table, size = check(cu.cuLibraryGetGlobal(library, b"table"))
                assert size == 16
                words = np.full(4, content, np.uint32)
                check(cu.cuMemcpyHtoD(table, words.ctypes.data, size))
            for device, content in ((0, 7), (2, 9)):  # the nodes have a variable each
                use(device)
                table, _ = check(cu.cuLibraryGetGlobal(library, b"table"))
                assert (download(table, np.zeros(4, np.uint32)) == content).all()
            check(cu.cuLibraryUnload(library))
            assert cu.cuLibraryGetKernel(library, b"add")[0] == Error.CUDA_ERROR_INVALID_HANDLE

            from numba import cuda
            @cuda.jit
            def scale(x, by):
                i = cuda.grid(1)
                if i < x.size:
                    x[i] *= by
            arrays = []
            for device in range(3):
                with cuda.gpus[device]:
                    x = cuda.to_device(np.arange(10_000, dtype=np.float32))
                    scale[40, 256](x, device + 2)
                    arrays.append(x)
            for device in range(3):
                with cuda.gpus[device]:
                    np.testing.assert_allclose(arrays[device].copy_to_host(), np.arange(10_000) * (device + 2.0))
            print("ok")
            """,
            TWO,
        )


def test_a_full_device_leaves_the_other_as_it_is(nodes: SeveralShares) -> None:
    nodes.run(
        """
        use(1)
        kept = upload(np.arange(100_000))
        use(0)
        assert cu.cuMemAlloc(SHARE + (1 << 20))[0] == Error.CUDA_ERROR_OUT_OF_MEMORY
        free = check(cu.cuMemGetInfo())[0]
        large = check(cu.cuMemAlloc(free - (4 << 20)))
        assert cu.cuMemAlloc(64 << 20)[0] == Error.CUDA_ERROR_OUT_OF_MEMORY
        use(1)
        assert check(cu.cuMemGetInfo())[0] > SHARE - (8 << 20)
        more = check(cu.cuMemAlloc(100 << 20))
        # A failed kernel of one device is told to who asks that device.
        module = check(cu.cuModuleLoadData(PTX))
        launch(check(cu.cuModuleGetFunction(module, b"add")), 4096, 1, 1)
        use(0)
        check(cu.cuCtxSynchronize())
        use(1)
        assert cu.cuCtxSynchronize()[0] != 0
        use(0)
        check(cu.cuCtxSynchronize())
        print("ok")
        """,
        TWO,
    )


def test_detach_drains_both_and_what_is_on_them_outlives_the_leases(nodes: SeveralShares) -> None:
    process = nodes.start(
        """
        memory = []
        for device in range(2):
            use(device)
            memory.append(upload(np.arange(50_000) + device))
            check(cu.cuMemsetD8(memory[device], 1, 8))
        assert runtime.gpupool_drain(5000) == 0
        runtime.gpupool_detach()
        print("up", flush=True)
        input()
        for device in range(2):
            use(device)
            assert cu.cuMemsetD8(memory[device], 1, 8)[0] == Error.CUDA_ERROR_DEVICE_UNAVAILABLE
        assert "given back" in message(), message()
        print("down", flush=True)
        input()
        assert runtime.gpupool_attach() == 0, message()
        for device in (1, 0):
            use(device)
            got = download(memory[device], np.arange(50_000))
            assert got[0] == 0x0101010101010101 and (got[1:] == np.arange(1, 50_000) + device).all()
        print("attached", flush=True)
        input()
        # One of them is revoked: the session is parked as a whole.
        use(1)
        assert cu.cuCtxSynchronize()[0] == Error.CUDA_ERROR_DEVICE_UNAVAILABLE
        use(0)
        assert cu.cuCtxSynchronize()[0] == Error.CUDA_ERROR_DEVICE_UNAVAILABLE
        assert counters()["state"] == "parked"
        print("ok")
        """,
        TWO,
    )
    assert process.stdin is not None and process.stdout is not None

    def said(word: str) -> None:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line == word + "\n", line + process.communicate()[1]

    def go_on() -> None:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()

    said("up")
    nodes.detach("the shares were given back")
    go_on()
    said("down")
    nodes.attach(10)
    go_on()
    said("attached")
    assert nodes.workers[1].ask(f"revoke epoch={nodes.workers[1].epoch}").startswith("ok")
    out, errors = process.communicate("\n", timeout=60)
    assert out == "ok\n", out + errors


def test_a_broken_connection_to_one_is_made_again_and_nothing_is_lost(tmp_path: Path) -> None:
    with several_shares(tmp_path, cut=(1,)) as nodes:
        process = nodes.start(
            """
            functions, memory = [], []
            for device in range(2):
                use(device)
                functions.append(check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(PTX)), b"add")))
                memory.append(check(cu.cuMemAlloc(4096)))
                check(cu.cuMemsetD32(memory[device], 0, 1024))
            print("up", flush=True)
            for n in range(300):
                for device in range(2):
                    use(device)
                    launch(functions[device], memory[device], 1, 1024)
                if n % 20 == 0:
                    check(cu.cuMemcpyDtoD(int(memory[0]) + 4, int(memory[1]) + 4, 4))
                    time.sleep(0.01)
            for device in range(2):
                use(device)
                got = download(memory[device], np.zeros(1024, np.uint32))
                assert got[0] == 300 and (got[2:] == 300).all(), got
            print("ok")
            """,
            TWO,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        for _ in range(5):
            nodes.wires[1].cut()
            time.sleep(0.04)
        out, errors = process.communicate(timeout=60)
        assert out == "ok\n", out + errors


def test_a_dead_worker_is_the_end_of_the_whole_session(nodes: SeveralShares) -> None:
    dead = 1
    process = nodes.start(
        """
        for device in range(2):
            use(device)
            pointer = upload(np.arange(10))
        print("up", flush=True)
        input()
        dead = int(os.environ["DEAD"])
        use(dead)
        assert cu.cuCtxSynchronize()[0] == Error.CUDA_ERROR_DEVICE_UNAVAILABLE
        assert "lost" in message(), message()
        use(1 - dead)
        assert cu.cuCtxSynchronize()[0] == Error.CUDA_ERROR_DEVICE_UNAVAILABLE
        assert cu.cuMemAlloc(100)[0] == Error.CUDA_ERROR_DEVICE_UNAVAILABLE
        assert counters()["state"] == "lost"
        print("ok")
        """,
        TWO,
        DEAD=str(dead),
        GPUPOOL_RECONNECT_SECONDS="1",
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    worker = nodes.workers[dead].process
    assert worker is not None
    worker.kill()
    worker.wait()
    out, errors = process.communicate("\n", timeout=60)
    assert out == "ok\n", out + errors
