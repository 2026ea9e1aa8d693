"""Threads of one process share its session."""

from __future__ import annotations

from tests.support.runtime_share import Share, share

__all__ = ["share"]  # the fixture


def test_threads_share_the_session(share: Share) -> None:
    share.run(
        """
        import threading
        start()
        context = check(cu.cuCtxGetCurrent())
        failures = []
        def work(seed):
            try:
                check(cu.cuCtxSetCurrent(context))
                rng = np.random.default_rng(seed)
                for _ in range(50):
                    data = rng.integers(0, 256, int(rng.integers(1, 200_000)), dtype=np.uint8)
                    pointer = upload(data)
                    assert (download(pointer, data) == data).all()
                    check(cu.cuMemFree(pointer))
            except BaseException as failure:
                failures.append(failure)
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert not failures, failures
        print("ok")
        """
    )


def test_threads_that_create_and_destroy_do_not_disturb_each_other(share: Share) -> None:
    share.run(
        """
        import threading
        start()
        context = check(cu.cuCtxGetCurrent())
        errors = []
        def work():
            cu.cuCtxSetCurrent(context)
            for n in range(20_000):
                check(cu.cuEventDestroy(check(cu.cuEventCreate(0))))
                if n % 200 == 0:
                    errors.append(cu.cuCtxSynchronize()[0])
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert errors == [cu.CUresult.CUDA_SUCCESS] * 400, (set(errors), message())
        check(cu.cuCtxSynchronize())
        print("ok")
        """
    )


def test_memory_freed_in_one_threads_stream_is_not_anothers_before_its_work_is_done(share: Share) -> None:
    share.run(
        """
        import threading
        start()
        context, size = check(cu.cuCtxGetCurrent()), 1 << 20
        mine = cu.CUstream(cu.CU_STREAM_PER_THREAD)
        delay = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: time.sleep(0.3))
        slow = cu.CUhostFn(ctypes.cast(delay, ctypes.c_void_p).value)
        places = []

        def write(value, late):
            check(cu.cuCtxSetCurrent(context))
            places.append(check(cu.cuMemAllocAsync(size, mine)))
            if late:
                check(cu.cuLaunchHostFunc(mine, slow, 0))
            check(cu.cuMemsetD8Async(places[-1], value, size, mine))
            if late:
                check(cu.cuMemFreeAsync(places[-1], mine))
                freed.set()
                done.wait(30)  # its number is not another's meanwhile

        freed, done = threading.Event(), threading.Event()
        first = threading.Thread(target=write, args=(1, True))
        first.start()
        assert freed.wait(30)
        second = threading.Thread(target=write, args=(2, False))
        second.start()
        second.join()
        done.set()
        first.join()
        check(cu.cuCtxSynchronize())
        assert int(places[0]) == int(places[1])
        out = np.zeros(size, np.uint8)
        check(cu.cuMemcpyDtoH(out.ctypes.data, places[1], size))
        assert (out == 2).all()
        print("ok")
        """
    )
