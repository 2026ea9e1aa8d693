"""Memory that host and device use at the same addresses: managed, mapped and registered memory, through the wire."""

from __future__ import annotations

import signal

from tests.support.runtime_share import NUMBA, PRELUDE, Share, share  # noqa: F401

KERNELS = (
    PRELUDE
    + NUMBA
    + """
@cuda.jit
def scale(x, factor):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= factor

def launch(x, factor):
    scale[(x.size + 255) // 256, 256](x, factor)

def round_trips():
    return counters()["asks"]
"""
)


def test_host_and_device_write_a_managed_array_in_turn(share: Share) -> None:  # noqa: F811
    share.run(
        """
        x = cuda.managed_array(100_000, dtype=np.float64)
        assert not x.any()
        x[:] = np.arange(x.size)
        for step in range(5):
            launch(x, 2.0)
            x[step] = -1.0                      # waits for the device by itself
            np.testing.assert_array_equal(x[10:], np.arange(10, x.size) * 2.0 ** (step + 1))
            assert x[step] == -1.0
        launch(x, 1.0)
        cuda.synchronize()
        assert list(x[:5]) == [-16.0, -8.0, -4.0, -2.0, -1.0]
        print("ok")
        """,
        KERNELS,
    )


def test_managed_memory_is_cleared_when_its_place_was_used_before(share: Share) -> None:  # noqa: F811
    share.run(
        """
        for size in (10, 1000, 300_000):
            for _ in range(3):
                pointer = check(cu.cuMemAlloc(size * 8)) if not (cuda.current_context() and 0) else 0
                check(cu.cuMemsetD8(pointer, 0xFF, size * 8))
                check(cu.cuMemFree(pointer))
                x = cuda.managed_array(size, dtype=np.int64)
                assert not x.any(), x
                launch(x, 3)
                cuda.synchronize()
                assert not x.any(), x
                x[:] = 5
                del x
        print("ok")
        """,
        KERNELS,
    )


def test_copies_and_fills_of_every_kind_take_managed_memory_on_either_side(share: Share) -> None:  # noqa: F811
    share.run(
        """
        cuda.current_context()
        managed = cuda.managed_array(50_000, dtype=np.int32)
        address = managed.ctypes.data
        host = np.arange(managed.size, dtype=np.int32)
        managed[:] = host

        there = check(cu.cuMemAlloc(host.nbytes))
        back = np.empty_like(host)
        for size in (host.nbytes, 4096, 12):    # large and small copies travel differently
            check(cu.cuMemsetD8(there, 0, host.nbytes))
            check(cu.cuMemcpyHtoD(there, address, size))                  # from memory that the host wrote
            check(cu.cuMemcpyDtoH(back.ctypes.data, there, host.nbytes))
            np.testing.assert_array_equal(back[: size // 4], host[: size // 4])
            assert not back[size // 4 :].any()

        check(cu.cuMemsetD32(there, 7, managed.size))
        check(cu.cuMemcpyDtoH(address, there, host.nbytes))
        assert (managed == 7).all()
        managed[3] = 4
        check(cu.cuMemcpyDtoH(back.ctypes.data, address, host.nbytes))    # the device reads what the host wrote
        assert back[3] == 4 and back[4] == 7
        check(cu.cuMemsetD32(address, 9, 10))
        assert list(managed[8:12]) == [9, 9, 7, 7]
        check(cu.cuMemcpy(address, host.ctypes.data, host.nbytes))
        np.testing.assert_array_equal(managed, host)

        copy = cu.CUDA_MEMCPY2D()
        copy.srcMemoryType = copy.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_HOST
        copy.srcHost, copy.srcPitch = address, 400
        copy.dstHost, copy.dstPitch = back.ctypes.data, 200
        copy.WidthInBytes, copy.Height = 40, 20
        check(cu.cuMemcpy2D(copy))
        np.testing.assert_array_equal(back[:1000].reshape(20, 50)[:, :10], host[:2000].reshape(20, 100)[:, :10])
        print("ok")
        """,
        KERNELS,
    )


