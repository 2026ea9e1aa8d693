"""Where a node finds NVIDIA's math libraries, and what it tells its workers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from gpupool.node.math_libraries import LIBRARIES, VARIABLE, FolderUnusableError, find


def put(folder: Path, *files: str) -> Path:
    folder.mkdir(parents=True)
    for file in files:
        (folder / file).touch()
    return folder


def nothing(_name: str) -> str | None:
    return None


def test_folders_that_are_named_are_all_that_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blas = put(tmp_path / "blas", "libcublas.so.12", "libcublas.so.13", "libcublasLt.so.12")
    other = put(tmp_path / "other", "libcudnn.so.8", "libcufft.so.11")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/own")
    found = find([blas, other])
    assert found.versions == {"cuBLAS": 13, "cuBLASLt": 12, "cuFFT": 11}
    assert found.missing == ("cuDNN", "cuRAND", "cuSOLVER", "cuSPARSE")
    folders = f"{blas}:{other}"
    assert found.environment() == {VARIABLE: folders, "LD_LIBRARY_PATH": f"{folders}:/own"}


def test_wheels_beside_this_program_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lib = put(tmp_path / "nvidia" / "cu13" / "lib", "libcublas.so.13", "libcublasLt.so.13", "libcufft.so.12")
    dnn = put(tmp_path / "nvidia" / "cudnn" / "lib", "libcudnn.so.9")
    linker = put(tmp_path / "nvidia" / "nvjitlink" / "lib", "libnvJitLink.so.13")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    found = find(of_the_system=nothing)
    assert found.folders == (lib, dnn, linker)
    assert found.missing == ("cuRAND", "cuSOLVER", "cuSPARSE")


def test_else_the_system_has_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    system = {"cublas": "libcublas.so.12", "cudnn": "libcudnn.so.8", "curand": "libcurand.so.10"}
    found = find(of_the_system=system.get)
    assert (found.folders, found.versions) == ((), {"cuBLAS": 12, "cuRAND": 10})
    assert found.environment() == {}


def test_a_driver_of_cuda_12_gets_no_libraries_of_cuda_13(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    put(tmp_path / "nvidia" / "cu13" / "lib", "libcublas.so.13", "libcusparse.so.12")
    old = put(tmp_path / "nvidia" / "cublas" / "lib", "libcublas.so.12", "libcublasLt.so.12")
    found = find(cuda=12080, of_the_system=nothing)
    assert (found.folders, found.versions) == ((old,), {"cuBLAS": 12, "cuBLASLt": 12})
    assert (find(cuda=13000, of_the_system=nothing).versions or {})["cuBLAS"] == 13
    named = put(tmp_path / "named", "libcusolver.so.12", "libcufft.so.12", "libcufft.so.11")
    assert find([named], cuda=12080).versions == {"cuFFT": 11}
    assert find(cuda=12080, of_the_system={"cublas": "libcublas.so.13"}.get).versions == {
        "cuBLAS": 12,
        "cuBLASLt": 12,
    }


def test_nothing_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert find(of_the_system=nothing).missing == tuple(LIBRARIES)


@pytest.mark.parametrize("name", ["absent", "with:colon"])
def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "with:colon").mkdir()
    with pytest.raises(FolderUnusableError, match=name):
        find([tmp_path / name])
