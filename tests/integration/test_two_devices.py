"""One process with two devices of one node: a single worker with the software GPU, no pool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.runtime_share import PRELUDE
from tests.support.several_shares import TWO_DEVICES, SeveralShares, several_shares

TWO = (
    PRELUDE
    + TWO_DEVICES
    + """
assert len(contexts) == 2

def load():
    return check(cu.cuLibraryLoadData(PTX, [], [], 0, [], [], 0))

def word(address):
    out = np.zeros(1, np.uint32)
    check(cu.cuMemcpyDtoH(out.ctypes.data, address, 4))
    return int(out[0])
"""
)


@pytest.fixture
def share(tmp_path: Path) -> Iterator[SeveralShares]:
    with several_shares(tmp_path, devices=(2,)) as shares:
        yield shares


def test_a_library_has_its_variables_on_each_device(share: SeveralShares) -> None:
    share.run(
        """
        use(0)
        library = load()
        tables, modules = [], []
        for device, value in ((0, 7), (1, 9)):
            use(device)
            tables.append(check(cu.cuLibraryGetGlobal(library, b"table"))[0])
            modules.append(check(cu.cuLibraryGetModule(library)))
            check(cu.cuMemsetD32(tables[device], value, 4))
        assert len({int(table) for table in tables}) == len({int(module) for module in modules}) == 2
        for device, value in ((0, 7), (1, 9)):
            use(device)
            assert int(check(cu.cuLibraryGetGlobal(library, b"table"))[0]) == int(tables[device])
            assert word(tables[device]) == value
        # A module is that of its context, whatever is current.
        assert [int(check(cu.cuModuleGetGlobal(module, b"table"))[0]) for module in modules] == [
            int(table) for table in tables
        ]
        for device, table in enumerate(tables):
            ask = cu.CUpointer_attribute
            assert check(cu.cuPointerGetAttribute(ask.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, int(table) + 4)) == device
            start = check(cu.cuPointerGetAttribute(ask.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, int(table) + 4))
            assert int(start) == int(table)
        check(cu.cuLibraryUnload(library))
        assert cu.cuModuleGetGlobal(modules[1], b"table")[0] == Error.CUDA_ERROR_INVALID_HANDLE
        print("ok")
        """,
        TWO,
    )


def test_an_attribute_of_a_kernel_is_set_on_the_device_that_is_given(share: SeveralShares) -> None:
    share.run(
        """
        use(0)
        kernel = check(cu.cuLibraryGetKernel(load(), b"add"))
        use(1)
        words = check(cu.cuMemAlloc(4))
        check(cu.cuMemsetD32(words, 0, 1))

        def launch_with(shared):
            arguments = ((int(words), 1, 1), (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32))
            function = cu.CUfunction(int(kernel))
            return cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, shared, 0, arguments, 0)[0]

        check((launch_with(0),))  # now the kernel is on the second device
        most = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        assert launch_with(60_000) == Error.CUDA_ERROR_INVALID_VALUE
        use(0)
        assert cu.cuKernelSetAttribute(most, 60_000, kernel, 2)[0] == Error.CUDA_ERROR_INVALID_DEVICE
        check(cu.cuKernelSetAttribute(most, 60_000, kernel, 1))
        use(1)
        check((launch_with(60_000),))
        check(cu.cuCtxSynchronize())
        assert word(words) == 2
        print("ok")
        """,
        TWO,
    )


def test_a_device_stays_the_current_one_when_both_were_waited_for(share: SeveralShares) -> None:
    share.run(
        """
        for device in range(2):
            use(device)
            add = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(PTX)), b"add"))
            words = check(cu.cuMemAlloc(4))
            check(cu.cuMemsetD32(words, 0, 1))
            check(cu.cuCtxSynchronize())
            assert runtime.gpupool_drain(5000) == 0
            launch(add, words, 1, 1)
            check(cu.cuCtxSynchronize())
            assert word(words) == 1
        print("ok")
        """,
        TWO,
    )