def test_threads_share_managed_arrays(share: Share) -> None:  # noqa: F811
    share.run(
        """
        import threading
        cuda.current_context()
        arrays = [cuda.managed_array(40_000, dtype=np.int64) for _ in range(4)]
        failures = []

        def work(x, seed):
            try:
                stream = cuda.stream()
                for round in range(20):
                    x[:] = np.arange(x.size) + seed
                    scale[(x.size + 255) // 256, 256, stream](x, 3)
                    stream.synchronize()
                    expected = (np.arange(x.size) + seed) * 3
                    assert (x == expected).all(), (seed, round)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(x, n)) for n, x in enumerate(arrays)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert not failures, failures
        print("ok")
        """,
        KERNELS,
    )


def test_only_touched_pages_travel_and_reading_in_order_takes_few_fetches(share: Share) -> None:  # noqa: F811
    share.run(
        """
        cuda.current_context()
        x = cuda.managed_array(12 << 20, dtype=np.int64)                  # 96 MiB
        launch(x, 1)
        cuda.synchronize()
        before = counters()
        x[5_000_000] = 1
        assert x[5_000_001] == 0
        launch(x, 2)
        assert x[5_000_000] == 2
        after = counters()
        moved = sum(after[key] - before[key] for key in after if key.startswith("bytes"))
        assert 0 < moved < 512 << 10, (moved, after)
        assert int(x.sum()) == 2
        assert round_trips() - after["asks"] < 40, counters()
        print("ok")
        """,
        KERNELS,
    )


def test_advice_and_prefetching_are_hints_that_are_remembered(share: Share) -> None:  # noqa: F811
    share.run(
        """
        cuda.current_context()
        x = cuda.managed_array(1 << 20, dtype=np.uint8)
        address = x.ctypes.data
        here = cu.CUmemLocation()
        here.type, here.id = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 0
        advice, ask = cu.CUmem_advise, cu.CUmem_range_attribute
        check(cu.cuMemAdvise(address, x.nbytes, advice.CU_MEM_ADVISE_SET_READ_MOSTLY, here))
        check(cu.cuMemAdvise(address, 4096, advice.CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here))
        x[:] = 3
        check(cu.cuMemPrefetchAsync(address, x.nbytes, here, 0, 0))
        def attribute(which, size=4096):
            return check(cu.cuMemRangeGetAttribute(4, which, address, size))
        assert attribute(ask.CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, x.nbytes) == 1
        assert attribute(ask.CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION) == 0
        assert attribute(ask.CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, 8192) == -2
        assert attribute(ask.CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, x.nbytes) == 0
        launch(x, 2)
        cuda.synchronize()
        assert (x == 6).all()
        outside = cu.cuMemAdvise(address, x.nbytes + 1, advice.CU_MEM_ADVISE_SET_READ_MOSTLY, here)
        assert outside[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        kind = cu.CUpointer_attribute
        assert check(cu.cuPointerGetAttribute(kind.CU_POINTER_ATTRIBUTE_IS_MANAGED, address + 5)) in (1, True)
        print("ok")
        """,
        KERNELS,
    )


def test_mapped_and_pinned_and_registered_host_memory_is_the_kernel_s_too(share: Share) -> None:  # noqa: F811
    share.run(
        """
        with cuda.pinned(np.zeros(3)):
            pass
        mapped = cuda.mapped_array(5000, dtype=np.float32)
        mapped[:] = 2
        launch(mapped, 4)
        cuda.synchronize()
        assert (mapped == 8).all()

        # Memory of the program's own: the device has a mirror of it.
        own = np.arange(30_000, dtype=np.int64)
        check(cu.cuMemHostRegister(own.ctypes.data, own.nbytes, cu.CU_MEMHOSTREGISTER_DEVICEMAP))
        pointer = int(check(cu.cuMemHostGetDevicePointer(own.ctypes.data + 80, 0))) - 80
        class There:
            __cuda_array_interface__ = {"shape": own.shape, "typestr": "<i8", "data": (pointer, False), "version": 3}
        there = cuda.as_cuda_array(There())
        for step in range(1, 4):
            launch(there[: own.size // 2], 2)
            own[own.size // 2 :] += 1           # while the device writes the other half
            launch(there[:1], 1)
            cuda.synchronize()
            half = own.size // 2
            np.testing.assert_array_equal(own[:half], np.arange(half) * 2**step)
            np.testing.assert_array_equal(own[half:], np.arange(half, own.size) + step)
        kind = cu.CUpointer_attribute
        assert int(check(cu.cuPointerGetAttribute(kind.CU_POINTER_ATTRIBUTE_HOST_POINTER, pointer + 8))) == own.ctypes.data + 8
        launch(there, 0)
        check(cu.cuMemHostUnregister(own.ctypes.data))
        assert not own.any()
        print("ok")
        """,
        KERNELS,
    )


