"""CUDA graphs through client, wire, worker and software GPU: built by nodes, read back, updated, launched."""

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

        def refused(answer):
            assert answer[0] == Error.CUDA_ERROR_INVALID_VALUE, answer

        # A graph takes over what the program has, once, and gives no more back than that.
        graph, other = check(cu.cuGraphCreate(0)), check(cu.cuGraphCreate(0))
        made = check(cu.cuUserObjectCreate(78, cu.CUhostFn(address), 2, 1))
        refused(cu.cuGraphRetainUserObject(graph, made, 3, 1))
        check(cu.cuGraphRetainUserObject(graph, made, 2, 1))
        refused(cu.cuGraphRetainUserObject(other, made, 1, 1))
        refused(cu.cuUserObjectRelease(made, 1))
        refused(cu.cuGraphReleaseUserObject(graph, made, 3))
        for count in (0, 1 << 31):
            refused(cu.cuUserObjectRetain(made, count))
            refused(cu.cuUserObjectRelease(made, count))
            refused(cu.cuGraphRetainUserObject(graph, made, count, 0))
            refused(cu.cuGraphReleaseUserObject(graph, made, count))
        most = (1 << 31) - 1
        check(cu.cuUserObjectRetain(made, most))
        check(cu.cuGraphRetainUserObject(other, made, most - 1, 0))
        refused(cu.cuUserObjectRetain(made, most))  # more than can be counted
        refused(cu.cuGraphRetainUserObject(other, made, most, 0))
        check(cu.cuUserObjectRelease(made, most))
        check(cu.cuGraphDestroy(other))
        assert destroyed == [77]
        check(cu.cuGraphReleaseUserObject(graph, made, 1))
        check(cu.cuGraphDestroy(graph))
        assert destroyed == [77, 78]
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
