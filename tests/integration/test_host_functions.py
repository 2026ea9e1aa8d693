"""Functions of the program that streams and graphs call."""

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


@pytest.mark.parametrize("managed", [False, True])
def test_a_small_copy_behind_it_takes_what_it_has_written(share: Share, managed: bool) -> None:
    """Also where the program has managed memory, whose pages are opened before a message is sent."""
    share.run(
        f"""
        if {managed}:
            check(cu.cuMemAllocManaged(1 << 20, 1))
        stream = check(cu.cuStreamCreate(1))
        plain = np.zeros(4, np.uint32)
        def write(data):
            time.sleep(0.1)
            plain[:] = 7
        check(cu.cuLaunchHostFunc(stream, host(write), 0))
        check(cu.cuMemcpyHtoDAsync(word, plain.ctypes.data, 4, stream))
        check(cu.cuStreamSynchronize(stream))
        assert read() == 7
        print("ok")
        """,
        HOST,
    )


def test_memory_of_a_managed_pool_is_not_cleared_while_its_stream_still_uses_it(share: Share) -> None:
    share.run(
        """
        properties = cu.CUmemPoolProps()
        properties.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_MANAGED
        properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        pool = check(cu.cuMemPoolCreate(properties))
        stream, size = check(cu.cuStreamCreate(1)), 1 << 16
        first = int(check(cu.cuMemAllocFromPoolAsync(size, pool, stream)))
        check(cu.cuMemsetD32Async(first, 5, size // 4, stream))
        check(cu.cuLaunchHostFunc(stream, host(lambda data: time.sleep(0.2)), 0))
        check(cu.cuMemcpyDtoDAsync(word, first, 4, stream))
        check(cu.cuMemFreeAsync(first, stream))
        second = int(check(cu.cuMemAllocFromPoolAsync(size, pool, stream)))
        assert second == first
        check(cu.cuStreamSynchronize(stream))
        assert read() == 5
        assert not np.ctypeslib.as_array((ctypes.c_uint32 * (size // 4)).from_address(second)).any()
        print("ok")
        """,
        HOST,
    )


def test_a_host_function_uses_memory_that_the_device_uses_too(share: Share) -> None:
    share.run(
        """
        stream, seen = check(cu.cuStreamCreate(1)), []
        managed = int(check(cu.cuMemAllocManaged(1 << 20, 1)))
        locked = int(check(cu.cuMemHostAlloc(1 << 20, cu.CU_MEMHOSTALLOC_PORTABLE)))
        for pointer in (managed, locked):
            array = np.ctypeslib.as_array((ctypes.c_uint32 * (1 << 18)).from_address(pointer))
            def run(data):
                seen.append((int(array[7]), int(array[200_000])))
                array[8] = 99
            for n in range(1, 4):
                array[8] = 0
                check(cu.cuMemsetD32Async(pointer, n, 1 << 18, stream))
                check(cu.cuLaunchHostFunc(stream, host(run), 0))
                check(cu.cuMemcpyDtoDAsync(pointer + 40, pointer + 32, 4, stream))
                check(cu.cuStreamSynchronize(stream))
                assert seen.pop() == (n, n) and not seen
                assert array[7] == n and array[8] == array[10] == 99
        print("ok")
        """,
        HOST,
    )


def test_a_host_function_has_memory_for_which_the_program_waits_meanwhile(share: Share) -> None:
    share.run(
        """
        stream = check(cu.cuStreamCreate(1))
        length = ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p).value  # reads what it is given, without Python
        pointer = int(check(cu.cuMemAllocManaged(1 << 20, 1)))
        array = np.ctypeslib.as_array((ctypes.c_uint8 * (1 << 20)).from_address(pointer))
        for n in range(1, 100):
            check(cu.cuMemsetD8Async(pointer, n, (1 << 20) - 1, stream))
            check(cu.cuLaunchHostFunc(stream, cu.CUhostFn(length), pointer))
            assert array[n] == n
            # One function reads at a time: an earlier one may open a page again that the next memset has closed.
            check(cu.cuStreamSynchronize(stream))
        print("ok")
        """,
        HOST,
    )


