"""Virtual memory management by the program, memory pools and batches of copies, through the wire."""

from __future__ import annotations

from tests.support.runtime_share import NUMBA, PRELUDE, Share, share  # noqa: F401

BEGIN = (
    PRELUDE
    + NUMBA
    + """
GRANULE = 2 << 20
about = cu.CUpointer_attribute
START, SIZE = about.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, about.CU_POINTER_ATTRIBUTE_RANGE_SIZE
cuda.current_context()

def properties(device=0):
    made = cu.CUmemAllocationProp()
    made.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    made.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    made.location.id = device
    return made

def access(flags=cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE):
    wanted = cu.CUmemAccessDesc()
    wanted.location = properties().location
    wanted.flags = flags
    return wanted

def array_at(pointer, count):
    class There:
        __cuda_array_interface__ = {"shape": (count,), "typestr": "<i8", "data": (int(pointer), False), "version": 3}
    return cuda.as_cuda_array(There())

def fails(answer, error):
    assert answer[0] == getattr(cu.CUresult, "CUDA_ERROR_" + error), answer

@cuda.jit
def fill(x, value):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = value + i
"""
)


def test_a_segment_grows_and_shrinks_as_pytorch_s_does(share: Share) -> None:  # noqa: F811
    share.run(
        """
        least = cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        assert check(cu.cuMemGetAllocationGranularity(properties(), least)) == GRANULE
        able = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        assert check(cu.cuDeviceGetAttribute(able, 0)) == 1
        free = check(cu.cuMemGetInfo())[0]
        asks = counters()["asks"]
        segment = int(check(cu.cuMemAddressReserve(128 * GRANULE, 0, 0, 0)))
        handles = []
        for n in range(8):                      # an expandable segment grows by granules
            handle = check(cu.cuMemCreate(GRANULE, properties(), 0))
            check(cu.cuMemMap(segment + n * GRANULE, GRANULE, 0, handle, 0))
            handles.append(handle)
        check(cu.cuMemSetAccess(segment, 8 * GRANULE, [access()], 1))
        assert counters()["asks"] == asks       # all without waiting
        assert check(cu.cuMemGetInfo())[0] == free - 8 * GRANULE

        count = 8 * GRANULE // 8
        whole = array_at(segment, count)
        fill[(count + 255) // 256, 256](whole, 5)
        np.testing.assert_array_equal(whole.copy_to_host(), np.arange(count) + 5)
        module = free - 8 * GRANULE - check(cu.cuMemGetInfo())[0]   # the kernel's own variables
        assert 0 <= module < 4096
        free -= module
        assert int(check(cu.cuPointerGetAttribute(START, segment + 3 * GRANULE))) == segment
        assert int(check(cu.cuPointerGetAttribute(SIZE, segment))) == 128 * GRANULE

        for n in (2, 3):                        # the middle goes, the rest stays
            check(cu.cuMemUnmap(segment + n * GRANULE, GRANULE))
            check(cu.cuMemRelease(handles[n]))
        assert check(cu.cuMemGetInfo())[0] == free - 6 * GRANULE
        after = array_at(segment + 4 * GRANULE, GRANULE // 8).copy_to_host()
        np.testing.assert_array_equal(after, np.arange(GRANULE // 8) + 5 + 4 * GRANULE // 8)
        fails(cu.cuMemAddressFree(segment, 128 * GRANULE), "INVALID_VALUE")
        check(cu.cuMemUnmap(segment, 2 * GRANULE))
        check(cu.cuMemUnmap(segment + 4 * GRANULE, 4 * GRANULE))
        for n in (0, 1, 4, 5, 6, 7):
            check(cu.cuMemRelease(handles[n]))
        check(cu.cuMemAddressFree(segment, 128 * GRANULE))
        cuda.synchronize()
        assert check(cu.cuMemGetInfo())[0] == free
        print("ok")
        """,
        BEGIN,
    )


