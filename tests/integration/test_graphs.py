"""CUDA graphs through client, wire, worker and software GPU: built by nodes, captured, read back, updated, launched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pool_node import native_worker_is_built
from tests.support.runtime_share import PRELUDE, Share, share_of_a_worker

pytestmark = [
    pytest.mark.skipif(not native_worker_is_built(), reason="native parts not built"),
    pytest.mark.slow,
]


@pytest.fixture
def share(tmp_path: Path) -> Iterator[Share]:
    yield from share_of_a_worker(tmp_path)


GRAPHS = (
    PRELUDE
    + '''
PTX = b"""
.version 8.0
.target sm_75
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry add(.param .u64 word, .param .u32 step)
{
    .reg .b32 %r<3>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [word]; ld.param.u32 %r2, [step];
    ld.global.u32 %r1, [%rd1];
    add.u32 %r1, %r1, %r2;
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry count_until(.param .u64 word, .param .u32 bound, .param .u64 handle)
{
    .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [word]; ld.param.u32 %r2, [bound]; ld.param.u64 %rd2, [handle];
    ld.global.u32 %r1, [%rd1];
    add.u32 %r1, %r1, 1;
    st.global.u32 [%rd1], %r1;
    setp.lt.u32 %p1, %r1, %r2;
    selp.u32 %r3, 1, 0, %p1;
    {
    .param .b64 a; .param .b32 b;
    st.param.b64 [a], %rd2; st.param.b32 [b], %r3;
    call.uni cudaGraphSetConditional, (a, b);
    }
    ret;
}
\\0"""
Type = cu.CUgraphNodeType
Error = cu.CUresult
start()
module = check(cu.cuModuleLoadData(PTX))
add = check(cu.cuModuleGetFunction(module, b"add"))
context = check(cu.cuCtxGetCurrent())
words = check(cu.cuMemAlloc(64))
word = int(words)

def clear():
    check(cu.cuMemsetD32(words, 0, 16))

def read(n=0):
    out = np.zeros(1, np.uint32)
    check(cu.cuMemcpyDtoH(out.ctypes.data, word + 4 * n, 4))
    return int(out[0])

def kernel_params(address, step, function=add):
    params = cu.CUDA_KERNEL_NODE_PARAMS()
    params.func = function
    params.gridDimX = params.gridDimY = params.gridDimZ = 1
    params.blockDimX = params.blockDimY = params.blockDimZ = 1
    params.kernelParams = ((address, step), (ctypes.c_uint64, ctypes.c_uint32))
    return params

def kernel(graph, after, address, step):
    return check(cu.cuGraphAddKernelNode(graph, after, len(after), kernel_params(address, step)))

def values(params):
    pointers = ctypes.cast(int(params.kernelParams), ctypes.POINTER(ctypes.c_void_p))
    return (ctypes.cast(pointers[0], ctypes.POINTER(ctypes.c_uint64))[0],
            ctypes.cast(pointers[1], ctypes.POINTER(ctypes.c_uint32))[0])

def launch(graph_exec, stream=0, times=1):
    for _ in range(times):
        check(cu.cuGraphLaunch(graph_exec, stream))
    check(cu.cuCtxSynchronize())

def asks():
    return counters()["asks"]

clear()
'''
)


def test_a_graph_built_by_nodes_is_read_back_updated_and_launched(share: Share) -> None:
    share.run(
        """
        graph = check(cu.cuGraphCreate(0))
        first = kernel(graph, [], word, 3)
        left, right = kernel(graph, [first], word + 4, 5), kernel(graph, [first], word + 8, 7)
        fill = cu.CUDA_MEMSET_NODE_PARAMS()
        fill.dst, fill.value, fill.elementSize, fill.width, fill.height = word + 12, 9, 4, 1, 1
        filled = check(cu.cuGraphAddMemsetNode(graph, [left, right], 2, fill, context))
        copy = cu.CUDA_MEMCPY3D()
        copy.srcMemoryType = copy.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
        copy.srcDevice, copy.dstDevice = word + 12, word + 16
        copy.WidthInBytes, copy.Height, copy.Depth = 4, 1, 1
        copied = check(cu.cuGraphAddMemcpyNode(graph, [filled], 1, copy, context))

        assert check(cu.cuGraphGetNodes(graph, 16))[1] == 5
        roots, count = check(cu.cuGraphGetRootNodes(graph, 4))
        assert [int(n) for n in roots[:count]] == [int(first)]
        origins, targets, _, count = check(cu.cuGraphGetEdges(graph, 16))
        edges = {(int(a), int(b)) for a, b in zip(origins[:count], targets[:count])}
        assert edges == {(int(first), int(left)), (int(first), int(right)), (int(left), int(filled)),
                         (int(right), int(filled)), (int(filled), int(copied))}
        assert check(cu.cuGraphNodeGetType(filled)) == Type.CU_GRAPH_NODE_TYPE_MEMSET
        assert int(check(cu.cuGraphNodeGetContainingGraph(left))) == int(graph)
        back = check(cu.cuGraphKernelNodeGetParams(left))
        assert values(back) == (word + 4, 5) and int(back.func) == int(add)
        assert check(cu.cuGraphMemsetNodeGetParams(filled)).value == 9
        assert int(check(cu.cuGraphMemcpyNodeGetParams(copied)).dstDevice) == word + 16

        check(cu.cuGraphKernelNodeSetParams(right, kernel_params(word + 8, 70)))
        assert values(check(cu.cuGraphKernelNodeGetParams(right))) == (word + 8, 70)
        run = check(cu.cuGraphInstantiate(graph, 0))
        launch(run, times=10)
        assert [read(n) for n in range(5)] == [30, 50, 700, 9, 9]

        clear()
        check(cu.cuGraphExecKernelNodeSetParams(run, first, kernel_params(word, 1000)))
        fill.value = 11
        check(cu.cuGraphExecMemsetNodeSetParams(run, filled, fill, context))
        check(cu.cuGraphNodeSetEnabled(run, left, 0))
        assert check(cu.cuGraphNodeGetEnabled(run, left)) == 0
        launch(run)
        assert [read(n) for n in range(5)] == [1000, 0, 70, 11, 11]

        path = os.environ["GPUPOOL_SESSION_FILE"] + ".dot"
        check(cu.cuGraphDebugDotPrint(graph, path.encode(), 0))
        assert open(path).read().count("->") == 5
        check(cu.cuGraphExecDestroy(run))
        check(cu.cuGraphDestroy(graph))
        assert cu.cuGraphNodeGetType(first)[0] == Error.CUDA_ERROR_INVALID_VALUE
        print("ok")
        """,
        GRAPHS,
    )


def test_building_and_launching_a_graph_waits_for_nothing(share: Share) -> None:
    share.run(
        """
        graph = check(cu.cuGraphCreate(0))
        node = kernel(graph, [], word, 1)
        before = asks()
        for _ in range(100):
            node = kernel(graph, [node], word, 1)
        check(cu.cuGraphGetNodes(graph, 200))
        check(cu.cuGraphKernelNodeGetParams(node))
        assert asks() == before
        run = check(cu.cuGraphInstantiate(graph, 0))
        before = asks()
        for n in range(20):
            check(cu.cuGraphExecKernelNodeSetParams(run, node, kernel_params(word, n)))
            check(cu.cuGraphLaunch(run, 0))
        assert asks() == before
        check(cu.cuCtxSynchronize())
        assert read() == 20 * 100 + sum(range(20))
        print("ok")
        """,
        GRAPHS,
    )


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


def test_clones_children_and_updates(share: Share) -> None:
    share.run(
        """
        graph, child = check(cu.cuGraphCreate(0)), check(cu.cuGraphCreate(0))
        inner = kernel(child, [], word, 1)
        node = check(cu.cuGraphAddChildGraphNode(graph, [], 0, child))
        last = kernel(graph, [node], word, 10)
        run = check(cu.cuGraphInstantiate(graph, 0))
        launch(run)
        assert read() == 11
        embedded = check(cu.cuGraphChildGraphNodeGetGraph(node))
        assert int(embedded) == int(check(cu.cuGraphChildGraphNodeGetGraph(node))) != int(child)
        inside = check(cu.cuGraphGetNodes(embedded, 4))[0][0]
        assert int(inside) != int(inner)
        assert values(check(cu.cuGraphKernelNodeGetParams(inside))) == (word, 1)
        check(cu.cuGraphExecKernelNodeSetParams(run, inside, kernel_params(word, 5)))
        launch(run)
        assert read() == 26
        assert cu.cuGraphDestroy(embedded)[0] == Error.CUDA_ERROR_INVALID_VALUE

        clone = check(cu.cuGraphClone(graph))
        twin = check(cu.cuGraphNodeFindInClone(last, clone))
        assert int(twin) != int(last) and int(check(cu.cuGraphNodeGetContainingGraph(twin))) == int(clone)
        check(cu.cuGraphKernelNodeSetParams(twin, kernel_params(word, 100)))
        info = check(cu.cuGraphExecUpdate(run, clone))
        assert info.result == cu.CUgraphExecUpdateResult.CU_GRAPH_EXEC_UPDATE_SUCCESS
        clear()
        launch(run)
        assert read() == 101
        check(cu.cuGraphDestroyNode(twin))
        result, info = cu.cuGraphExecUpdate(run, clone)
        assert result == Error.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
        print("ok")
        """,
        GRAPHS,
    )


def test_cycles_foreign_nodes_and_destroyed_graphs_are_errors(share: Share) -> None:
    share.run(
        """
        graph, other = check(cu.cuGraphCreate(0)), check(cu.cuGraphCreate(0))
        a, b = kernel(graph, [], word, 1), check(cu.cuGraphAddEmptyNode(graph, [], 0))
        foreign = check(cu.cuGraphAddEmptyNode(other, [], 0))
        assert cu.cuGraphAddEmptyNode(graph, [foreign], 1)[0] == Error.CUDA_ERROR_INVALID_VALUE
        assert cu.cuGraphAddEmptyNode(graph, [a, a], 2)[0] == Error.CUDA_ERROR_INVALID_VALUE
        check(cu.cuGraphAddDependencies(graph, [a], [b], None, 1))
        assert cu.cuGraphAddDependencies(graph, [a], [b], None, 1)[0] == Error.CUDA_ERROR_INVALID_VALUE
        check(cu.cuGraphAddDependencies(graph, [b], [a], None, 1))
        assert cu.cuGraphInstantiate(graph, 0)[0] == Error.CUDA_ERROR_INVALID_VALUE  # a cycle
        check(cu.cuGraphRemoveDependencies(graph, [b], [a], None, 1))
        run = check(cu.cuGraphInstantiate(graph, 0))
        check(cu.cuGraphDestroy(other))
        assert cu.cuGraphGetNodes(other, 1)[0] == Error.CUDA_ERROR_INVALID_VALUE
        assert cu.cuGraphNodeGetType(foreign)[0] == Error.CUDA_ERROR_INVALID_VALUE
        copy = cu.CUDA_MEMCPY3D()
        copy.srcMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_HOST
        copy.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
        copy.srcHost, copy.dstDevice = np.zeros(4, np.uint8).ctypes.data, word
        copy.WidthInBytes, copy.Height, copy.Depth = 4, 1, 1
        assert cu.cuGraphAddMemcpyNode(graph, [], 0, copy, context)[0] == Error.CUDA_ERROR_NOT_SUPPORTED
        assert "host" in message()
        launch(run)
        assert read() == 1
        print("ok")
        """,
        GRAPHS,
    )


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


def test_a_loop_in_a_graph_ends_when_its_kernel_says_so(share: Share) -> None:
    share.run(
        """
        until = check(cu.cuModuleGetFunction(module, b"count_until"))
        graph = check(cu.cuGraphCreate(0))
        handle = check(cu.cuGraphConditionalHandleCreate(graph, context, 1, 1))
        params = cu.CUgraphNodeParams()
        params.type = Type.CU_GRAPH_NODE_TYPE_CONDITIONAL
        params.conditional.handle = handle
        params.conditional.type = cu.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_WHILE
        params.conditional.size = 1
        params.conditional.ctx = context
        loop = check(cu.cuGraphAddNode(graph, None, None, 0, params))
        body = params.conditional.phGraph_out[0]
        inner = kernel_params(word, 0, until)
        inner.kernelParams = ((word, 7, int(handle)), (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64))
        check(cu.cuGraphAddKernelNode(body, [], 0, inner))
        kernel(graph, [loop], word + 4, 1)
        run = check(cu.cuGraphInstantiate(graph, 0))
        launch(run)
        assert (read(0), read(1)) == (7, 1)
        print("ok")
        """,
        GRAPHS,
    )


def test_a_user_object_lives_as_long_as_its_graphs(share: Share) -> None:
    share.run(
        """
        destroyed = []
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: destroyed.append(data))
        address = ctypes.cast(function, ctypes.c_void_p).value
        graph = check(cu.cuGraphCreate(0))
        kernel(graph, [], word, 1)
        made = check(cu.cuUserObjectCreate(77, cu.CUhostFn(address), 1, 1))
        check(cu.cuGraphRetainUserObject(graph, made, 1, 1))
        run = check(cu.cuGraphInstantiate(graph, 0))
        clone = check(cu.cuGraphClone(graph))
        check(cu.cuGraphDestroy(graph))
        check(cu.cuGraphLaunch(run, 0))
        check(cu.cuGraphDestroy(clone))
        assert not destroyed
        check(cu.cuGraphExecDestroy(run))
        assert destroyed == [77]
        assert cu.cuUserObjectRelease(made, 1)[0] == Error.CUDA_ERROR_INVALID_VALUE
        assert read() == 1
        print("ok")
        """,
        GRAPHS,
    )


def test_values_in_memory_order_streams(share: Share) -> None:
    share.run(
        """
        stream, other = check(cu.cuStreamCreate(1)), check(cu.cuStreamCreate(1))
        check(cu.cuStreamWaitValue32(stream, word, 5, int(cu.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ)))
        check(cu.cuMemcpyDtoDAsync(word + 8, word + 4, 4, stream))
        assert cu.cuStreamQuery(stream)[0] == Error.CUDA_ERROR_NOT_READY
        batch = [cu.CUstreamBatchMemOpParams(), cu.CUstreamBatchMemOpParams()]
        for entry, at, value in zip(batch, (word + 4, word), (77, 5)):
            entry.operation = cu.CUstreamBatchMemOpType.CU_STREAM_MEM_OP_WRITE_VALUE_32
            entry.writeValue.operation = entry.operation
            entry.writeValue.address, entry.writeValue.value = at, value
        check(cu.cuStreamBatchMemOp(other, 2, batch, 0))
        check(cu.cuStreamSynchronize(stream))
        assert read(2) == 77
        value = cu.CUstreamAttrValue()
        value.syncPolicy = cu.CUsynchronizationPolicy.CU_SYNC_POLICY_YIELD
        policy = cu.CUstreamAttrID.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
        check(cu.cuStreamSetAttribute(stream, policy, value))
        check(cu.cuStreamCopyAttributes(other, stream))
        assert check(cu.cuStreamGetAttribute(other, policy)).syncPolicy == value.syncPolicy
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
        check(cu.cuStreamBeginCaptureToGraph(
            stream, own, None, None, 0, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        check(cu.cuMemsetD32Async(word, 4, 1, stream))
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


HOST = (
    GRAPHS
    + """
import threading
kept = []

def host(function):
    made = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)
    kept.append(made)
    return cu.CUhostFn(ctypes.cast(made, ctypes.c_void_p).value)
"""
)


def test_a_host_function_runs_between_what_is_before_and_what_is_after_it(share: Share) -> None:
    share.run(
        """
        stream = check(cu.cuStreamCreate(1))
        let_go, seen = threading.Event(), []
        def run(data):
            seen.append((data, threading.get_ident()))
            assert let_go.wait(30)
        check(cu.cuMemsetD32Async(word, 1, 1, stream))
        check(cu.cuLaunchHostFunc(stream, host(run), 42))
        check(cu.cuMemsetD32Async(word, 2, 1, stream))
        while not seen:
            time.sleep(0.001)
        assert cu.cuStreamQuery(stream)[0] == Error.CUDA_ERROR_NOT_READY  # what comes after it waits
        let_go.set()
        check(cu.cuStreamSynchronize(stream))
        assert read() == 2
        assert seen[0][0] == 42 and seen[0][1] != threading.get_ident()
        for n in range(200):
            check(cu.cuLaunchHostFunc(stream, host(lambda data: seen.append(data)), n + 1))
        check(cu.cuStreamSynchronize(stream))
        assert seen[1:] == list(range(1, 201))
        print("ok")
        """,
        HOST,
    )


def test_a_host_function_that_calls_cuda_is_told_that_it_may_not(share: Share) -> None:
    share.run(
        """
        stream, answers = check(cu.cuStreamCreate(1)), []
        def run(data):
            answers.append(cu.cuStreamSynchronize(stream)[0])
            answers.append(cu.cuMemsetD32(words, 1, 1)[0])
        check(cu.cuLaunchHostFunc(stream, host(run), 0))
        # A copy that the worker could only take behind the function does not stand in the way of its end.
        check(cu.cuMemcpyHtoDAsync(word, np.full(4, 7, np.uint32).ctypes.data, 16, stream))
        check(cu.cuStreamSynchronize(stream))
        assert answers == [Error.CUDA_ERROR_NOT_PERMITTED] * 2 and read() == 7
        print("ok")
        """,
        HOST,
    )


def test_host_nodes_run_at_each_launch_in_the_order_of_the_graph(share: Share) -> None:
    share.run(
        """
        seen = []
        graph = check(cu.cuGraphCreate(0))
        def node(after, data):
            params = cu.CUDA_HOST_NODE_PARAMS()
            params.fn, params.userData = host(lambda data: seen.append(data)), data
            return check(cu.cuGraphAddHostNode(graph, after, len(after), params))
        first = node([], 1)
        middle = kernel(graph, [first], word, 1)
        last = node([middle], 2)
        assert int(check(cu.cuGraphHostNodeGetParams(last)).userData) == 2
        run = check(cu.cuGraphInstantiate(graph, 0))
        launch(run, times=3)
        assert seen == [1, 2] * 3 and read() == 3

        stream = check(cu.cuStreamCreate(1))
        check(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        check(cu.cuLaunchHostFunc(stream, host(lambda data: seen.append(data)), 9))
        captured = check(cu.cuStreamEndCapture(stream))
        there = check(cu.cuGraphGetNodes(captured, 1))[0][0]
        assert int(check(cu.cuGraphHostNodeGetParams(there)).userData) == 9
        launch(check(cu.cuGraphInstantiate(captured, 0)), stream, times=2)
        assert seen[-2:] == [9, 9]
        print("ok")
        """,
        HOST,
    )


def test_a_worker_is_not_held_up_by_a_program_that_ends_in_its_host_function(share: Share) -> None:
    share.run(
        """
        stream, started = check(cu.cuStreamCreate(1)), threading.Event()
        def run(data):
            started.set()
            time.sleep(60)
        check(cu.cuLaunchHostFunc(stream, host(run), 0))
        assert started.wait(30)
        print("ok", flush=True)
        os._exit(0)
        """,
        HOST,
    )
    share.run('print("ok")', GRAPHS)  # the next process takes the session over
