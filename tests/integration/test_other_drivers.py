"""Drivers that are older than our headers, and such as promise what a share does not give."""

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
#: CU_DEVICE_ATTRIBUTE_… of what a real GPU may offer and no share does.
PROMISED = {
    "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED": 110,
    "TIMELINE_SEMAPHORE_INTEROP_SUPPORTED": 114,
    "DMA_BUF_SUPPORTED": 124,
    "HANDLE_TYPE_FABRIC_SUPPORTED": 128,
    "HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED": 141,
    "HOST_NUMA_MULTINODE_IPC_SUPPORTED": 143,
    "HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED": 145,
    "HOST_ALLOC_DMA_BUF_SUPPORTED": 146,
    "DMA_BUF_MMAP_SUPPORTED": 152,
    "GPU_DIRECT_RDMA_WITH_LOCALIZED_MEMORY_SUPPORTED": 161,
}
GENEROUS = """
int cuDeviceGetAttribute(int *value, int attribute, int device) {{
  static const int promised[] = {{{numbers}}};
  for (unsigned n = 0; n < sizeof promised / sizeof *promised; ++n) {{
    if (promised[n] == attribute) return *value = 1, 0;
  }}
  return ((int (*)(int *, int, int))real("cuDeviceGetAttribute"))(value, attribute, device);
}}
"""


def share_of(folder: Path, source: str, *without: str) -> Iterator[Share]:
    (folder / "driver").mkdir()
    yield from share_of_a_worker(folder, driver=altered_driver(folder / "driver", source, without))


@pytest.fixture
def older(tmp_path: Path) -> Iterator[Share]:
    """On a driver of CUDA 13.0, which has older names of two functions alone."""
    yield from share_of(tmp_path, OLDER, "cuEventElapsedTime_v2", "cuCtxGetDevice_v2")


@pytest.fixture
def generous(tmp_path: Path) -> Iterator[Share]:
    yield from share_of(tmp_path, GENEROUS.format(numbers=", ".join(map(str, PROMISED.values()))))


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


def test_a_device_promises_nothing_that_the_runtime_refuses(generous: Share) -> None:
    generous.run(
        f"""
        start()
        number = ctypes.c_int()
        ask = ctypes.CDLL("libcuda.so.1").cuDeviceGetAttribute
        promised = {PROMISED!r}
        for name, attribute in promised.items():
            assert ask(ctypes.byref(number), attribute, 0) == 0, name
            assert number.value == 0, name
        print("ok")
        """
    )
