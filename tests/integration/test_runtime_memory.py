"""Device memory through the runtime: the bytes, the bounds of the share, the context it belongs to."""

from __future__ import annotations

from pathlib import Path

from tests.support.runtime_share import MIB, SHARE_MIB, Share, share, share_of_a_worker

__all__ = ["share"]  # the fixture


def test_bytes_come_back_as_they_went_for_every_way_of_copying(share: Share) -> None:
    share.run(
        f"""
        start()
        rng = np.random.default_rng(1)
        for size in (1, 100, 16384, 16385, 1 << 20, 50_000_001):
            data = rng.integers(0, 256, size, dtype=np.uint8)
            pointer = upload(data)
            assert (download(pointer, data) == data).all(), size
            copy = check(cu.cuMemAlloc(size))
            check(cu.cuMemcpyDtoD(copy, pointer, size))
            assert (download(copy, data) == data).all(), size
            check(cu.cuMemFree(pointer)); check(cu.cuMemFree(copy))
        rows = rng.integers(0, 256, (33, 100), dtype=np.uint8)
        pointer, pitch = check(cu.cuMemAllocPitch(70, 33, 4))
        c = cu.CUDA_MEMCPY2D()
        c.srcMemoryType, c.srcHost, c.srcPitch = cu.CUmemorytype.CU_MEMORYTYPE_HOST, rows.ctypes.data, 100
        c.dstMemoryType, c.dstDevice, c.dstPitch = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE, pointer, pitch
        c.WidthInBytes, c.Height = 70, 33
        check(cu.cuMemcpy2D(c))
        back = np.zeros((33, 80), dtype=np.uint8)
        c = cu.CUDA_MEMCPY2D()
        c.srcMemoryType, c.srcDevice, c.srcPitch = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE, pointer, pitch
        c.dstMemoryType, c.dstHost, c.dstPitch = cu.CUmemorytype.CU_MEMORYTYPE_HOST, back.ctypes.data, 80
        c.WidthInBytes, c.Height = 70, 33
        check(cu.cuMemcpy2D(c))
        assert (back[:, :70] == rows[:, :70]).all() and (back[:, 70:] == 0).all()
        free, total = check(cu.cuMemGetInfo())
        assert total == {SHARE_MIB * MIB}
        print("ok")
        """
    )


def test_rows_are_in_pinned_memory_when_a_copy_that_waits_returns(share: Share) -> None:
    share.run(
        """
        start()
        context, stream = check(cu.cuCtxGetCurrent()), check(cu.cuStreamCreate(0))
        device, host = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE, cu.CUmemorytype.CU_MEMORYTYPE_HOST
        width, height = 1 << 12, 1 << 10
        size = width * height
        source, pinned = check(cu.cuMemAlloc(size)), int(check(cu.cuMemHostAlloc(size, 0)))
        bytes_there = np.frombuffer((ctypes.c_uint8 * size).from_address(pinned), np.uint8)
        delay = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: time.sleep(0.3))
        slow = cu.CUhostFn(ctypes.cast(delay, ctypes.c_void_p).value)

        def rows(made, height):
            made.srcMemoryType, made.srcDevice, made.srcPitch = device, source, width
            made.dstMemoryType, made.dstHost, made.dstPitch = host, pinned, width
            made.WidthInBytes, made.Height = width, height
            return made

        def planes(made, depth):
            made.srcHeight = made.dstHeight = height // depth
            made.Depth = depth
            return rows(made, height // depth)

        peers = planes(cu.CUDA_MEMCPY3D_PEER(), 2)
        peers.srcContext = peers.dstContext = context
        ways = {
            "rows": (size, lambda: cu.cuMemcpy2D(rows(cu.CUDA_MEMCPY2D(), height))),
            "one row": (width, lambda: cu.cuMemcpy2D(rows(cu.CUDA_MEMCPY2D(), 1))),
            "unaligned": (size, lambda: cu.cuMemcpy2DUnaligned(rows(cu.CUDA_MEMCPY2D(), height))),
            "planes": (size, lambda: cu.cuMemcpy3D(planes(cu.CUDA_MEMCPY3D(), 4))),
            "peers": (size, lambda: cu.cuMemcpy3DPeer(peers)),
        }
        for value, (way, (count, copy)) in enumerate(ways.items(), 1):
            # The null stream comes after this one: what copies in it has a while to wait.
            check(cu.cuLaunchHostFunc(stream, slow, 0))
            check(cu.cuMemsetD8Async(source, value, size, stream))
            check(copy())
            assert (bytes_there[:count] == value).all(), way
        print("ok")
        """
    )


