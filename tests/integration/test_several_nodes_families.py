"""What one program uses of the API on the second of its nodes, and what is refused because it would mix them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.client.native import native_file

from tests.support.runtime_share import PRELUDE
from tests.support.several_shares import TWO_DEVICES, SeveralShares, several_shares

TWO = PRELUDE + TWO_DEVICES


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[SeveralShares]:
    with several_shares(tmp_path) as shares:
        yield shares


def test_memory_of_every_kind_is_on_the_node_it_was_asked_of(nodes: SeveralShares) -> None:
    nodes.run(
        """
        Flags, Kind = cu.CUmemAttach_flags, cu.CUmemAllocationType
        functions = []
        for device in range(2):
            use(device)
            functions.append(check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(PTX)), b"add")))

        def view(address, count):
            return np.ctypeslib.as_array((ctypes.c_uint32 * count).from_address(int(address)))

        # Managed memory and what cuMemAllocHost gives: the host and the device of the current context.
        for device in range(2):
            use(device)
            for address in (check(cu.cuMemAllocManaged(8192, Flags.CU_MEM_ATTACH_GLOBAL.value)), check(cu.cuMemAllocHost(8192))):
                words = view(address, 2048)
                words[:] = np.arange(2048)
                launch(functions[device], address, 5, 2048)
                check(cu.cuCtxSynchronize())
                assert (words == np.arange(2048) + 5).all()
        # Pinned memory of one node is the other's host memory.
        use(0)
        pinned = check(cu.cuMemAllocHost(1 << 20))
        words = view(pinned, 1 << 18)
        words[:] = np.arange(1 << 18)
        use(1)
        memory = check(cu.cuMemAlloc(1 << 20))
        stream = check(cu.cuStreamCreate(0))
        check(cu.cuMemcpyHtoDAsync(memory, pinned, 1 << 20, stream))
        launch(functions[1], memory, 1, 1 << 18, stream)
        check(cu.cuMemcpyDtoHAsync(pinned, memory, 1 << 20, stream))
        check(cu.cuStreamSynchronize(stream))
        assert (words == np.arange(1 << 18) + 1).all()
        # Registered host memory has a mirror on one node.
        mine = np.zeros(4096, np.uint32)
        check(cu.cuMemHostRegister(mine.ctypes.data, mine.nbytes, 0))
        mirror = check(cu.cuMemHostGetDevicePointer(mine.ctypes.data, 0))
        launch(functions[1], mirror, 3, 4096)
        check(cu.cuCtxSynchronize())
        assert (mine == 3).all()
        use(0)
        assert cu.cuMemHostGetDevicePointer(mine.ctypes.data, 0)[0] == Error.CUDA_ERROR_NOT_SUPPORTED
        assert "another node" in message()
        check(cu.cuMemHostUnregister(mine.ctypes.data))

        # Stream-ordered memory, by pool.
        for device in (1, 0):
            use(device)
            stream = check(cu.cuStreamCreate(1))
            block = check(cu.cuMemAllocAsync(4096, stream))
            check(cu.cuMemsetD32Async(block, 8, 1024, stream))
            launch(functions[device], block, 1, 1024, stream)
            check(cu.cuStreamSynchronize(stream))
            assert (download(block, np.zeros(1024, np.uint32)) == 9).all()
            check(cu.cuMemFreeAsync(block, stream))

        # The program's own mappings: physical memory of one node is mapped among addresses of its own.
        def properties(device):
            wanted = cu.CUmemAllocationProp()
            wanted.type = Kind.CU_MEM_ALLOCATION_TYPE_PINNED
            wanted.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
            wanted.location.id = device
            return wanted
        for device in range(2):
            use(device)
            size = check(cu.cuMemGetAllocationGranularity(properties(device), cu.CUmemAllocationGranularity_flags(0)))
            place = check(cu.cuMemAddressReserve(size, 0, 0, 0))
            physical = check(cu.cuMemCreate(size, properties(device), 0))
            check(cu.cuMemMap(place, size, 0, physical, 0))
            access = cu.CUmemAccessDesc()
            access.location = properties(device).location
            access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
            check(cu.cuMemSetAccess(place, size, [access], 1))
            check(cu.cuMemsetD32(place, 4, 1024))
            launch(functions[device], place, 2, 1024)
            assert (download(place, np.zeros(1024, np.uint32)) == 6).all()
            check(cu.cuMemUnmap(place, size))
            foreign = check(cu.cuMemCreate(size, properties(1 - device), 0))
            assert cu.cuMemMap(place, size, 0, foreign, 0)[0] == Error.CUDA_ERROR_NOT_SUPPORTED
            assert "several nodes" in message(), message()
            for memory in (physical, foreign):
                check(cu.cuMemRelease(memory))
            check(cu.cuMemAddressFree(place, size))

        # Arrays.
        arrays = []
        for device in range(2):
            use(device)
            shape = cu.CUDA_ARRAY_DESCRIPTOR()
            shape.Width, shape.NumChannels, shape.Format = 256, 1, cu.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT32
            arrays.append(check(cu.cuArrayCreate(shape)))
            content = np.arange(256, dtype=np.uint32) + device
            check(cu.cuMemcpyHtoA(arrays[device], 0, content.ctypes.data, 1024))
        for device in range(2):
            use(device)
            back = np.zeros(256, np.uint32)
            check(cu.cuMemcpyAtoH(back.ctypes.data, arrays[device], 0, 1024))
            assert (back == np.arange(256) + device).all()
        assert cu.cuMemcpyAtoA(arrays[0], 0, arrays[1], 0, 1024)[0] == Error.CUDA_ERROR_NOT_SUPPORTED
        # A second context on the second node, and its end.
        own = check(cu.cuCtxCreate(None, 0, 1))
        assert int(check(cu.cuCtxGetDevice())) == 1
        inside = check(cu.cuMemAlloc(4096))
        check(cu.cuMemsetD8(inside, 1, 4096))
        check(cu.cuCtxSynchronize())
        check(cu.cuCtxDestroy(own))
        # Parts of a device's multiprocessors are a matter of one node.
        assert cu.cuDeviceGetDevResource(1, cu.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM)[0] == Error.CUDA_ERROR_NOT_SUPPORTED
        assert os.fork() or os._exit(cu.cuCtxSynchronize()[0] != Error.CUDA_ERROR_NOT_INITIALIZED)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
        check(cu.cuCtxSynchronize())
        print("ok")
        """,
        TWO,
    )


def test_graphs_are_of_one_node_and_say_so(nodes: SeveralShares) -> None:
    nodes.run(
        """
        functions, memory, streams = [], [], []
        for device in range(2):
            use(device)
            functions.append(check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(PTX)), b"add")))
            memory.append(check(cu.cuMemAlloc(4096)))
            streams.append(check(cu.cuStreamCreate(1)))
            check(cu.cuMemsetD32(memory[device], 0, 1024))
        def node_params(function, address, context=None):
            params = cu.CUDA_KERNEL_NODE_PARAMS()
            params.func = function
            params.gridDimX, params.gridDimY, params.gridDimZ = 4, 1, 1
            params.blockDimX, params.blockDimY, params.blockDimZ = 256, 1, 1
            params.kernelParams = ((int(address), 1, 1024), (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32))
            if context is not None:
                params.ctx = context
            return params
        mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
        for device in (1, 0):
            use(device)
            graph = check(cu.cuGraphCreate(0))
            first = check(cu.cuGraphAddKernelNode(graph, [], 0, node_params(functions[device], memory[device], contexts[device])))
            check(cu.cuGraphAddKernelNode(graph, [first], 1, node_params(functions[device], memory[device])))
            assert int(check(cu.cuGraphKernelNodeGetParams(first)).ctx) == int(contexts[device])
            clear = cu.CUDA_MEMSET_NODE_PARAMS()
            clear.dst, clear.value, clear.elementSize, clear.width, clear.height = memory[1 - device], 0, 4, 16, 1
            refused = cu.cuGraphAddMemsetNode(graph, [], 0, clear, contexts[device])[0]
            assert refused == Error.CUDA_ERROR_NOT_SUPPORTED and "several nodes" in message(), (refused, message())
            refused = cu.cuGraphAddKernelNode(graph, [], 0, node_params(functions[1 - device], memory[device]))[0]
            assert refused == Error.CUDA_ERROR_NOT_SUPPORTED
            run = check(cu.cuGraphInstantiate(graph, 0))
            for _ in range(3):
                check(cu.cuGraphLaunch(run, streams[device]))
            assert cu.cuGraphLaunch(run, streams[1 - device])[0] == Error.CUDA_ERROR_NOT_SUPPORTED
            use(1 - device)  # its end is no matter of the current context
            check(cu.cuStreamSynchronize(streams[device]))
            check(cu.cuGraphExecDestroy(run))
            check(cu.cuGraphDestroy(graph))
            use(device)
            assert (download(memory[device], np.zeros(1024, np.uint32)) == 6).all()
            # A capture takes what its node does.
            check(cu.cuStreamBeginCapture(streams[device], mode))
            launch(functions[device], memory[device], 10, 1024, streams[device])
            across = cu.cuMemcpyDtoDAsync(memory[1 - device], memory[device], 64, streams[device])[0]
            assert across == Error.CUDA_ERROR_NOT_SUPPORTED, across
            captured = check(cu.cuStreamEndCapture(streams[device]))
            run = check(cu.cuGraphInstantiate(captured, 0))
            check(cu.cuGraphLaunch(run, streams[device]))
            check(cu.cuStreamSynchronize(streams[device]))
            assert (download(memory[device], np.zeros(1024, np.uint32)) == 16).all()
        print("ok")
        """,
        TWO,
    )


@pytest.mark.parametrize("major", [12])
def test_the_runtime_api_has_both_devices(nodes: SeveralShares, major: int) -> None:
    nodes.run(
        f"""
        rt = ctypes.CDLL({str(native_file("cudart", f"libcudart.so.{major}"))!r})
        def call(name, *arguments):
            result = getattr(rt, name)(*arguments)
            assert result == 0, (name, result, message())
        count = ctypes.c_int()
        call("cudaGetDeviceCount", ctypes.byref(count))
        assert count.value == 2
        pointers = []
        host = np.arange(1000, dtype=np.uint32)
        for device in range(2):
            call("cudaSetDevice", device)
            pointer = ctypes.c_void_p()
            call("cudaMalloc", ctypes.byref(pointer), ctypes.c_size_t(host.nbytes))
            call("cudaMemset", pointer, 0, ctypes.c_size_t(host.nbytes))
            pointers.append(pointer)
        size = ctypes.c_size_t(host.nbytes)
        call("cudaSetDevice", 0)
        call("cudaMemcpy", pointers[0], ctypes.c_void_p(host.ctypes.data), size, 4)  # cudaMemcpyDefault
        call("cudaMemcpyPeer", pointers[1], 1, pointers[0], 0, size)
        back = np.zeros_like(host)
        call("cudaMemcpy", ctypes.c_void_p(back.ctypes.data), pointers[1], size, 4)
        assert (back == host).all()
        call("cudaMemcpy", pointers[0], pointers[1], ctypes.c_size_t(400), 3)
        can = ctypes.c_int(7)
        call("cudaDeviceCanAccessPeer", ctypes.byref(can), 0, 1)
        assert can.value == 0
        streams, events = [], []
        for device in range(2):
            call("cudaSetDevice", device)
            stream, event = ctypes.c_void_p(), ctypes.c_void_p()
            call("cudaStreamCreate", ctypes.byref(stream))
            call("cudaEventCreate", ctypes.byref(event))
            streams.append(stream)
            events.append(event)
            call("cudaMemsetAsync", pointers[device], device + 1, size, stream)
            call("cudaEventRecord", event, stream)
        call("cudaStreamWaitEvent", streams[1], events[0], 0)
        call("cudaMemcpyPeerAsync", pointers[1], 1, pointers[0], 0, size, streams[1])
        call("cudaStreamSynchronize", streams[1])
        call("cudaMemcpy", ctypes.c_void_p(back.ctypes.data), pointers[1], size, 2)
        assert (back == 0x01010101).all()
        for device in range(2):
            call("cudaSetDevice", device)
            call("cudaDeviceSynchronize")
            call("cudaFree", pointers[device])
        print("ok")
        """,
        TWO,
    )
