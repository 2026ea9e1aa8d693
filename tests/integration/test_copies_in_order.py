"""Copies come after what their stream was given before, whatever kinds of memory they are between."""

from __future__ import annotations

import textwrap

import pytest

from benchmarks.lone_session import LoneSession
from tests.integration.test_wire_lanes import pytestmark, run, session, transport

__all__ = ["pytestmark", "session", "transport"]

#: `bring` has a stream bring sevens into pinned memory, behind a kernel that ends half a second later.
MORE = r"""
SIZE = 1 << 14
HOST, ARRAY = cu.CUmemorytype.CU_MEMORYTYPE_HOST, cu.CUmemorytype.CU_MEMORYTYPE_ARRAY
stream = new_stream()
sevens = check(cu.cuMemAlloc(SIZE))
check(cu.cuMemsetD8(sevens, 7, SIZE))
brought, address = pinned(SIZE, np.uint8)

def bring(offset=0):
    gate = Gate()
    brought[:] = 0
    gate.hold(stream)
    check(cu.cuMemcpyDtoHAsync(address + offset, sevens, SIZE - offset, stream))
    gate.open_later()
"""


def in_order(session: LoneSession, body: str) -> None:
    run(session, MORE + textwrap.dedent(body))


@pytest.mark.usefixtures("transport")
def test_an_array_gets_what_an_earlier_copy_brings_to_the_host(session: LoneSession) -> None:
    in_order(
        session,
        """
        shape = cu.CUDA_ARRAY3D_DESCRIPTOR()
        shape.Width, shape.Height, shape.Depth = 64, 16, 2
        shape.Format, shape.NumChannels = cu.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8, 1
        block = check(cu.cuArray3DCreate(shape))
        line_shape = cu.CUDA_ARRAY_DESCRIPTOR()
        line_shape.Width, line_shape.Height = SIZE, 0
        line_shape.Format, line_shape.NumChannels = shape.Format, 1
        line = check(cu.cuArrayCreate(line_shape))
        back = np.zeros(SIZE, np.uint8)

        bring()
        check(cu.cuMemcpyHtoAAsync(line, 0, address, SIZE, stream))
        check(cu.cuStreamSynchronize(stream))
        check(cu.cuMemcpyAtoH(back.ctypes.data, line, 0, SIZE))
        assert (back == 7).all(), back

        bring(offset=128 * 40)  # behind the first of the two planes
        copy = cu.CUDA_MEMCPY3D()
        copy.srcMemoryType, copy.srcHost, copy.srcPitch, copy.srcHeight = HOST, address, 128, 40
        copy.dstMemoryType, copy.dstArray = ARRAY, block
        copy.WidthInBytes, copy.Height, copy.Depth = 64, 16, 2
        check(cu.cuMemcpy3DAsync(copy, stream))
        check(cu.cuStreamSynchronize(stream))
        copy = cu.CUDA_MEMCPY3D()
        copy.srcMemoryType, copy.srcArray = ARRAY, block
        copy.dstMemoryType, copy.dstHost = HOST, back.ctypes.data
        copy.WidthInBytes, copy.Height, copy.Depth = 64, 16, 2
        check(cu.cuMemcpy3D(copy))
        planes = back[: 2 * 16 * 64].reshape(2, 16 * 64)
        assert (planes[0] == 0).all() and (planes[1] == 7).all(), planes
        print("ok")
        """,
    )


@pytest.mark.usefixtures("transport")
def test_rows_within_host_memory_are_copied_after_the_work_before_them(session: LoneSession) -> None:
    in_order(
        session,
        """
        def described(kind):
            copy = kind()
            copy.srcMemoryType = copy.dstMemoryType = HOST
            copy.srcHost, copy.srcPitch = address, 128
            copy.dstHost, copy.dstPitch = there.ctypes.data, 64
            copy.WidthInBytes, copy.Height = 64, 32
            return copy

        there = np.zeros(64 * 32, np.uint8)
        rows, block = described(cu.CUDA_MEMCPY2D), described(cu.CUDA_MEMCPY3D)
        block.Depth = 1
        copies = {
            "rows in the stream": lambda: cu.cuMemcpy2DAsync(rows, stream),
            "a block in the stream": lambda: cu.cuMemcpy3DAsync(block, stream),
            "rows": lambda: cu.cuMemcpy2D(rows),
            "unaligned rows": lambda: cu.cuMemcpy2DUnaligned(rows),
            "a block": lambda: cu.cuMemcpy3D(block),
        }
        for name, copy in copies.items():
            there[:] = 0
            bring()
            check(copy())
            check(cu.cuStreamSynchronize(stream))
            assert (there == 7).all(), (name, there)
        print("ok")
        """,
    )
