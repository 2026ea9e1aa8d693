"""Programs that attach by themselves, for tests: a few CUDA calls by ctypes, without a framework's second of import."""

from __future__ import annotations

#: ``make()`` has numbers on the device, ``read(at)`` reads them; both raise OSError with the CUresult.
PRELUDE = """
import asyncio, ctypes, os, signal, subprocess, sys, threading, time
import gpupool
gpupool.prepare()
cuda = ctypes.CDLL("libcuda.so.1")

def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    if result:
        raise OSError(result, name)

def start():
    device, context = ctypes.c_int(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    return context

def make(value):
    start()
    at = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(4096))
    call("cuMemsetD32_v2", at, value, ctypes.c_size_t(1024))
    return at

def read(at):
    call("cuCtxSetCurrent", start())
    words = (ctypes.c_uint32 * 1024)()
    call("cuMemcpyDtoH_v2", words, at, ctypes.c_size_t(4096))
    assert len(set(words)) == 1
    return words[0]

def leases():
    # What the pool lists of its only device.
    from gpupool.client.keeper import keeper
    return keeper().call("pool")["devices"][0]["shares"]

def say(*what):
    print(*what, flush=True)
"""
