"""Drivers that are older than our headers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.client.native import native_file

from tests.support.altered_driver import altered_driver
from tests.support.pool_node import native_worker_is_built
from tests.support.runtime_share import Share, share_of_a_worker

pytestmark = [
    pytest.mark.skipif(not native_worker_is_built(), reason="native parts not built"),
    pytest.mark.slow,
]

OLDER = "int cuDriverGetVersion(int *version) { *version = 13000; return 0; }"
def share_of(folder: Path, source: str, *without: str) -> Iterator[Share]:
    (folder / "driver").mkdir()
    yield from share_of_a_worker(folder, driver=altered_driver(folder / "driver", source, without))


@pytest.fixture
def older(tmp_path: Path) -> Iterator[Share]:
    """On a driver of CUDA 13.0, which has older names of two functions alone."""
    yield from share_of(tmp_path, OLDER, "cuEventElapsedTime_v2", "cuCtxGetDevice_v2")


def test_events_and_green_contexts_work_on_an_older_driver(older: Share) -> None:
    older.run(
        """
        start()
        first, last = check(cu.cuEventCreate(0)), check(cu.cuEventCreate(0))
        check(cu.cuEventRecord(first, 0))
        check(cu.cuEventRecord(last, 0))
        check(cu.cuEventSynchronize(last))
        assert check(cu.cuEventElapsedTime(first, last)) >= 0
        kind = cu.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
        description = check(cu.cuDevResourceGenerateDesc([check(cu.cuDeviceGetDevResource(0, kind))], 1))
        flags = cu.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
        green = check(cu.cuGreenCtxCreate(description, 0, flags))
        made = check(cu.cuCtxFromGreenCtx(green))
        check(cu.cuCtxPushCurrent(made))
        assert int(check(cu.cuCtxGetDevice())) == 0
        assert download(upload(np.arange(10)), np.zeros(10, int)).tolist() == list(range(10))
        print("ok")
        """
    )


def test_our_runtime_finds_entry_points_of_a_driver_that_is_older_than_its_headers(older: Share) -> None:
    library = native_file("cudart", "libcudart.so.13")
    older.run(
        f"""
        start()
        runtime_api = ctypes.CDLL({str(library)!r})
        version, found, status = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int(-1)
        assert runtime_api.cudaDriverGetVersion(ctypes.byref(version)) == 0 and version.value == 13000
        assert runtime_api.cudaRuntimeGetVersion(ctypes.byref(version)) == 0 and version.value > 13000
        ask = (b"cuMemAlloc", ctypes.byref(found), ctypes.c_ulonglong(0), ctypes.byref(status))
        assert runtime_api.cudaGetDriverEntryPoint(*ask) == 0
        assert found.value and status.value == 0
        # Who names a version is told that the driver does not know it.
        ask = (b"cuMemAlloc", ctypes.byref(found), version, ctypes.c_ulonglong(0), ctypes.byref(status))
        assert runtime_api.cudaGetDriverEntryPointByVersion(*ask) == 1
        print("ok")
        """
    )
