"""A CUDA program without packages, run as a process: four threads that allocate, copy, launch and synchronise for ever.

It prints ``busy`` when a first computation was right and all threads work, and, when a call fails, ``error <code>
<message of the client runtime>`` once; then it ends with status 0. Wrong numbers end it with status 3.
"""

from __future__ import annotations

import ctypes
import random
import sys
import threading

from add_one import ADD_ONE  # beside this script

cuda = ctypes.CDLL("libcuda.so.1")
cuda.gpupool_last_message.restype = ctypes.c_char_p


class CallFailed(Exception):
    """A driver call did not succeed; the code is a CUresult."""


def call(name: str, *arguments: object) -> None:
    code = getattr(cuda, name)(*arguments)
    if code != 0:
        raise CallFailed(code)


def one_round(choice: random.Random, context: ctypes.c_void_p) -> None:
    """Everything that a program holds on a device, made, used, checked and given back (or not)."""
    call("cuCtxSetCurrent", context)
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    stream, event = ctypes.c_void_p(), ctypes.c_void_p()
    pointer = ctypes.c_uint64()
    call("cuModuleLoadData", ctypes.byref(module), ADD_ONE)
    call("cuModuleGetFunction", ctypes.byref(function), module, b"add_one")
    call("cuStreamCreate", ctypes.byref(stream), 1)
    call("cuEventCreate", ctypes.byref(event), 2)
    for _ in range(choice.randrange(1, 6)):
        count = choice.choice([1, 100, 5_000, 200_000])
        launches = choice.randrange(1, 20)
        values = (ctypes.c_uint32 * count)(*([choice.randrange(1000)] * count))
        first = values[0]
        call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(4 * count))
        call("cuMemcpyHtoDAsync_v2", pointer, values, ctypes.c_size_t(4 * count), stream)
        parameter = ctypes.c_uint32(count)
        parameters = (ctypes.c_void_p * 2)(ctypes.addressof(pointer), ctypes.addressof(parameter))
        for _ in range(launches):
            blocks = (count + 255) // 256
            call("cuLaunchKernel", function, blocks, 1, 1, 256, 1, 1, 0, stream, parameters, None)
        call("cuEventRecord", event, stream)
        if choice.random() < 0.5:
            call("cuEventSynchronize", event)
        call("cuMemcpyDtoHAsync_v2", values, pointer, ctypes.c_size_t(4 * count), stream)
        call("cuStreamSynchronize", stream)
        if values[0] != first + launches or values[count - 1] != first + launches:
            sys.stdout.write(f"wrong {values[0]} {values[count - 1]} instead of {first + launches}\n")
            sys.stdout.flush()
            sys.exit(3)
        call("cuMemFree_v2", pointer)
    call("cuStreamDestroy_v2", stream)
    call("cuEventDestroy_v2", event)
    call("cuModuleUnload", module)


def main(seed: int, threads: int) -> None:
    context = ctypes.c_void_p()
    failed = threading.Event()
    wrong = threading.Event()
    told = threading.Lock()

    def tell(error: CallFailed) -> None:
        with told:
            if not failed.is_set():
                message = (cuda.gpupool_last_message() or b"").decode(errors="replace")
                sys.stdout.write(f"error {error} {message}\n")
                sys.stdout.flush()
            failed.set()

    def work(number: int) -> None:
        choice = random.Random(seed * 1000 + number)
        try:
            while not failed.is_set():
                one_round(choice, context)
        except CallFailed as error:
            tell(error)
        except SystemExit:
            wrong.set()
            failed.set()

    try:
        call("cuInit", 0)
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        one_round(random.Random(seed), context)
    except CallFailed as error:
        tell(error)
        return
    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    sys.stdout.write("busy\n")
    sys.stdout.flush()
    for thread in running:
        thread.join()
    if wrong.is_set():
        sys.exit(3)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
