"""What the math libraries export: every name of their tables, under NVIDIA's version, and all that PyTorch imports."""

from __future__ import annotations

import ctypes
import importlib.util
import math
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from gpupool.client.native import native_directory

from tests.libraries.machine import Machine, integer, out, pointer

SOURCES: Final = Path(__file__).parents[2] / "src" / "libraries"
#: What PyTorch's CUDA builds import of each library: lists that lie beside the project, where there are any.
IMPORTS: Final = Path(__file__).parents[3] / "shared" / "research" / "torch-imports"
#: The folder of each list of imports.
LISTS: Final = {
    "cublas": "cublas",
    "cublasLt": "cublaslt",
    "cufft": "cufft",
    "cusolver": "cusolver",
    "cusparse": "cusparse",
    "cusparseLt": "cusparselt",
    "nccl": "nccl",
}
FOLDERS: Final = sorted(table.parent.name for table in SOURCES.glob("*/table.toml"))


def _generator() -> ModuleType:
    name = "generate_library"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, SOURCES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def _library(folder: str, major: str) -> tuple[str, bool, set[str], set[str]]:
    """SONAME, whether names have versions, what is implemented and what refused."""
    found = _generator().load(SOURCES / folder / "table.toml", major)
    return found.soname, found.versioned, set(found.implemented), set(found.refused)


def _sonames(folder: str) -> dict[str, str]:
    """By major version of CUDA. One alone serves both."""
    content = tomllib.loads((SOURCES / folder / "table.toml").read_text())
    return dict(content["library"]["sonames"])


@cache
def exported(soname: str) -> dict[str, str]:
    """The built library's functions, with the version node of each."""
    file = native_directory() / "libraries" / soname
    if not (native_directory() / "libraries").is_dir():
        pytest.skip("the native parts are not built (make build)")
    said = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--format=posix", str(file)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    symbols = (line.split() for line in said.stdout.splitlines())
    functions = [name for name, kind, *_ in symbols if kind != "A"]
    return {name.partition("@")[0]: name.rpartition("@")[2] if "@" in name else "" for name in functions}


@pytest.mark.parametrize(
    ("folder", "major"), [(folder, major) for folder in FOLDERS for major in _sonames(folder)]
)
def test_a_library_exports_the_names_of_its_table_under_its_version(folder: str, major: str) -> None:
    soname, versioned, implemented, refused = _library(folder, major)
    assert not implemented & refused
    built = exported(soname)
    assert set(built) == implemented | refused
    assert set(built.values()) == {soname if versioned else ""}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_library_has_a_file_for_the_programs_of_each_major(folder: str) -> None:
    """Where a table knows one major only, the SONAME must be that of both."""
    sonames = _sonames(folder)
    assert set(sonames) in ({"12", "13"}, {"13"})
    assert len(set(sonames.values())) == len(sonames), "two libraries of one name"


@pytest.mark.parametrize("name", LISTS)
def test_what_pytorch_imports_is_exported(name: str) -> None:
    lists = sorted(IMPORTS.glob(f"{name}.wheel*.txt"))
    if not lists:
        pytest.skip(f"no lists of what PyTorch imports in {IMPORTS}")
    _, _, implemented, refused = _library(LISTS[name], "13")
    for file in lists:
        assert set(file.read_text().split()) <= implemented | refused, file.name


@pytest.mark.parametrize(
    ("library", "function", "least"),
    [
        ("libcusolver.so.11", "cusolverGetVersion", 11_000),
        ("libcusolver.so.12", "cusolverGetVersion", 12_000),
        ("libnccl.so.2", "ncclGetVersion", 20_000),
        ("libnccl.so.2", "pncclGetVersion", 20_000),
    ],
)
def test_a_library_says_its_version(machine: Machine, library: str, function: str, least: int) -> None:
    answer = machine.call(library, function, out(4))
    assert answer.status == 0
    assert least <= answer.number() < least + 10_000


@pytest.mark.parametrize(
    ("library", "function", "major", "invalid"),
    [
        ("libcusolver.so.11", "cusolverGetProperty", 11, 3),
        ("libcusolver.so.12", "cusolverGetProperty", 12, 3),
        ("libcusparse.so.12", "cusparseGetProperty", 12, 3),
        ("libcusparseLt.so.0", "cusparseLtGetProperty", 0, 3),
    ],
)
def test_a_library_says_the_parts_of_its_version(
    machine: Machine, library: str, function: str, major: int, invalid: int
) -> None:
    answer = machine.call(library, function, integer(0), out(4))
    assert (answer.status, answer.number()) == (0, major)
    assert machine.call(library, function, integer(3), out(4)).status == invalid
    assert machine.call(library, function, integer(0), pointer(0)).status == invalid


