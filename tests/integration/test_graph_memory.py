"""Memory that graphs allocate and free: it counts against the share, and the program may free what a graph leaves it."""

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


def test_memory_of_graphs_counts_against_the_share(share: Share) -> None:
    share.run(
        """
        def allocation(graph, size):
            wanted = cu.CUDA_MEM_ALLOC_NODE_PARAMS()
            wanted.poolProps.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
            wanted.poolProps.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
            wanted.bytesize = size
            node = check(cu.cuGraphAddMemAllocNode(graph, [], 0, wanted))
            return node, int(wanted.dptr)
        graph = check(cu.cuGraphCreate(0))
        made, address = allocation(graph, 1 << 20)
        assert int(check(cu.cuGraphMemAllocNodeGetParams(made)).dptr) == address
        used = kernel(graph, [made], address, 4)
        copy = cu.CUDA_MEMCPY3D()
        copy.srcMemoryType = copy.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_UNIFIED
        copy.srcDevice, copy.dstDevice = address, word
        copy.WidthInBytes, copy.Height, copy.Depth = 4, 1, 1
        copied = check(cu.cuGraphAddMemcpyNode(graph, [used], 1, copy, context))
        check(cu.cuGraphAddMemFreeNode(graph, [copied], 1, address))
        run = check(cu.cuGraphInstantiate(graph, 0))
        launch(run, times=3)
        assert read() > 0
        large = check(cu.cuGraphCreate(0))
        allocation(large, 300 << 20)
        assert cu.cuGraphInstantiate(large, 0)[0] == Error.CUDA_ERROR_OUT_OF_MEMORY
        print("ok")
        """,
        GRAPHS,
    )


def test_memory_that_is_allocated_in_a_capture_is_the_graph_s(share: Share) -> None:
    share.run(
        """
        stream = check(cu.cuStreamCreate(1))
        SIZE = 1 << 20
        before = asks()
        outside = int(check(cu.cuMemAllocAsync(SIZE, stream)))
        passing = check(cu.cuMemAllocAsync(SIZE, stream))
        check(cu.cuMemFreeAsync(passing, stream))
        assert asks() == before, "outside of a capture nothing waits"

        check(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        inside = int(check(cu.cuMemAllocAsync(SIZE, stream)))
        second = int(check(cu.cuMemAllocFromPoolAsync(SIZE, check(cu.cuDeviceGetDefaultMemPool(0)), stream)))
        check(cu.cuMemsetD32Async(inside, 5, 1, stream))
        arguments = ((inside, 7), (ctypes.c_uint64, ctypes.c_uint32))
        check(cu.cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0))
        check(cu.cuMemcpyDtoDAsync(second, inside, 4, stream))
        check(cu.cuMemFreeAsync(inside, stream))
        arguments = ((outside, 1), (ctypes.c_uint64, ctypes.c_uint32))
        check(cu.cuMemcpyDtoDAsync(outside, second, 4, stream))
        check(cu.cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0))
        check(cu.cuMemcpyDtoDAsync(word, outside, 4, stream))
        check(cu.cuMemFreeAsync(second, stream))
        # What the graph uses and did not allocate cannot be freed by it, and is not handed out again.
        assert cu.cuMemFreeAsync(outside, stream)[0] == Error.CUDA_ERROR_INVALID_VALUE
        graph = check(cu.cuStreamEndCapture(stream))
        nodes = check(cu.cuGraphGetNodes(graph, 32))
        types = [check(cu.cuGraphNodeGetType(node)) for node in nodes[0][:nodes[1]]]
        assert types.count(Type.CU_GRAPH_NODE_TYPE_MEM_ALLOC) == 2, types
        assert types.count(Type.CU_GRAPH_NODE_TYPE_MEM_FREE) == 2, types

        others = [int(check(cu.cuMemAllocAsync(SIZE, stream))) for _ in range(8)]
        for taken in (inside, second, outside):
            assert all(abs(other - taken) >= SIZE for other in others)
        for other in others:
            check(cu.cuMemsetD8Async(other, 0xEE, SIZE, stream))
        run = check(cu.cuGraphInstantiate(graph, 0))
        launch(run, stream, times=2)
        assert read() == 13, "each launch has memory of its own: 5 + 7, and 1 where the program put it"
        for other in others:
            assert (download(other, np.empty(SIZE, np.uint8)) == 0xEE).all()
            check(cu.cuMemFreeAsync(other, stream))
        check(cu.cuMemFreeAsync(outside, stream))
        check(cu.cuGraphExecDestroy(run))
        check(cu.cuGraphDestroy(graph))
        check(cu.cuCtxSynchronize())
        print("ok")
        """,
        GRAPHS,
    )


def test_the_program_frees_what_a_captured_graph_leaves_it(share: Share) -> None:
    share.run(
        """
        stream = check(cu.cuStreamCreate(1))
        check(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        made = int(check(cu.cuMemAllocAsync(4096, stream)))
        check(cu.cuMemsetD32Async(made, 41, 1, stream))
        # Managed memory is nobody's node.
        location = cu.CUmemLocation()
        location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        managed = check(cu.cuMemGetDefaultMemPool(location, cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_MANAGED))
        assert cu.cuMemAllocFromPoolAsync(4096, managed, stream)[0] == Error.CUDA_ERROR_NOT_SUPPORTED
        graph = check(cu.cuStreamEndCapture(stream))
        run = check(cu.cuGraphInstantiate(graph, 0))
        for free in (lambda: cu.cuMemFreeAsync(made, stream), lambda: cu.cuMemFree(made)):
            launch(run, stream)
            assert download(made, np.empty(1, np.uint32))[0] == 41
            check(free())
        check(cu.cuStreamSynchronize(stream))
        # Freed already: said with the next call that has an answer.
        assert cu.cuMemFreeAsync(made, stream)[0] == 0
        assert cu.cuCtxSynchronize()[0] == Error.CUDA_ERROR_INVALID_VALUE
        assert "cuMemFreeAsync failed earlier" in message(), message()
        print("ok")
        """,
        GRAPHS,
    )
