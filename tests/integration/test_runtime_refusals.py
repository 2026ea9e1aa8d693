"""The runtime API on a share: arguments that CUDA refuses are refused here, and the program goes on."""

from __future__ import annotations

import pytest
from gpupool.client.native import native_file

from tests.support.runtime_share import PRELUDE, Share, share

__all__ = ["share"]  # the fixture

RUNTIME_API = (
    PRELUDE
    + """
cudart = ctypes.CDLL(os.environ["LIBCUDART"])
SUCCESS, INVALID_VALUE = 0, 1
device = ctypes.c_void_p()
assert cudart.cudaMalloc(ctypes.byref(device), ctypes.c_size_t(64)) == SUCCESS
host = ctypes.cast(ctypes.create_string_buffer(64), ctypes.c_void_p)
"""
)


def run(share: Share, program: str, major: int = 13) -> None:
    share.run(program, prelude=RUNTIME_API, LIBCUDART=str(native_file("cudart", f"libcudart.so.{major}")))


@pytest.mark.parametrize("major", [12, 13])
def test_a_copy_to_or_from_nowhere_is_an_invalid_value(share: Share, major: int) -> None:
    run(
        share,
        """
        size, pitch, rows = ctypes.c_size_t(64), ctypes.c_size_t(8), ctypes.c_size_t(4)
        kinds = {0: (host, host), 1: (device, host), 2: (host, device), 3: (device, device), 4: (host, host)}
        for kind, (to, source) in kinds.items():
            for one, other in ((None, source), (to, None), (None, None)):
                assert cudart.cudaMemcpy(one, other, size, kind) == INVALID_VALUE, (kind, one, other)
                assert cudart.cudaMemcpyAsync(one, other, size, kind, None) == INVALID_VALUE
                assert cudart.cudaMemcpy2D(one, pitch, other, pitch, pitch, rows, kind) == INVALID_VALUE
                assert cudart.cudaMemcpy(one, other, ctypes.c_size_t(0), kind) == SUCCESS
            assert cudart.cudaGetLastError() == INVALID_VALUE
            assert cudart.cudaMemcpy(to, source, size, kind) == SUCCESS, kind
        print("ok")
        """,
        major,
    )


def test_rows_of_memory_that_is_not_there_are_an_invalid_value_wherever_they_begin(share: Share) -> None:
    share.run(
        """
        start()
        data = np.zeros(64, np.uint8)
        for source, to in ((0, data.ctypes.data), (data.ctypes.data, 0)):
            copy = cu.CUDA_MEMCPY2D()
            copy.srcMemoryType = copy.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_HOST
            copy.srcHost, copy.dstHost = source, to
            copy.srcPitch = copy.dstPitch = 16
            copy.srcXInBytes = copy.dstXInBytes = 4
            copy.srcY = copy.dstY = 1
            copy.WidthInBytes, copy.Height = 8, 2
            assert cu.cuMemcpy2D(copy)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        print("ok")
        """
    )


def test_flags_of_a_device_that_do_not_exist_or_exclude_each_other_are_an_invalid_value(share: Share) -> None:
    run(
        share,
        """
        flags = ctypes.c_uint()
        for valid in (0, 1, 2, 4, 4 | 8 | 16):
            assert cudart.cudaSetDeviceFlags(valid) == SUCCESS, valid
        for invalid in (3, 6, 0xF000, 0x100):
            assert cudart.cudaSetDeviceFlags(invalid) == INVALID_VALUE, hex(invalid)
        assert cudart.cudaGetDeviceFlags(ctypes.byref(flags)) == SUCCESS
        assert flags.value == 4 | 8 | 16
        assert cu.cuCtxSetFlags(3)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        assert cu.cuCtxCreate(None, 0xF000, 0)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        print("ok")
        """,
    )
