"""Rare parts of the driver API through the runtime: green contexts, tensor maps, old launches, logs, entry points."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.runtime_share import Share, share

__all__ = ["share"]  # the fixture

KERNEL = '''
STORE = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry store(.param .u64 out, .param .u32 value, .param .f32 factor)
{
    .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .f32 %f<4>;
    ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [value]; ld.param.f32 %f1, [factor];
    cvt.rn.f32.u32 %f2, %r1;
    mul.f32 %f2, %f2, %f1;
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd2, %r2, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.f32 [%rd3], %f2;
    ret;
}
"""

def store():
    module = check(cu.cuModuleLoadData(STORE))
    return check(cu.cuModuleGetFunction(module, b"store"))
'''


def test_names_of_old_programs_say_what_to_use_instead(share: Share) -> None:
    share.run(
        KERNEL
        + """
start()
function = store()
old = ctypes.CDLL("libcuda.so.1")
NO = 801
address = ctypes.c_uint(7)
assert old.cuMemAlloc(ctypes.byref(address), 4096) == NO
assert "ending in _v2" in message() and address.value == 7
assert check(cu.cuFuncGetParamCount(function)) == 3
context, current = ctypes.c_void_p(), ctypes.c_void_p()
assert old.cuCtxCreate(ctypes.byref(context), 0, 0) == 0
assert old.cuCtxAttach(ctypes.byref(current), 0) == 0
assert current.value == context.value
assert old.cuCtxDetach(context) == 0
assert int(check(cu.cuCtxGetCurrent())) == context.value
assert old.cuCtxDetach(context) == 0  # as often as created and attached
assert int(check(cu.cuCtxGetCurrent())) != context.value
check(cu.cuCtxSynchronize())
print("ok")
"""
    )


def test_a_kernel_runs_on_a_part_of_the_device(share: Share) -> None:
    share.run(
        KERNEL
        + """
start()
kind = cu.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
whole = check(cu.cuDeviceGetDevResource(0, kind))
assert whole.sm.smCount >= 4
groups, count, rest = check(cu.cuDevSmResourceSplitByCount(2, whole, 0, 2))
assert count == 2
assert sum(group.sm.smCount for group in groups) + rest.sm.smCount == whole.sm.smCount
description = check(cu.cuDevResourceGenerateDesc([groups[1]], 1))
green = check(cu.cuGreenCtxCreate(description, 0, cu.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM))
context = check(cu.cuCtxFromGreenCtx(green))
assert int(context) == int(check(cu.cuCtxFromGreenCtx(green)))
assert check(cu.cuCtxGetDevResource(context, kind)).sm.smCount == groups[1].sm.smCount
check(cu.cuCtxPushCurrent(context))
assert int(check(cu.cuCtxGetDevice())) == 0
stream = check(cu.cuGreenCtxStreamCreate(green, cu.CUstream_flags.CU_STREAM_NON_BLOCKING, 0))
assert int(check(cu.cuStreamGetGreenCtx(stream))) == int(green)
assert int(check(cu.cuStreamGetCtx(stream))) == int(context)
function = store()
memory = upload(np.zeros(4, np.float32))
arguments = ((memory, 3, 5.0), (None, ctypes.c_uint, ctypes.c_float))
check(cu.cuLaunchKernel(function, 1, 1, 1, 4, 1, 1, 0, stream, arguments, 0))
event = check(cu.cuEventCreate(0))
check(cu.cuGreenCtxRecordEvent(green, event))
check(cu.cuEventSynchronize(event))
assert download(memory, np.empty(4, np.float32)).tolist() == [15.0] * 4
assert cu.cuCtxDestroy(context)[0] == cu.CUresult.CUDA_ERROR_INVALID_CONTEXT
check(cu.cuStreamDestroy(stream))
check(cu.cuCtxPopCurrent())
check(cu.cuGreenCtxDestroy(green))
assert cu.cuCtxPushCurrent(context)[0] == cu.CUresult.CUDA_ERROR_INVALID_CONTEXT
assert int(check(cu.cuStreamGetGreenCtx(0))) == 0
invented = cu.CUdevResource()
invented.type = kind
invented.sm.smCount = 1
answer = cu.cuDevResourceGenerateDesc([invented], 1)[0]
assert answer == cu.CUresult.CUDA_SUCCESS or answer == cu.CUresult.CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION
print("ok")
"""
    )


def test_cluster_occupancy_is_the_drivers_answer(share: Share) -> None:
    share.run(
        KERNEL
        + """
start()
function = store()
config = cu.CUlaunchConfig()
config.gridDimX = config.gridDimY = config.gridDimZ = 1
config.blockDimX, config.blockDimY, config.blockDimZ = 64, 1, 1
assert check(cu.cuOccupancyMaxPotentialClusterSize(function, config)) == 1
per_processor = check(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, 64, 0))
processors = check(cu.cuDeviceGetAttribute(cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0))
assert check(cu.cuOccupancyMaxActiveClusters(function, config)) == per_processor * processors
print("ok")
"""
    )


def test_tensor_maps_are_the_drivers_to_encode(share: Share) -> None:
    share.run(
        """
        start()
        memory = upload(np.zeros(1 << 16, np.float32))
        answer = cu.cuTensorMapEncodeTiled(
            cu.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, memory,
            [cu.cuuint64_t(64), cu.cuuint64_t(64)], [cu.cuuint64_t(256)],
            [cu.cuuint32_t(16), cu.cuuint32_t(16)], [cu.cuuint32_t(1), cu.cuuint32_t(1)],
            cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            cu.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_NONE,
            cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
            cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        assert answer[0] == cu.CUresult.CUDA_ERROR_NOT_SUPPORTED  # the software GPU has none
        assert counters()["asks_by_name"]["cuTensorMapEncodeTiled"][0] == 1, counters()
        print("ok")
        """
    )


def test_refusals_are_in_the_log_of_cuda(share: Share) -> None:
    share.run(
        """
        start()
        old = ctypes.CDLL("libcuda.so.1")
        heard = []
        Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
        callback = Callback(lambda data, level, text, size: heard.append(ctypes.string_at(text, size).decode()))
        handle, iterator = ctypes.c_void_p(), ctypes.c_uint()
        asks = counters()["asks"]
        assert old.cuLogsRegisterCallback(callback, None, ctypes.byref(handle)) == 0
        assert counters()["asks"] == asks, "no round trip"
        assert old.cuLogsCurrent(ctypes.byref(iterator), 0) == 0
        assert cu.cuGraphicsUnregisterResource(cu.CUgraphicsResource(0))[0] == 801
        assert len(heard) == 1 and "graphics" in heard[0]
        text, size = ctypes.create_string_buffer(1000), ctypes.c_size_t(1000)
        assert old.cuLogsDumpToMemory(ctypes.byref(iterator), text, ctypes.byref(size), 0) == 0
        assert "cuGraphicsUnregisterResource" in text.value.decode() and size.value == len(text.value)
        assert old.cuLogsUnregisterCallback(handle) == 0
        assert old.cuLogsUnregisterCallback(handle) == 1
        value, length = ctypes.c_bool(True), ctypes.c_size_t(1)
        assert old.cuCoredumpGetAttribute(1, ctypes.byref(value), ctypes.byref(length)) == 0
        assert value.value is False
        assert old.cuCoredumpSetAttribute(1, ctypes.byref(value), ctypes.byref(length)) == 0
        value.value = True
        assert old.cuCoredumpSetAttribute(1, ctypes.byref(value), ctypes.byref(length)) == 801
        print("ok")
        """
    )


def test_a_callback_of_the_log_may_make_the_calls_that_a_refusal_asks_for(share: Share) -> None:
    share.run(
        """
        start()
        old = ctypes.CDLL("libcuda.so.1")
        heard, answers = [], []

        @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
        def callback(data, level, text, size):
            heard.append(ctypes.string_at(text, size).decode())
            answers.append(give_way())

        handle = ctypes.c_void_p()
        assert old.cuLogsRegisterCallback(callback, None, ctypes.byref(handle)) == 0
        Refused = cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY

        made = cu.CUmemAllocationProp()
        made.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        made.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        held = check(cu.cuMemCreate(2 << 20, made, 0))
        give_way = lambda: cu.cuMemRelease(held)[0]
        assert cu.cuMemCreate(1 << 40, made, 0)[0] == Refused
        assert len(heard) == 1 and "out of memory" in heard[0], heard

        wanted = cu.CUmemPoolProps()
        wanted.location, wanted.allocType, wanted.maxSize = made.location, made.type, 1 << 20
        pool = check(cu.cuMemPoolCreate(wanted))
        block = check(cu.cuMemAllocFromPoolAsync(4096, pool, 0))
        give_way = lambda: cu.cuMemFreeAsync(block, 0)[0]
        assert cu.cuMemAllocFromPoolAsync(1 << 20, pool, 0)[0] == Refused
        assert len(heard) == 2 and "maxSize" in heard[1], heard

        pinned = check(cu.cuMemHostAlloc(4096, 0))
        give_way = lambda: cu.cuMemFreeHost(pinned)[0]
        assert cu.cuMemAlloc(1 << 40)[0] == Refused
        assert len(heard) == 3, heard
        assert answers == [0, 0, 0], answers
        print("ok")
        """,
        timeout=60,
    )


def test_every_entry_point_is_found_in_every_version(share: Share) -> None:
    rows = Path(__file__).parents[2] / "build" / "native" / "generated" / "proc_addresses.cpp"
    table = re.findall(
        r'\{"(\w+)", (true|false), (\d+), reinterpret_cast<void\*>\(&::(\w+)\)\}', rows.read_text()
    )
    assert len(table) > 600
    path = share.file.with_name("table")
    path.write_text("\n".join(" ".join(row) for row in table))
    share.run(
        f"""
        check(cu.cuInit(0))
        library = ctypes.CDLL("libcuda.so.1")
        version = check(cu.cuDriverGetVersion())
        look_up = library.cuGetProcAddress_v2
        checked = 0
        for line in open({str(path)!r}).read().splitlines():
            base, per_thread, first, export = line.split()
            if int(first) > version:
                continue
            address, status = ctypes.c_void_p(), ctypes.c_int()
            flags = 2 if per_thread == "true" else 1
            arguments = (base.encode(), ctypes.byref(address), int(first), ctypes.c_uint64(flags), ctypes.byref(status))
            assert look_up(*arguments) == 0, export
            wanted = ctypes.cast(getattr(library, export), ctypes.c_void_p).value
            assert (status.value, address.value) == (0, wanted), export
            checked += 1
        assert checked > 600, checked
        print("ok")
        """
    )


def test_an_event_covers_all_streams_of_a_context(share: Share) -> None:
    share.run(
        """
        start()
        streams = [check(cu.cuStreamCreate(1)) for _ in range(3)]
        memory = [check(cu.cuMemAlloc(1 << 20)) for _ in streams]
        for stream, address in zip(streams, memory):
            check(cu.cuMemsetD8Async(address, 7, 1 << 20, stream))
        event = check(cu.cuEventCreate(0))
        context = check(cu.cuCtxGetCurrent())
        check(cu.cuCtxRecordEvent(context, event))
        check(cu.cuEventSynchronize(event))
        not_ready = cu.CUresult.CUDA_ERROR_NOT_READY
        for stream, address in zip(streams, memory):
            # The worker's own event, for device time, may be behind the work for a moment.
            while (answer := cu.cuStreamQuery(stream)[0]) == not_ready:
                pass
            assert answer == 0
            assert (download(address, np.empty(1 << 20, np.uint8)) == 7).all()
        check(cu.cuCtxWaitEvent(context, event))
        check(cu.cuCtxSynchronize())
        print("ok")
        """
    )


def test_devices_do_not_reach_each_other_and_say_so(share: Share) -> None:
    share.run(
        """
        start()
        Error = cu.CUresult
        attributes = cu.CUdevice_P2PAttribute
        own = check(cu.cuCtxGetCurrent())
        other = check(cu.cuCtxCreate(None, 0, 0))
        asks = counters()["asks"]
        assert check(cu.cuDeviceCanAccessPeer(0, 0)) == 0
        assert cu.cuDeviceCanAccessPeer(0, 1)[0] == Error.CUDA_ERROR_INVALID_DEVICE
        rank = attributes.CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK
        assert cu.cuDeviceGetP2PAttribute(rank, 0, 0)[0] == Error.CUDA_ERROR_INVALID_DEVICE
        assert cu.cuDeviceGetP2PAttribute(rank, 0, 1)[0] == Error.CUDA_ERROR_INVALID_DEVICE
        operations, capabilities = (ctypes.c_int * 2)(), (ctypes.c_uint * 2)()
        atomics = ctypes.CDLL("libcuda.so.1").cuDeviceGetP2PAtomicCapabilities
        assert atomics(capabilities, operations, 2, 0, 0) == 101
        assert cu.cuCtxEnablePeerAccess(own, 0)[0] == Error.CUDA_ERROR_PEER_ACCESS_UNSUPPORTED
        assert cu.cuCtxEnablePeerAccess(own, 1)[0] == Error.CUDA_ERROR_INVALID_VALUE
        assert cu.cuCtxEnablePeerAccess(other, 0)[0] == Error.CUDA_ERROR_INVALID_CONTEXT, "it is current"
        assert cu.cuCtxEnablePeerAccess(cu.CUcontext(7), 0)[0] == Error.CUDA_ERROR_INVALID_CONTEXT
        assert cu.cuCtxDisablePeerAccess(own)[0] == Error.CUDA_ERROR_PEER_ACCESS_NOT_ENABLED
        assert cu.cuCtxDisablePeerAccess(cu.CUcontext(7))[0] == Error.CUDA_ERROR_INVALID_CONTEXT
        assert counters()["asks"] == asks, "no round trip"
        # Copies between contexts need no such access.
        here = upload(np.arange(100))
        check(cu.cuCtxSetCurrent(own))
        there = upload(np.zeros(100, np.int64))
        check(cu.cuMemcpyPeer(there, own, here, other, 800))
        assert download(there, np.empty(100, np.int64)).tolist() == list(range(100))
        print("ok")
        """
    )


def test_what_a_device_lacks_is_the_driver_s_answer(share: Share) -> None:
    share.run(
        KERNEL
        + """
start()
old = ctypes.CDLL("libcuda.so.1")
NO, BAD = 801, 1
asks_before = counters()["asks"]
attribute = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED
assert check(cu.cuDeviceGetAttribute(attribute, 0)) == 0
prop = cu.CUmulticastObjectProp()
prop.numDevices, prop.size = 1, 2 << 20
assert cu.cuMulticastCreate(prop)[0] == NO
assert "NVSwitch" in message()

first, count, status = ctypes.c_uint(), ctypes.c_size_t(4), ctypes.c_int()
assert old.cuLogicalEndpointIdReserve(ctypes.byref(first), 1) == NO
assert old.cuLogicalEndpointQuery(3, 1, ctypes.byref(status)) == NO
assert counters()["asks"] == asks_before, "no round trip"
cliques = (ctypes.c_uint * 8)()
assert old.cuDeviceGetCliqueInfo(cliques, ctypes.byref(count), 0) == NO
luid = ctypes.create_string_buffer(8)
assert old.cuDeviceGetLuid(luid, ctypes.byref(first), 0) == NO
asked = counters()["asks_by_name"]
assert asked["cuDeviceGetCliqueInfo"][0] == 1 and asked["cuDeviceGetLuid"][0] == 1, asked

# A library without managed variables; one that is found is the driver's address.
library = check(cu.cuLibraryLoadData(STORE, None, None, 0, None, None, 0))
assert cu.cuLibraryGetManaged(library, b"store")[0] == 500
asks = counters()["asks"]
managed = check(cu.cuMemAllocManaged(4096, 1))
location = (ctypes.c_int * 2)()
places = lambda size, summary, sample: old.cuMemGetLocationInfo(
    ctypes.c_uint64(int(managed)), ctypes.c_size_t(size), ctypes.c_size_t(summary), ctypes.c_size_t(sample), location)
assert places(4096, 4096, 0) == NO, "as CONCURRENT_MANAGED_ACCESS says"
assert places(4096, 8192, 0) == BAD
stream = check(cu.cuStreamCreate(0))
assert old.cuStreamEndCaptureToCig(ctypes.c_void_p(int(stream))) == BAD
assert old.cuStreamBeginCaptureToCig(ctypes.c_void_p(int(stream)), cliques) == 201, "no context of a graphics interface"
handle, callback = ctypes.c_void_p(), ctypes.CFUNCTYPE(None)(lambda: None)
assert old.cuDeviceRegisterAsyncNotification(0, callback, None, ctypes.byref(handle)) == 0
assert old.cuDeviceRegisterAsyncNotification(5, callback, None, ctypes.byref(handle)) == 101
assert old.cuDeviceUnregisterAsyncNotification(0, handle) == 0
assert old.cuDeviceUnregisterAsyncNotification(0, handle) == BAD
assert counters()["asks"] == asks, "no round trip"
print("ok")
"""
    )


def test_much_work_behind_a_host_function_does_not_stand_before_its_answer(share: Share) -> None:
    share.run(
        """
        start()
        stream = check(cu.cuStreamCreate(1))
        word = upload(np.zeros(1, np.uint32))
        called = []
        def slow(_):
            time.sleep(0.3)
            called.append(True)
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(slow)
        launch = ctypes.CDLL("libcuda.so.1").cuLaunchHostFunc
        assert launch(ctypes.c_void_p(int(stream)), function, None) == 0
        for n in range(6000):                   # more than a driver takes without making the caller wait
            check(cu.cuMemsetD32Async(word, n, 1, stream))
        check(cu.cuStreamSynchronize(stream))
        assert called and download(word, np.empty(1, np.uint32))[0] == 5999
        print("ok")
        """
    )


def test_a_device_is_found_by_each_way_to_write_its_place_on_the_bus(share: Share) -> None:
    share.run(
        """
        start()
        bus = check(cu.cuDeviceGetPCIBusId(64, 0)).split(b"\\0")[0].decode()
        domain, number, rest = bus.split(":")
        device, function = rest.split(".")
        ways = (bus, bus.upper(), f"0000{domain}:{number}:{rest}", f"{domain}:{number}:{device}", f"{number}:{rest}")
        for way in ways[: 4 if int(domain, 16) else 5]:
            assert int(check(cu.cuDeviceGetByPCIBusId(way.encode()))) == 0, way
        for way, error in (("ffff:1f:1f.0", "DEVICE"), ("", "VALUE"), ("1f", "VALUE"), (bus + "z", "VALUE")):
            assert cu.cuDeviceGetByPCIBusId(way.encode())[0].name == f"CUDA_ERROR_INVALID_{error}", way
        print("ok")
        """
    )