def test_memory_over_the_share_is_refused_without_asking_the_worker(share: Share) -> None:
    share.run(
        f"""
        start()
        check(cu.cuMemAlloc(1))
        before = counters()
        assert cu.cuMemAlloc({(SHARE_MIB + 1) * MIB})[0] == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY
        held = [check(cu.cuMemAlloc({16 * MIB})) for _ in range({SHARE_MIB // 16 - 1})]
        assert cu.cuMemAlloc({16 * MIB})[0] == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY
        assert counters()["asks"] == before["asks"]
        for pointer in held: check(cu.cuMemFree(pointer))
        check(cu.cuMemAlloc({(SHARE_MIB - 4) * MIB}))
        check(cu.cuCtxSynchronize())
        assert counters()["worker"]["memory_used"][0] <= {SHARE_MIB * MIB}
        print("ok")
        """
    )


def test_memory_goes_with_its_context_and_with_no_other(share: Share) -> None:
    share.run(
        f"""
        start()
        first = check(cu.cuCtxGetCurrent())
        data = np.arange(1000)
        here = upload(data)
        free = check(cu.cuMemGetInfo())[0]
        for _ in range(8):
            context = check(cu.cuCtxCreate(None, 0, 0))
            big = check(cu.cuMemAlloc({SHARE_MIB // 4 * MIB}))
            check(cu.cuMemsetD8(big, 1, 1000))
            check(cu.cuCtxDestroy(context))
            check(cu.cuCtxSetCurrent(first))
        check(cu.cuCtxSynchronize())
        assert check(cu.cuMemGetInfo())[0] == free
        assert (download(here, data) == data).all()

        other = check(cu.cuCtxCreate(None, 0, 0))
        there = upload(data)
        check(cu.cuDevicePrimaryCtxReset(0))
        assert (download(there, data) == data).all()
        assert cu.cuMemFree(here)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        attribute = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_CONTEXT
        assert int(check(cu.cuPointerGetAttribute(attribute, there))) == int(other)
        check(cu.cuMemFree(there))
        check(cu.cuCtxSynchronize())
        print("ok")
        """
    )


def test_each_further_context_takes_its_reserve_of_the_share(tmp_path: Path) -> None:
    for small in share_of_a_worker(tmp_path, context_reserve_mib=100, share_mib=256):
        small.run(
            f"""
            start()
            first = check(cu.cuCtxGetCurrent())
            def free():
                return check(cu.cuMemGetInfo())[0] // {MIB}
            assert free() == 156, free()
            second = check(cu.cuCtxCreate(None, 0, 0))
            assert free() == 56, free()
            assert cu.cuCtxCreate(None, 0, 0)[0] == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY
            assert int(check(cu.cuCtxGetCurrent())) == int(second)
            check(cu.cuCtxDestroy(second))
            check(cu.cuCtxSetCurrent(first))
            check(cu.cuCtxSynchronize())
            assert free() == 156, free()

            # The error of an earlier call: the program is not given a context, and none is left.
            memory = upload(np.zeros(4, np.uint32))
            function = ctypes.CDLL("libcuda.so.1").cuMemcpyDtoDAsync_v2
            assert function(ctypes.c_uint64(int(memory)), ctypes.c_uint64(64), ctypes.c_size_t(16), None) == 0
            assert cu.cuCtxCreate(None, 0, 0)[0] not in (0, cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY)
            assert int(check(cu.cuCtxGetCurrent())) == int(first)
            check(cu.cuCtxSynchronize())
            for _ in range(3):
                check(cu.cuCtxDestroy(check(cu.cuCtxCreate(None, 0, 0))))
            print("ok")
            """
        )


def test_a_call_in_a_context_that_another_thread_has_destroyed_is_refused(share: Share) -> None:
    share.run(
        """
        import threading
        start()
        memory = upload(np.zeros(4, np.uint32))
        made, gone, failures = threading.Event(), threading.Event(), []
        others = []
        def work():
            try:
                others.append(check(cu.cuCtxCreate(None, 0, 0)))
                check(cu.cuMemAlloc(4096))
                made.set()
                assert gone.wait(60)
                destroyed = cu.CUresult.CUDA_ERROR_CONTEXT_IS_DESTROYED
                assert cu.cuMemsetD32(memory, 1, 4)[0] == destroyed
                assert cu.cuMemAlloc(4096)[0] == destroyed
                assert cu.cuCtxSynchronize()[0] == destroyed
                assert cu.cuCtxGetDevice()[0] == destroyed
                check(cu.cuCtxSetCurrent(check(cu.cuDevicePrimaryCtxRetain(0))))
                check(cu.cuCtxSynchronize())
            except BaseException as failure:
                failures.append(failure)
                made.set()
        thread = threading.Thread(target=work)
        thread.start()
        assert made.wait(60)
        check(cu.cuCtxDestroy(others[0]))
        gone.set()
        thread.join()
        assert not failures, failures
        assert not download(memory, np.ones(4, np.uint32)).any()
        print("ok")
        """
    )