def test_a_kernel_uses_portable_page_locked_memory_by_the_program_s_pointer(share: Share) -> None:  # noqa: F811
    """As TensorFlow does, which does not ask for a device pointer; what it gets beyond the share serves copies."""
    share.run(
        """
        cuda.current_context()
        address = int(check(cu.cuMemHostAlloc(4096, cu.CU_MEMHOSTALLOC_PORTABLE)))
        words = np.frombuffer((ctypes.c_char * 4096).from_address(address), np.float32)
        words[:] = 3
        class There:
            __cuda_array_interface__ = {"shape": words.shape, "typestr": "<f4", "data": (address, False), "version": 3}
        launch(cuda.as_cuda_array(There()), 5)
        cuda.synchronize()
        assert (words == 15).all()
        attribute = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING
        assert check(cu.cuDeviceGetAttribute(attribute, 0)) == 0
        large = int(check(cu.cuMemHostAlloc(1 << 30, cu.CU_MEMHOSTALLOC_PORTABLE)))
        check(cu.cuMemcpyDtoH(large, address, 4096))
        assert ctypes.c_float.from_address(large + 4092).value == 15
        check(cu.cuMemFreeHost(large))
        check(cu.cuMemFreeHost(address))
        print("ok")
        """,
        KERNELS,
    )


def test_a_wild_pointer_is_a_segmentation_fault_with_a_traceback_as_ever(share: Share) -> None:  # noqa: F811
    for first in ("import faulthandler; faulthandler.enable()", "pass"):
        process = share.start(
            f"""
            {first}
            x = cuda.managed_array(10, dtype=np.int64)
            x[0] = 1
            launch(x, 2)
            assert x[0] == 2
            import faulthandler; faulthandler.enable()
            assert (launch(x, 2), x[0])[1] == 4
            print("reached", flush=True)
            ctypes.string_at(8)
            """,
            KERNELS,
        )
        out, errors = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGSEGV, (process.returncode, out, errors)
        assert "reached" in out
        assert errors.count("Fatal Python error: Segmentation fault") == 1, errors


def test_freed_managed_memory_faults(share: Share) -> None:  # noqa: F811
    process = share.start(
        """
        cuda.current_context()
        pointer = check(cu.cuMemAllocManaged(4096, 1))
        ctypes.memset(int(pointer), 1, 4096)
        check(cu.cuMemFree(pointer))
        print("reached", flush=True)
        ctypes.memset(int(pointer), 1, 1)
        """,
        KERNELS,
    )
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (-signal.SIGSEGV, "reached\n"), (out, errors)


def test_a_child_has_no_managed_memory_and_leaves_its_parent_s_alone(share: Share) -> None:  # noqa: F811
    share.run(
        """
        x = cuda.managed_array(1000, dtype=np.int64)
        x[:] = 1
        if os.fork() == 0:
            x[:] = 2                            # dies here
            os._exit(0)
        assert os.WIFSIGNALED(os.wait()[1])
        if os.fork() == 0:
            os._exit(0)
        assert os.wait()[1] == 0
        launch(x, 5)
        assert (x == 5).all()
        print("ok")
        """,
        KERNELS,
    )