def test_host_functions_and_another_thread_use_memory_of_the_device_at_the_same_time(share: Share) -> None:
    share.run(
        """
        stream = check(cu.cuStreamCreate(1))
        length = ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p).value
        pointer = int(check(cu.cuMemAllocManaged(1 << 16, 1)))
        check(cu.cuMemsetD8Async(pointer, 1, (1 << 16) - 1, stream))
        enough, mine = threading.Event(), (ctypes.c_uint8 * (1 << 16))()
        def read():
            while not enough.is_set():
                ctypes.memmove(mine, pointer, 1 << 16)  # without Python's lock
                assert mine[0] in range(1, 100)
        reader = threading.Thread(target=read)
        reader.start()
        for n in range(1, 100):
            check(cu.cuLaunchHostFunc(stream, cu.CUhostFn(length), pointer))
            check(cu.cuMemsetD8Async(pointer, n, (1 << 16) - 1, stream))
            check(cu.cuLaunchHostFunc(stream, cu.CUhostFn(length), pointer))
        check(cu.cuStreamSynchronize(stream))
        enough.set()
        reader.join()
        ctypes.memmove(mine, pointer, 1 << 16)
        assert mine[0] == mine[65534] == 99
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


def test_a_slow_one_in_another_context_is_waited_for_before_the_worker_waits(share: Share) -> None:
    share.run(
        """
        size = 4 << 20
        here = check(cu.cuCtxGetCurrent())
        freed = int(check(cu.cuMemAlloc(size)))
        check(cu.cuCtxCreate(None, 0, 0))
        stream, seen = check(cu.cuStreamCreate(1)), []
        def run(data):
            time.sleep(1.5)  # longer than the runtime waits for functions alone
            seen.append(data)
        check(cu.cuLaunchHostFunc(stream, host(run), 42))
        check(cu.cuCtxSetCurrent(here))
        check(cu.cuMemsetD8(freed, 1, size))
        # The memory is used again once the device has done everything, which the worker itself waits for.
        check(cu.cuMemFree(freed))
        assert int(check(cu.cuMemAlloc(size))) == freed
        check(cu.cuCtxSynchronize())
        assert seen == [42]
        print("ok")
        """,
        HOST,
        timeout=40,
    )


def test_a_slow_one_in_the_last_of_many_streams_keeps_a_wait_from_holding_up_the_worker(share: Share) -> None:
    share.run(
        """
        # More than the worker asks one by one whether they have finished.
        streams, seen = [check(cu.cuStreamCreate(1)) for _ in range(40)], []
        for stream in streams:
            check(cu.cuMemsetD32Async(word, 1, 1, stream))
        for stream in streams:
            check(cu.cuStreamSynchronize(stream))
        def run(data):
            time.sleep(0.2)
            seen.append(data)
        check(cu.cuLaunchHostFunc(streams[-1], host(run), 42))
        check(cu.cuCtxSynchronize())
        assert seen == [42]
        print("ok")
        """,
        HOST,
        timeout=40,
    )


def test_a_copy_waits_for_a_function_that_another_thread_gives_while_it_waits(share: Share) -> None:
    share.run(
        """
        # The legacy stream, which the copy is in, waits for this one.
        stream, seen, given = check(cu.cuStreamCreate(0)), [], threading.Event()
        def first(data):
            given.wait()
            seen.append(data)
        def second(data):
            time.sleep(1.5)
            seen.append(data)
        def give_another():
            check(cu.cuCtxSetCurrent(context))
            time.sleep(1.8)  # the copy waits for the context by now, up to what it had been given
            check(cu.cuLaunchHostFunc(stream, host(second), 2))
            cu.cuStreamQuery(stream)  # when this is answered the worker has it
            given.set()
        other = threading.Thread(target=give_another)
        check(cu.cuLaunchHostFunc(stream, host(first), 1))
        other.start()
        check(cu.cuMemcpyHtoD(word, np.full(4, 7, np.uint32).ctypes.data, 16))
        assert seen == [1, 2]
        other.join()
        assert read() == 7
        print("ok")
        """,
        HOST,
        timeout=40,
    )


def test_functions_and_calls_that_hold_up_the_worker_come_from_two_threads(share: Share) -> None:
    share.run(
        """
        # Without Python in the functions: both threads give as much as they can.
        stream, length = check(cu.cuStreamCreate(0)), ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p).value
        text, enough, failures = ctypes.create_string_buffer(b"text"), threading.Event(), []
        def give_functions():
            try:
                check(cu.cuCtxSetCurrent(context))
                while not enough.is_set():
                    check(cu.cuLaunchHostFunc(stream, cu.CUhostFn(length), ctypes.addressof(text)))
            except BaseException as failure:
                failures.append(failure)
        giver = threading.Thread(target=give_functions)
        giver.start()
        values, back = np.arange(1 << 16, dtype=np.uint32), np.zeros(1 << 16, np.uint32)
        for n in range(6):  # each call has to wait for a moment without functions
            memory = check(cu.cuMemAlloc(values.nbytes))
            values[0] = n
            check(cu.cuMemcpyHtoD(memory, values.ctypes.data, values.nbytes if n % 2 else 64))
            check(cu.cuMemcpyDtoH(back.ctypes.data, memory, 64))
            check(cu.cuMemsetD8(memory, 1, 64))
            check(cu.cuMemFree(memory))
            assert back[0] == n
        enough.set()
        giver.join()
        assert not failures, failures
        print("ok")
        """,
        HOST,
        timeout=120,
    )


def test_nothing_is_left_of_a_function_that_could_not_be_given(share: Share) -> None:
    share.run(
        """
        class Kept(ctypes.Structure):
            _fields_ = [(f"field{n}", ctypes.c_size_t) for n in range(7)] + [("bytes", ctypes.c_size_t)] + [
                (f"more{n}", ctypes.c_size_t) for n in range(2)]
        malloc = ctypes.CDLL(None).mallinfo2
        malloc.restype = Kept
        library = ctypes.CDLL("libcuda.so.1")
        stream = check(cu.cuStreamCreate(1))
        handle, function = ctypes.c_void_p(int(stream)), ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p)
        gives = {
            "function": lambda: library.cuLaunchHostFunc(handle, function, None),
            "callback": lambda: library.cuStreamAddCallback(handle, function, None, 0),
        }
        check(cu.cuCtxSetCurrent(0))
        for name, give in gives.items():
            for count in (100, 10_000):  # the first ones fill what Python and the runtime keep
                before = malloc().bytes
                for _ in range(count):
                    assert give() == Error.CUDA_ERROR_INVALID_CONTEXT
            assert malloc().bytes - before < 100_000, (name, malloc().bytes - before)
        check(cu.cuCtxSetCurrent(context))
        before = asks()
        check(cu.cuMemcpyHtoD(word, np.full(4, 7, np.uint32).ctypes.data, 16))
        assert asks() == before  # nothing is waited for
        assert read() == 7
        print("ok")
        """,
        HOST,
    )
