"""cuda.h as the generator sees it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src" / "protocol"))

import cuda_header
import find_cuda_headers


@pytest.fixture(scope="module")
def header() -> cuda_header.CudaHeader:
    return cuda_header.load(find_cuda_headers.find())


def test_parameters_keep_const_and_stars() -> None:
    parameters = cuda_header.split_parameters("const void *src,  void **p, unsigned int  n, CUuuid uuid[]")
    assert [(p.type, p.name) for p in parameters] == [
        ("const void *", "src"),
        ("void **", "p"),
        ("unsigned int", "n"),
        ("CUuuid *", "uuid"),
    ]
    assert parameters[0].pointee == "void"
    with pytest.raises(cuda_header.HeaderError):
        _ = parameters[2].pointee


def test_function_pointers_in_line_are_refused() -> None:
    with pytest.raises(cuda_header.HeaderError):
        cuda_header.split_parameters("void (*callback)(int), int n")


def test_header_declares_every_form_of_a_function(header: cuda_header.CudaHeader) -> None:
    assert {"cuMemAlloc", "cuMemAlloc_v2", "cuMemcpyHtoD_v2_ptds", "cuLaunchKernel_ptsz"} <= header.exports
    assert header.functions["cuCtxSynchronize"].declaration == "(void)"
    assert header.errors["CUDA_ERROR_NOT_SUPPORTED"] == 801


def test_proc_address_versions_follow_the_header(header: cuda_header.CudaHeader) -> None:
    table = {(p.base, p.suffix, p.version): p.export for p in header.proc_addresses}
    assert table["cuMemAlloc", "", 2000] == "cuMemAlloc"
    assert table["cuMemAlloc", "", 3020] == "cuMemAlloc_v2"
    assert table["cuCtxCreate", "", 12050] == "cuCtxCreate_v4"
    assert table["cuStreamGetCaptureInfo", "_ptsz", 12030] == "cuStreamGetCaptureInfo_v3_ptsz"
    assert len(table) == len(header.exports)


def test_mismatch_between_the_two_headers_is_an_error() -> None:
    with pytest.raises(cuda_header.HeaderError, match="cuMemAlloc"):
        cuda_header.map_proc_addresses(frozenset({"cuMemAlloc", "cuMemAlloc_v2"}), "PFN_cuMemAlloc_v2000)")
