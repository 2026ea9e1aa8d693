"""An allocation that finds no room is explained with numbers, whoever refused it; one that succeeds later is no matter."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from gpupool.client.child_environment import environment
from gpupool.client.native import native_file
from gpupool.client.usage_file import REFUSED_SUFFIX

from tests.support.allocation_ways import WAYS
from tests.support.runtime_share import MIB, PRELUDE, SHARE_MIB, Share, share

__all__ = ["share"]  # the fixture

FIGURES = f"""
SHARE = {SHARE_MIB} * MIB

def reading(reset_peak):
    text = ctypes.create_string_buffer(1 << 16)
    runtime.gpupool_counters(text, len(text), int(reset_peak))
    return json.loads(text.value)

def refused():
    return counters().get("out_of_memory")

def note():
    path = os.environ["GPUPOOL_SESSION_FILE"] + "{REFUSED_SUFFIX}"
    return json.load(open(path)) if os.path.exists(path) else None
"""

ALL = PRELUDE + WAYS + FIGURES


@pytest.mark.parametrize(
    "way",
    [
        "plain",
        "asynchronous",
        "pool",
        "virtual",
        "array",
        "managed",
        "mapped",
        "loaded",
        "library",
        "graph",
        "heap",
    ],
)
def test_the_client_and_the_worker_alike_say_what_was_asked_and_what_there_is(share: Share, way: str) -> None:
    share.run(
        f"""
        check(plain(100))
        assert reading(True).get("out_of_memory") is None
        assert {way}(200)[0] == out_of_memory
        said, told = message(), refused()
        assert "200 MiB asked" in said and "100 MiB used" in said, said
        assert told["asked"] // MIB == 200, told
        assert told["share"] == SHARE and told["used"] == 100 * MIB and told["device"] == 0, told
        assert told["largest_free"] == 156 * MIB, told
        assert 300 * MIB <= told["needed"] <= 302 * MIB, told
        assert note() == told
        assert reading(True)["out_of_memory"] == told
        assert refused() is None and note() is None
        print("ok")
        """,
        ALL,
    )
    assert share.logged().count("out of memory: 200 MiB asked") == 1


def test_fragments_are_told_apart_from_what_is_free(share: Share) -> None:
    share.run(
        """
        blocks = []
        while True:
            error, block = plain(1)
            if error == out_of_memory:
                break
            blocks.append(block)
        for block in blocks[::2]:
            check(cu.cuMemFree(block))
        assert plain(2)[0] == out_of_memory
        told = refused()
        assert told["used"] == SHARE // 2, told
        assert told["largest_free"] == MIB, told
        assert told["needed"] == SHARE + 2 * MIB, told
        print("ok")
        """,
        ALL,
    )


def test_a_program_that_probes_makes_no_noise(share: Share) -> None:
    """It asks, is refused, frees what it keeps and asks again, as PyTorch does."""
    out = share.run(
        """
        kept = check(plain(200))
        for way in (plain, asynchronous, virtual, managed, array, loaded, library):
            assert way(100)[0] == out_of_memory, way
            assert refused() is not None, way
            check(cu.cuMemFree(kept))
            got = check(way(100))
            assert refused() is None and note() is None, way
            if way in (loaded, library):
                check((cu.cuModuleUnload if way is loaded else cu.cuLibraryUnload)(got))
            elif way is virtual:
                check(cu.cuMemRelease(got))
            else:
                check((cu.cuArrayDestroy if way is array else cu.cuMemFree)(got))
            check(cu.cuCtxSynchronize())
            kept = check(plain(200))
        # Pinned memory that need not be mapped is had all the same.
        check(cu.cuMemAllocHost(200 * MIB))
        assert refused() is None
        # Less than what was asked for is no answer to it.
        assert plain(100)[0] == out_of_memory
        check(plain(10))
        assert refused()["asked"] == 100 * MIB
        print("ok")
        """,
        ALL,
    )
    assert out == "ok\n"


def test_a_module_that_fits_once_memory_is_given_back_is_no_matter(share: Share) -> None:
    share.run(
        """
        check(cu.cuMemFree(check(plain(250))))  # kept mapped for the next allocation
        check(loaded(100))
        assert refused() is None and note() is None
        print("ok")
        """,
        ALL,
    )


def test_a_pools_own_limit_is_not_the_shares(share: Share) -> None:
    share.run(
        """
        properties = cu.CUmemPoolProps()
        properties.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.maxSize = 8 * MIB
        small = check(cu.cuMemPoolCreate(properties))
        assert cu.cuMemAllocFromPoolAsync(9 * MIB, small, stream)[0] == out_of_memory
        assert "maxSize" in message() and "8 MiB" in message(), message()
        assert refused() is None
        print("ok")
        """,
        ALL,
    )


NUMBA_PROGRAM = """
import ctypes, json, sys
import numpy as np
from numba import cuda
kept = cuda.to_device(np.zeros(1))
try:
    cuda.device_array(3 << 30, np.uint8)
except Exception as error:
    print(type(error).__name__)
runtime = ctypes.CDLL("libcuda.so.1")
text = ctypes.create_string_buffer(1 << 16)
runtime.gpupool_counters(text, len(text), 0)
print(json.dumps(json.loads(text.value)["out_of_memory"]))
"""


def test_numba_and_the_runtime_api_end_in_the_same_record(share: Share) -> None:
    variables = dict(os.environ) | environment(None, share.file, software=True, preload=True)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", NUMBA_PROGRAM],
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "gpupool:" not in done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["asked"] == 3 << 30
    assert told["share"] == SHARE_MIB * MIB
    assert 0 < told["used"] <= 4 * MIB
    share.run(
        """
        cudart = ctypes.CDLL(os.environ["CUDART"])
        pointer, pitch = ctypes.c_void_p(), ctypes.c_size_t()
        size = ctypes.c_size_t
        for call, arguments in (
            ("cudaMalloc", (size(300 * MIB),)),
            ("cudaMallocManaged", (size(300 * MIB), 1)),
            ("cudaMallocAsync", (size(300 * MIB), None)),
            ("cudaMallocPitch", (ctypes.byref(pitch), size(300 * MIB), size(1))),
        ):
            reading(True)
            assert getattr(cudart, call)(ctypes.byref(pointer), *arguments) == 2, call
            assert refused()["asked"] == 300 * MIB, (call, refused())
        print("ok")
        """,
        ALL,
        CUDART=str(native_file("cudart", "libcudart.so.13")),
    )
