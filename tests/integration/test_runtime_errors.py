"""Errors through the runtime: refused at once, or told by the next call that has an answer, once."""

from __future__ import annotations

from tests.support.frozen import frozen
from tests.support.runtime_share import Share, share

__all__ = ["share"]  # the fixture


def test_a_launch_that_cuda_refuses_at_once_is_refused_at_once(share: Share) -> None:
    share.run(
        """
        start()
        ptx = b'.version 7.0\\n.target sm_70\\n.address_size 64\\n.visible .entry nothing() { ret; }\\n'
        function = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(ptx)), b"nothing"))
        def launch(grid, block, shared=0):
            return cu.cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared, 0, 0, 0)[0]
        assert launch(1, 1) == 0
        assert launch(0, 1) == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        assert launch(1, 4096) == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        assert launch(1, 1, 1 << 20) == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        assert cu.cuModuleLoadData(b".version 7.0 nonsense")[0] != 0
        check(cu.cuCtxSynchronize())
        print("ok")
        """
    )


def test_an_error_of_a_post_comes_back_at_the_next_ask_with_its_name(share: Share) -> None:
    share.run(
        """
        start()
        check(cu.cuMemAlloc(1))
        check(cu.cuMemcpyDtoD(0x1000, 0x2000, 16))   # accepted: nobody has looked yet
        assert cu.cuCtxSynchronize()[0] != 0
        assert "cuMemcpyDtoD_v2" in message()
        check(cu.cuCtxSynchronize())
        print("ok")
        """
    )


def test_an_error_of_a_post_is_told_once_whichever_answer_brought_it(share: Share) -> None:
    process = share.start(
        """
        start()
        check(cu.cuMemAlloc(1))
        check(cu.cuCtxSynchronize())
        def fail():
            check(cu.cuMemsetD8(0x1000, 0, 16))
        def told():
            assert cu.cuCtxSynchronize()[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
            assert "cuMemsetD8" in message()
            check(cu.cuCtxSynchronize())

        fail(); counters(); told()
        fail(); runtime.gpupool_detach(); assert runtime.gpupool_attach() == 0; told()
        fail(); assert runtime.gpupool_drain(5000) == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        check(cu.cuCtxSynchronize())

        fail(); check(cu.cuMemcpyDtoD(0x1000, 0x2000, 16)); counters(); told()  # the first of two

        print("freeze", flush=True); input()
        fail(); assert counters()["worker"] is None  # its answer comes late
        print("thaw", flush=True); input()
        told()

        fail(); counters()
        print("revoke", flush=True); input()
        assert cu.cuCtxSynchronize()[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        assert cu.cuCtxSynchronize()[0] == cu.CUresult.CUDA_ERROR_DEVICE_UNAVAILABLE
        assert "idle" in message()
        print("ok")
        """
    )
    assert process.stdout is not None and process.stdin is not None
    assert share.worker.process is not None
    answer = process.stdout.readline()
    if answer == "freeze\n":
        with frozen(share.worker.process.pid):
            process.stdin.write("\n")
            process.stdin.flush()
            answer = process.stdout.readline()
    if answer == "thaw\n":
        process.stdin.write("\n")
        process.stdin.flush()
        answer = process.stdout.readline()
    if answer == "revoke\n":
        assert share.worker.ask(f"revoke epoch={share.worker.epoch}").startswith("ok")
        share.write(state="parked", generation="2", message="idle for 10 minutes")
        process.stdin.write("\n")
        process.stdin.flush()
    out, errors = process.communicate(timeout=60)
    assert out == "ok\n", out + errors


def test_what_reports_an_earlier_error_works_at_the_next_try(share: Share) -> None:
    # The call itself succeeded at the worker, so what it made has to be undone or kept.
    share.run(
        """
        start()
        ptx = b'.version 7.0\\n.target sm_70\\n.address_size 64\\n.visible .entry nothing() { ret; }\\n'
        stream = check(cu.cuStreamCreate(1))
        check(cu.cuMemAlloc(1))
        check(cu.cuCtxSynchronize())
        def twice(call, wait=True):
            check(cu.cuMemsetD8(0x1000, 0, 16))
            assert call()[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE, call
            assert "cuMemsetD8" in message()
            answer = check(call())
            if wait:
                check(cu.cuCtxSynchronize())
            return answer
        module = twice(lambda: cu.cuModuleLoadData(ptx))
        check(cu.cuModuleGetFunction(module, b"nothing"))
        library = twice(lambda: cu.cuLibraryLoadData(ptx, [], [], 0, [], [], 0))
        check(cu.cuLibraryGetKernel(library, b"nothing"))
        graph = twice(lambda: cu.cuGraphCreate(0))
        twice(lambda: cu.cuGraphInstantiate(graph, 0))
        relaxed = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        twice(lambda: cu.cuStreamBeginCapture(stream, relaxed) + (0,), wait=False)  # which would end the capture
        check(cu.cuStreamEndCapture(stream))
        check(cu.cuStreamBeginCapture(stream, relaxed))
        check(cu.cuMemsetD8(0x1000, 0, 16))
        assert cu.cuStreamEndCapture(stream)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        check(cu.cuStreamSynchronize(stream))
        assert check(cu.cuStreamIsCapturing(stream)) == cu.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
        link = check(cu.cuLinkCreate(0, [], []))
        kind = cu.CUjitInputType.CU_JIT_INPUT_PTX
        check(cu.cuLinkAddData(link, kind, ptx, len(ptx), b"it", 0, [], []))
        image, size = twice(lambda: cu.cuLinkComplete(link))
        check(cu.cuModuleLoadData(image))
        print("ok")
        """
    )


def test_an_unsupported_call_says_so_once_and_harms_nothing(share: Share) -> None:
    share.run(
        """
        start()
        for _ in range(3):
            refused = cu.cuGraphicsUnregisterResource(cu.CUgraphicsResource(0))
            assert refused[0] == cu.CUresult.CUDA_ERROR_NOT_SUPPORTED
        assert (download(upload(np.arange(10)), np.arange(10)) == np.arange(10)).all()
        print("ok")
        """
    )
    assert share.logged().count("cuGraphicsUnregisterResource") == 1
