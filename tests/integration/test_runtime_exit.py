"""The runtime at the end of a process: programs call it from destructors that run when all else is over."""

from __future__ import annotations

from pathlib import Path

from tests.support.runtime_share import Share, share

__all__ = ["share"]  # the fixture

#: What is freed is overwritten at once, so that no test passes by what lies in it still.
OVERWRITTEN = "165"

NOT_YET = """
import ctypes, os
cuda, libc, context = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None), ctypes.c_void_p()
libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, *[ctypes.c_size_t] * 5]

def at_exit(function, argument):
    # As a static object's destructor: after the main thread's own variables are gone.
    assert libc.__cxa_atexit(ctypes.cast(function, ctypes.c_void_p), ctypes.c_void_p(argument), None) == 0

assert cuda.cuInit(0) == 0"""
EXITING = (
    NOT_YET
    + """
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
"""
)


def test_a_context_is_current_until_the_process_has_ended(share: Share, tmp_path: Path) -> None:
    told = tmp_path / "told"
    told.write_bytes(bytes(4096))
    printed = share.run(
        """
        file = os.open(os.environ["TOLD"], os.O_RDWR)
        read_and_write, shared = 3, 1
        at_exit(cuda.cuCtxGetCurrent, libc.mmap(None, 4096, read_and_write, shared, file, 0))
        print(context.value)
        print("ok")
        """,
        EXITING,
        TOLD=str(told),
        MALLOC_PERTURB_=OVERWRITTEN,
    )
    assert int.from_bytes(told.read_bytes()[:8], "little") == int(printed.split()[0])


def test_a_call_is_refused_until_the_process_has_ended(share: Share) -> None:
    share.run(
        """
        # The second reason is shorter: it doesn't get the memory that the first one had.
        not_supported = 801
        assert cuda.cuGraphExternalSemaphoresSignalNodeSetParams(None, None) == not_supported
        at_exit(cuda.cuDestroyExternalMemory, 0)
        print("ok")
        """,
        EXITING,
        MALLOC_PERTURB_=OVERWRITTEN,
    )


def test_a_context_that_is_given_back_while_the_process_ends_keeps_it_from_nothing(share: Share) -> None:
    share.run(
        """
        # Registered before the first context, as by runtime libraries: it runs when handlers of the program have run.
        at_exit(cuda.cuDevicePrimaryCtxRelease_v2, 0)
        assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert cuda.cuCtxSetCurrent(context) == 0
        stream, memory = ctypes.c_void_p(), ctypes.c_void_p()
        assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
        assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 20)) == 0
        assert cuda.cuLaunchHostFunc(stream, libc.pause, None) == 0  # never returns
        assert cuda.cuMemsetD8Async(memory, 1, ctypes.c_size_t(1 << 20), stream) == 0
        print("ok", flush=True)
        """,
        NOT_YET,
        timeout=60,
    )