def test_one_memory_at_two_addresses_is_one_memory(share: Share) -> None:  # noqa: F811
    share.run(
        """
        handle = check(cu.cuMemCreate(2 * GRANULE, properties(), 0))
        places = [int(check(cu.cuMemAddressReserve(4 * GRANULE, 0, 0, 0))) for _ in range(2)]
        for place in places:
            check(cu.cuMemMap(place + GRANULE, 2 * GRANULE, 0, handle, 0))
            check(cu.cuMemSetAccess(place + GRANULE, 2 * GRANULE, [access()], 1))
        check(cu.cuMemRelease(handle))          # the mappings keep it
        fill[4, 256](array_at(places[0] + GRANULE, 1000), 7)
        np.testing.assert_array_equal(array_at(places[1] + GRANULE, 1000).copy_to_host(), np.arange(1000) + 7)
        again = check(cu.cuMemRetainAllocationHandle(places[1] + GRANULE))
        assert check(cu.cuMemGetAllocationPropertiesFromHandle(again)).location.id == 0
        check(cu.cuMemRelease(again))

        none = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_NONE
        check(cu.cuMemSetAccess(places[0] + GRANULE, 2 * GRANULE, [access(none)], 1))
        assert check(cu.cuMemGetAccess(properties().location, places[0] + GRANULE)) == 0
        host = np.zeros(4, np.int64)
        fails(cu.cuMemcpyDtoH(host.ctypes.data, places[0] + GRANULE, 32), "INVALID_VALUE")
        check(cu.cuMemcpyDtoH(host.ctypes.data, places[1] + GRANULE, 32))
        assert list(host) == [7, 8, 9, 10]
        for place in places:
            check(cu.cuMemUnmap(place + GRANULE, 2 * GRANULE))
            check(cu.cuMemAddressFree(place, 4 * GRANULE))
        fails(cu.cuMemCreate(1 << 40, properties(), 0), "OUT_OF_MEMORY")
        print("ok")
        """,
        BEGIN,
    )


def test_pools_count_what_is_theirs_and_a_device_s_current_pool_is_used(share: Share) -> None:  # noqa: F811
    share.run(
        """
        used = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
        high = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_HIGH
        def value(pool, which=used):
            return int(check(cu.cuMemPoolGetAttribute(pool, which)))
        props = cu.CUmemPoolProps()
        props.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        props.location = properties().location
        props.maxSize = 1 << 20
        pool, default = check(cu.cuMemPoolCreate(props)), check(cu.cuDeviceGetDefaultMemPool(0))
        asks = counters()["asks"]
        first = check(cu.cuMemAllocAsync(4096, 0))
        check(cu.cuDeviceSetMemPool(0, pool))
        assert int(check(cu.cuDeviceGetMemPool(0))) == int(pool)
        second = check(cu.cuMemAllocAsync(8192, 0))
        fails(cu.cuMemAllocAsync(1 << 20, 0), "OUT_OF_MEMORY")
        assert (value(default), value(pool), value(pool, high)) == (4096, 8192, 8192)
        assert counters()["asks"] == asks
        handle = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
        assert int(check(cu.cuPointerGetAttribute(handle, second))) == int(pool)
        check(cu.cuMemFreeAsync(second, 0))
        check(cu.cuMemFreeAsync(first, 0))
        assert (value(default), value(pool), value(pool, high)) == (0, 0, 8192)
        check(cu.cuMemPoolDestroy(pool))
        assert int(check(cu.cuDeviceGetMemPool(0))) == int(default)

        # Pools of managed and of host memory, which both sides use.
        host = cu.CUmemLocation()
        host.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
        kinds = cu.CUmemAllocationType
        for place, kind in (
            (host, kinds.CU_MEM_ALLOCATION_TYPE_PINNED),
            (properties().location, kinds.CU_MEM_ALLOCATION_TYPE_MANAGED),
        ):
            pool = check(cu.cuMemGetDefaultMemPool(place, kind))
            assert int(check(cu.cuMemGetMemPool(place, kind))) == int(pool)
            pointer = int(check(cu.cuMemAllocFromPoolAsync(8000, pool, 0)))
            view = np.frombuffer((ctypes.c_int64 * 1000).from_address(pointer), np.int64)
            assert not view.any()
            fill[4, 256](array_at(pointer, 1000), 3)
            np.testing.assert_array_equal(view, np.arange(1000) + 3)
            check(cu.cuMemFreeAsync(pointer, 0))
        print("ok")
        """,
        BEGIN,
    )