def test_registered_memory_that_was_freed_is_an_error_and_not_a_crash(share: Share) -> None:  # noqa: F811
    share.run(
        """
        import mmap
        library = ctypes.CDLL(None)
        library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        library.mmap.restype = ctypes.c_void_p
        library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
        SIZE = 1 << 20
        own = library.mmap(None, SIZE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        cuda.current_context()
        check(cu.cuMemHostRegister(own, SIZE, cu.CU_MEMHOSTREGISTER_DEVICEMAP))
        check(cu.cuMemHostGetDevicePointer(own, 0))
        x = cuda.to_device(np.ones(100))
        launch(x, 2.0)
        library.munmap(own + SIZE // 2, SIZE // 2)
        check(cu.cuCtxSynchronize())            # fetches nothing into what is gone
        word = check(cu.cuMemAlloc(4))
        assert cu.cuMemsetD32(word, 1, 1)[0] == cu.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
        assert "cuMemHostUnregister" in message() and hex(own) in message(), message()
        check(cu.cuMemHostUnregister(own))
        check(cu.cuMemsetD32(word, 1, 1))
        np.testing.assert_array_equal(x.copy_to_host(), np.full(100, 2.0))
        print("ok")
        """,
        KERNELS,
    )


def test_an_array_argument_may_lie_in_managed_memory_that_the_device_used_last(share: Share) -> None:  # noqa: F811
    share.run(
        """
        x = cuda.managed_array(1024, dtype=np.float64)
        resource = ctypes.c_void_p(x.ctypes.data)
        library = ctypes.CDLL("libcuda.so.1")
        assert library.cuDeviceGetDevResource(0, resource, 1) == 0
        launch(x, 1.0)                          # its pages are closed now: reading them takes the connection
        description = ctypes.c_void_p()
        assert library.cuDevResourceGenerateDesc(ctypes.byref(description), resource, 1) == 0
        assert description.value
        print("ok")
        """,
        KERNELS,
    )


def test_memory_is_right_where_the_kernel_has_no_room_for_further_mappings(share: Share) -> None:  # noqa: F811
    share.run(
        """
        import errno
        x = cuda.managed_array(2_000_000, dtype=np.int64)
        page = 4096
        places = [n * page // 8 for n in range(100, 3900, 190)]     # a stretch of its own each
        back = np.zeros(x.size // 2, np.int64)
        seen = []

        def look(data):
            seen.append([int(x[place]) for place in places])
            for place in places:
                x[place + 1] = -5

        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(look)
        host = cu.CUhostFn(ctypes.cast(function, ctypes.c_void_p).value)

        def turns():
            expected = np.arange(x.size)
            x[:] = expected
            for turn in range(3):
                launch(x, 2)
                expected *= 2
                assert [x[place] for place in places] == [expected[place] for place in places]
                for place in places:
                    x[place] = expected[place] = turn
                check(cu.cuMemcpyDtoH(back.ctypes.data, x.ctypes.data, back.nbytes))
                assert (back == expected[: back.size]).all()
                for place in places:                        # after what was written has been sent
                    x[place + 2] = expected[place + 2] = -turn
                launch(x, 3)
                expected *= 3
                check(cu.cuLaunchHostFunc(0, host, 0))      # the stream waits for it
                launch(x, 1)
                # While it may be running, so without Python's lock, which it needs.
                libc.memcpy(ctypes.byref(word), ctypes.c_void_p(x.ctypes.data + 50 * 8), ctypes.c_size_t(8))
                assert word.value == expected[50]
                cuda.synchronize()
                assert seen.pop() == [expected[place] for place in places]
                for place in places:
                    expected[place + 1] = -5
                assert (x == expected).all()

        libc, word = ctypes.CDLL(None, use_errno=True), ctypes.c_int64()
        libc.mmap.restype = ctypes.c_void_p
        turns()
        most = int(open("/proc/sys/vm/max_map_count").read())
        size = 2 * (most + 100) * page
        many = libc.mmap(None, ctypes.c_size_t(size), 0, 0x4022, -1, ctypes.c_long(0))
        libc.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        taken = []
        for at in range(many + page, many + size, 2 * page):
            if libc.mprotect(at, page, 1) != 0:
                break
            taken.append(at)
        assert ctypes.get_errno() == errno.ENOMEM
        for at in taken[-4:]:                               # a few for what else wants memory
            assert libc.mprotect(at, page, 0) == 0
        turns()
        print("ok")
        """,
        KERNELS,
    )
