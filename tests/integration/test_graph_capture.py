"""Graphs that are captured from streams, by the driver API and by the graph builders of libraries."""

from __future__ import annotations

import pytest

from tests.support.graph_programs import GRAPHS
from tests.support.pool_node import native_worker_is_built
from tests.support.runtime_share import Share, share

__all__ = ["share"]  # the fixture

pytestmark = [
    pytest.mark.skipif(not native_worker_is_built(), reason="native parts not built"),
    pytest.mark.slow,
]


def test_a_captured_graph_is_read_back_and_its_nodes_changed(share: Share) -> None:
    share.run(
        """
        stream, side = check(cu.cuStreamCreate(1)), check(cu.cuStreamCreate(1))
        fork, join = check(cu.cuEventCreate(2)), check(cu.cuEventCreate(2))
        args = ((word, 2), (ctypes.c_uint64, ctypes.c_uint32))
        relaxed = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
        check(cu.cuStreamBeginCapture(stream, relaxed))
        check(cu.cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, stream, args, 0))
        status, identity, graph, nodes, edges, count = check(cu.cuStreamGetCaptureInfo(stream))
        assert status == cu.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE and identity and count == 1
        assert check(cu.cuGraphNodeGetType(nodes[0])) == Type.CU_GRAPH_NODE_TYPE_KERNEL
        check(cu.cuEventRecord(fork, stream))
        check(cu.cuStreamWaitEvent(side, fork, 0))
        check(cu.cuMemcpyDtoDAsync(word + 4, word, 4, side))
        check(cu.cuMemsetD32Async(word + 8, 6, 2, stream))
        check(cu.cuEventRecord(join, side))
        check(cu.cuStreamWaitEvent(stream, join, 0))
        extra = kernel(graph, [nodes[0]], word + 16, 1)
        check(cu.cuStreamUpdateCaptureDependencies(stream, [extra], None, 1, 0))
        ended = check(cu.cuStreamEndCapture(stream))
        assert int(ended) == int(graph)
        listed, count = check(cu.cuGraphGetNodes(graph, 16))
        types = sorted(int(check(cu.cuGraphNodeGetType(n))) for n in listed[:count])
        assert types == [0, 0, 1, 2], types
        assert check(cu.cuGraphGetEdges(graph, 16))[3] == 3
        first = check(cu.cuGraphGetRootNodes(graph, 4))[0][0]
        assert int(first) == int(nodes[0])
        back = check(cu.cuGraphKernelNodeGetParams(first))
        assert values(back) == (word, 2) and int(back.func) == int(add)
        assert len(check(cu.cuGraphNodeGetDependentNodes(first, 8))[0]) >= 3
        run = check(cu.cuGraphInstantiate(graph, 0))
        launch(run, stream, times=5)
        assert [read(n) for n in range(5)] == [10, 10, 6, 6, 5]
        check(cu.cuGraphExecKernelNodeSetParams(run, first, kernel_params(word, 100)))
        launch(run, stream)
        assert read() == 110 and read(1) == 110
        print("ok")
        """,
        GRAPHS,
    )


def test_a_capture_ends_in_the_thread_that_began_it(share: Share) -> None:
    share.run(
        """
        import threading
        stream = check(cu.cuStreamCreate(1))
        check(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
        answers = []
        def end():
            check(cu.cuCtxSetCurrent(context))
            answers.append(cu.cuStreamEndCapture(stream)[0])
        thread = threading.Thread(target=end)
        thread.start()
        thread.join()
        assert answers == [Error.CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD]
        # Memory made meanwhile, and copies, are the session's own calls: they do not end the capture.
        more = check(cu.cuMemAlloc(8 << 20))
        check(cu.cuMemsetD32Async(word, 3, 1, stream))
        graph = check(cu.cuStreamEndCapture(stream))
        launch(check(cu.cuGraphInstantiate(graph, 0)))
        assert read() == 3
        # Who captures into a graph of its own need not be told it again.
        own = check(cu.cuGraphCreate(0))
        where = cu.CUmemAllocationProp()
        where.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        where.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        size = 2 << 20
        page = check(cu.cuMemAddressReserve(size, 0, 0, 0))
        check(cu.cuMemMap(page, size, 0, check(cu.cuMemCreate(size, where, 0)), 0))
        check(cu.cuStreamBeginCaptureToGraph(
            stream, own, None, None, 0, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        check(cu.cuMemsetD32Async(word, 4, 1, stream))
        # What waits for all work leaves out the stream that is captured.
        check(cu.cuMemUnmap(page, size))
        assert ctypes.CDLL("libcuda.so.1").cuStreamEndCapture(ctypes.c_void_p(int(stream)), None) == 0
        launch(check(cu.cuGraphInstantiate(own, 0)))
        assert read() == 4
        print("ok")
        """,
        GRAPHS,
    )


def test_cuda_core_builds_a_graph(share: Share) -> None:
    share.run(
        """
        from cuda.core import Device, LaunchConfig, ObjectCode, launch as run_kernel
        device = Device(0)
        device.set_current()
        stream = device.create_stream()
        kernel = ObjectCode.from_ptx(PTX.rstrip(b"\\\\0")).get_kernel("add")
        config = LaunchConfig(grid=1, block=1)
        builder = stream.create_graph_builder().begin_building()
        run_kernel(builder, config, kernel, word, np.uint32(1))
        left, right = builder.split(2)
        run_kernel(left, config, kernel, word + 4, np.uint32(2))
        run_kernel(right, config, kernel, word + 8, np.uint32(3))
        from cuda.core.graph import GraphBuilder
        joined = GraphBuilder.join(left, right)
        run_kernel(joined, config, kernel, word, np.uint32(10))
        graph = joined.end_building().complete()
        for _ in range(3):
            graph.launch(stream)
        stream.sync()
        assert [read(n) for n in range(3)] == [33, 6, 9]
        print("ok")
        """,
        GRAPHS,
    )


def test_numba_launches_into_a_graph_builder_of_cuda_core(share: Share) -> None:
    share.run(
        """
        from cuda.core import Device
        from numba import cuda

        @cuda.jit
        def fill(a):
            i = cuda.grid(1)
            if i < len(a):
                a[i] = i

        device = Device()
        device.set_current()
        stream = device.create_stream()
        array = cuda.to_device(np.zeros(100), stream=stream)
        stream.sync()
        builder = device.create_graph_builder()
        builder.begin_building()
        fill[1, 100, builder](array)
        graph = builder.end_building().complete()
        graph.launch(stream)
        stream.sync()
        np.testing.assert_equal(array.copy_to_host(), np.arange(100))
        print("ok")
        """,
        GRAPHS,
    )