@pytest.mark.parametrize(
    ("library", "function", "status"),
    [
        ("libcusparse.so.12", "cusparseSpMMOp", 10),
        ("libcusolver.so.11", "cusolverDnPotrf", 9),
        ("libcusolver.so.12", "cusolverDnXgesvdr", 9),
        ("libcusolver.so.12", "cusolverSpCreate", 9),
        ("libcusolverMg.so.12", "cusolverMgCreate", 9),
        ("libcusparseLt.so.0", "cusparseLtInit", 10),
        ("libnccl.so.2", "ncclCommShrink", 5),
    ],
)
def test_a_function_that_is_not_carried_says_so_by_its_status(
    machine: Machine, library: str, function: str, status: int
) -> None:
    assert machine.call(library, function, out(8)).status == status


def _loaded(soname: str) -> ctypes.CDLL:
    assert exported(soname)
    return ctypes.CDLL(str(native_directory() / "libraries" / soname))


@pytest.mark.parametrize(
    ("soname", "function"),
    [
        (f"lib{library}.so.{major}", f"{library}GetStatus")
        for library in ("cublas", "cublasLt")
        for major in (12, 13)
    ],
)
def test_a_status_has_a_name_and_a_text(soname: str, function: str) -> None:
    name_of, text_of = (getattr(_loaded(soname), f"{function}{what}") for what in ("Name", "String"))
    name_of.restype = text_of.restype = ctypes.c_char_p
    assert name_of(7) == b"CUBLAS_STATUS_INVALID_VALUE"
    assert name_of(15) == b"CUBLAS_STATUS_NOT_SUPPORTED"
    texts = {text_of(status) for status in (0, 1, 3, 7, 8, 11, 13, 14, 15, 16)}
    assert len(texts) == 10
    assert not any(b"CUBLAS" in text for text in texts)
    assert text_of(15) == b"the operation is not supported with these arguments"
    assert name_of(999) == text_of(999)


class _Complex(ctypes.Structure):
    _fields_ = (("real", ctypes.c_double), ("imaginary", ctypes.c_double))


class _Team(ctypes.Structure):
    _fields_ = (("ranks", ctypes.c_int), ("rank", ctypes.c_int), ("stride", ctypes.c_int))


def _answer(soname: str, function: str, kind: Any) -> Any:
    refused = getattr(_loaded(soname), function)
    refused.restype = kind
    return refused()


def test_a_refused_function_that_has_no_status_returns_nothing_that_looks_like_a_result() -> None:
    assert _answer("libcufftw.so.12", "fftw_plan_dft_1d", ctypes.c_void_p) is None
    assert math.isnan(_answer("libcublas.so.13", "cublasSdot", ctypes.c_float))
    assert math.isnan(_answer("libcublas.so.13", "cublasDznrm2", ctypes.c_double))
    product = _answer("libcublas.so.13", "cublasZdotc", _Complex)
    assert math.isnan(product.real)
    assert math.isnan(product.imaginary)
    assert _answer("libcublas.so.13", "cublasIsamax", ctypes.c_int) == 0
    assert _answer("libnccl.so.2", "ncclTeamRankToWorld", ctypes.c_int) == -1
    team = _answer("libnccl.so.2", "ncclTeamWorld", _Team)
    assert (team.ranks, team.rank, team.stride) == (0, 0, 0)


def _table(folder: Path, refused: str) -> Path:
    table = folder / "table.toml"
    table.write_text(
        '[library]\nsonames = { 13 = "libany.so.13" }\nnot_supported = 15\n'
        f'[implemented]\nnames = []\n[[refused]]\nreason = "not carried"\n{refused}\n'
    )
    return table


@pytest.mark.parametrize("name", ["anyGetStatusString", "anyGetErrorName", "fftwf_plan_dft_1d", "cublasSdot"])
def test_a_row_of_functions_that_have_no_status_says_what_they_return(tmp_path: Path, name: str) -> None:
    generator = _generator()
    with pytest.raises(generator.TableError, match=f"{name} has no status"):
        generator.load(_table(tmp_path, f'names = ["{name}"]'), "13")
    with pytest.raises(generator.TableError, match="nothing returns anything"):
        generator.load(_table(tmp_path, f'returns = "anything"\nnames = ["{name}"]'), "13")
    made = generator.load(_table(tmp_path, f'returns = "pointer"\nnames = ["{name}"]'), "13")
    assert f"void* {name}()" in generator.refusals(made)