def test_a_primary_context_is_reset_when_its_last_reference_goes(share: Share) -> None:
    share.run(
        """
        check(cu.cuInit(0))
        most_of_it = 150 << 20
        for turn in range(3):
            context = check(cu.cuDevicePrimaryCtxRetain(0))
            check(cu.cuCtxSetCurrent(context))
            memory = check(cu.cuMemAlloc(most_of_it))
            stream = check(cu.cuStreamCreate(0))
            check(cu.cuDevicePrimaryCtxRetain(0))
            check(cu.cuDevicePrimaryCtxRelease(0))  # another one's reference is left
            assert check(cu.cuDevicePrimaryCtxGetState(0))[1] == 1
            check(cu.cuMemsetD8Async(memory, 1, most_of_it, stream))
            check(cu.cuStreamSynchronize(stream))
            check(cu.cuDevicePrimaryCtxRelease(0))
            assert check(cu.cuDevicePrimaryCtxGetState(0))[1] == 0
            assert cu.cuStreamQuery(stream)[0] == cu.CUresult.CUDA_ERROR_INVALID_HANDLE
        assert cu.cuDevicePrimaryCtxRelease(0)[0] == cu.CUresult.CUDA_ERROR_INVALID_CONTEXT
        print("ok")
        """
    )


def test_memory_of_a_pool_is_freed_after_the_pool_whatever_its_kind(share: Share) -> None:
    share.run(
        """
        start()
        places, kinds = cu.CUmemLocationType, cu.CUmemAllocationType
        for place, kind in (
            (places.CU_MEM_LOCATION_TYPE_HOST, kinds.CU_MEM_ALLOCATION_TYPE_PINNED),
            (places.CU_MEM_LOCATION_TYPE_DEVICE, kinds.CU_MEM_ALLOCATION_TYPE_MANAGED),
            (places.CU_MEM_LOCATION_TYPE_DEVICE, kinds.CU_MEM_ALLOCATION_TYPE_PINNED),
        ):
            wanted = cu.CUmemPoolProps()
            wanted.location.type, wanted.allocType = place, kind
            pool = check(cu.cuMemPoolCreate(wanted))
            by_stream, at_once = (check(cu.cuMemAllocFromPoolAsync(8000, pool, 0)) for _ in range(2))
            check(cu.cuMemPoolDestroy(pool))
            assert cu.cuMemFreeAsync(by_stream, 0)[0] == 0, (place, kind)
            assert cu.cuMemFree(at_once)[0] == 0, (place, kind)
            assert cu.cuMemFreeAsync(by_stream, 0)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        locked = check(cu.cuMemHostAlloc(4096, cu.CU_MEMHOSTALLOC_DEVICEMAP))
        there = check(cu.cuMemHostGetDevicePointer(locked, 0))
        assert cu.cuMemFree(there)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE  # not for what is no pool's
        check(cu.cuMemFreeHost(locked))
        print("ok")
        """
    )


def test_variables_of_an_image_are_forgotten_with_it(share: Share) -> None:
    share.run(
        """
        start()
        PTX = b".version 8.0\\n.target sm_75\\n.address_size 64\\n.visible .global .u32 table[4];\\n\\0"
        kind = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE

        def memory_type(address):
            return cu.cuPointerGetAttribute(kind, cu.CUdeviceptr(int(address) + 4))

        def known(address):
            return memory_type(address)[0] == 0

        def library():
            return check(cu.cuLibraryLoadData(PTX, [], [], 0, [], [], 0))

        ways = (
            (lambda: check(cu.cuModuleLoadData(PTX)), cu.cuModuleGetGlobal, cu.cuModuleUnload),
            (library, cu.cuLibraryGetGlobal, cu.cuLibraryUnload),
        )
        for load, get, unload in ways:
            for turn in range(2):
                image = load()
                table = check(get(image, b"table"))[0]
                assert known(table)
                check(unload(image))
                assert memory_type(table)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        # Two at once: the one that stays keeps its own.
        first, second = (check(cu.cuModuleLoadData(PTX)) for _ in range(2))
        tables = [check(cu.cuModuleGetGlobal(module, b"table"))[0] for module in (first, second)]
        check(cu.cuModuleUnload(first))
        assert [known(table) for table in tables] == [False, True]
        data = np.arange(4, dtype=np.uint32)
        check(cu.cuMemcpy(int(tables[1]), data.ctypes.data, 16))  # still the device's
        assert (download(tables[1], data) == data).all()
        # Those of a library in a context go with the context.
        image = library()
        mine = check(cu.cuLibraryGetGlobal(image, b"table"))[0]
        other = check(cu.cuCtxCreate(None, 0, 0))
        its = check(cu.cuLibraryGetGlobal(image, b"table"))[0]
        assert int(mine) != int(its) and known(its)
        check(cu.cuCtxDestroy(other))
        assert not known(its) and known(mine)
        print("ok")
        """
    )