def test_a_reset_of_the_primary_context_takes_what_pools_count_as_used(share: Share) -> None:  # noqa: F811
    share.run(
        """
        def used():
            which = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
            return [int(check(cu.cuMemPoolGetAttribute(one, which))) for one in pools]
        props = cu.CUmemPoolProps()
        props.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        props.location = properties().location
        props.maxSize = 1 << 20
        pools = [check(cu.cuDeviceGetDefaultMemPool(0)), check(cu.cuMemPoolCreate(props))]
        gone = check(cu.cuMemPoolCreate(props))
        check(cu.cuMemAllocFromPoolAsync(4096, gone, 0))
        check(cu.cuMemPoolDestroy(gone))        # its memory is freed with the others'
        free = []
        for turn in range(3):
            check(cu.cuMemAllocAsync(3 << 10, 0))
            check(cu.cuMemAllocAsync(1 << 10, 0))
            check(cu.cuMemAllocFromPoolAsync(1 << 20, pools[1], 0))
            assert used() == [4 << 10, 1 << 20]
            fails(cu.cuMemAllocFromPoolAsync(1, pools[1], 0), "OUT_OF_MEMORY")
            check(cu.cuDevicePrimaryCtxReset(0))
            assert used() == [0, 0]
            free.append(check(cu.cuMemGetInfo())[0])
        assert len(set(free)) == 1, free
        kept = check(cu.cuMemAllocFromPoolAsync(1 << 20, pools[1], 0))
        other = check(cu.cuCtxCreate(None, 0, 0))
        check(cu.cuCtxDestroy(other))           # the pools' memory is of no context but the primary one
        assert used() == [0, 1 << 20]
        check(cu.cuMemFreeAsync(kept, 0))
        assert used() == [0, 0]
        print("ok")
        """,
        BEGIN,
    )


def test_a_batch_of_copies_goes_in_all_directions(share: Share) -> None:  # noqa: F811
    share.run(
        """
        stream = check(cu.cuStreamCreate(0))
        host, back = np.arange(1000), np.zeros(1000, np.int64)
        one, two = (check(cu.cuMemAlloc(8000)) for _ in range(2))
        order = cu.CUmemcpyAttributes()
        order.srcAccessOrder = cu.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
        def batch(to, source):
            return cu.cuMemcpyBatchAsync([cu.CUdeviceptr(int(a)) for a in to], [cu.CUdeviceptr(int(a)) for a in source],
                                         [4000] * len(to), len(to), [order], [0], 1, stream)
        check(batch([one, int(one) + 4000], [host.ctypes.data, host.ctypes.data + 4000]))
        check(batch([two], [one]))
        check(batch([back.ctypes.data, back.ctypes.data + 4000], [two, int(one) + 4000]))
        check(cu.cuStreamSynchronize(stream))
        np.testing.assert_array_equal(host, back)
        back[:] = 0
        check(cu.cuMemcpyWithAttributesAsync(cu.CUdeviceptr(back.ctypes.data), one, 8000, order, stream))
        check(cu.cuStreamSynchronize(stream))
        np.testing.assert_array_equal(host, back)
        order.srcAccessOrder = cu.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_INVALID
        fails(batch([two], [one]), "INVALID_VALUE")
        print("ok")
        """,
        BEGIN,
    )
