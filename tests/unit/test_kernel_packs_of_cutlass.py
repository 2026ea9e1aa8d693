"""Kernels that are made from CUTLASS: where its headers are found, and what happens without them."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

import pytest
from gpupool.kernel_packs import cutlass, torch
from gpupool.kernel_packs.build import Outcome, Recipe, build
from gpupool.kernel_packs.library import Library
from gpupool.kernel_packs.store import Store

ATTENTION = "aten/src/ATen/native/transformers/cuda/mem_eff_attention/kernels/cutlassF_f32_aligned.cu"
SPARSE = "aten/src/ATen/native/sparse/cuda/SparseSemiStructuredOps.cu"
INDIRECT = "aten/src/ATen/native/sparse/cuda/SparseSemiStructuredTile.cu"
PLAIN = "aten/src/ATen/native/cuda/FillKernel.cu"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "pytorch"
    for place, text in {
        ATTENTION: "",
        SPARSE: "#include <cutlass/gemm.h>\n",
        INDIRECT: "#include <ATen/native/sparse/cuda/StaticSort.h>\nint rows = cutlass::ceil_div(3, 2);\n",
        PLAIN: "// no cutlass\n",
    }.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text)
    return folder


def put_cutlass_in(folder: Path) -> None:
    for place in ("include/cutlass/cutlass.h", "tools/util/include/cutlass/util/x.h"):
        (folder / place).parent.mkdir(parents=True)
        (folder / place).touch()


def test_files_that_need_it_are_told_by_what_they_use_and_attention_by_its_folder(source: Path) -> None:
    assert {path.name for path in torch.kernel_sources(source).values() if cutlass.needs(path)} == {
        "cutlassF_f32_aligned.cu",
        "SparseSemiStructuredOps.cu",
        "SparseSemiStructuredTile.cu",
    }


def test_without_it_a_file_that_is_asked_for_says_why(tmp_path: Path) -> None:
    sources = {name: tmp_path / name for name in ("FillKernel.cu", "cutlassF_f32_aligned.cu")}
    recipe = Recipe(
        "torch 2.6.0",
        sources,
        (),
        made_from_headers=frozenset({"cutlassF_f32_aligned.cu"}),
        without_headers=cutlass.MISSING,
    )
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\n")
    nvcc.chmod(0o755)
    library = Library(tmp_path / "libtorch_cuda.so", "ab" * 20, ())
    asked = build(recipe, library, Store(tmp_path / "packs"), nvcc, ["cutlassF_f32_aligned.cu"], 1)
    assert list(asked) == [Outcome("cutlassF_f32_aligned.cu", problem=cutlass.MISSING)]


def test_when_its_headers_change_what_is_made_from_them_is_compiled_again_and_nothing_else(
    tmp_path: Path,
) -> None:
    sources = {name: tmp_path / name for name in ("FillKernel.cu", "cutlassF_f32_aligned.cu")}
    for path in sources.values():
        path.touch()
    nvcc, calls = tmp_path / "nvcc", tmp_path / "calls"
    nvcc.write_text(
        f'#!/bin/sh\n[ "$1" = -ptx ] || exit 0\necho "$*" >> {calls}\nfor to; do :; done\n'
        "printf '.version 8.0\\n.target sm_80\\n.address_size 64\\n' > $to\n"
    )
    nvcc.chmod(0o755)
    library = Library(tmp_path / "libtorch_cuda.so", "ab" * 20, ())

    def compiled(version: str) -> list[str]:
        calls.unlink(missing_ok=True)
        recipe = Recipe(
            "torch 2.6.0",
            sources,
            ("-w",),
            headers=(f"/cutlass-{version}",),
            headers_version=version,
            made_from_headers=frozenset({"cutlassF_f32_aligned.cu"}),
        )
        outcomes = list(build(recipe, library, Store(tmp_path / "packs"), nvcc, sorted(sources), 1))
        assert [outcome.problem for outcome in outcomes] == ["", ""]
        return calls.read_text().splitlines() if calls.exists() else []

    plain, attention = compiled("4.0")
    assert "-I/cutlass-4.0" in attention
    assert "-I" not in plain
    assert compiled("4.0") == []
    (again,) = compiled("3.5.1")
    assert "-I/cutlass-3.5.1" in again


def test_the_submodule_goes_before_the_package(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "cutlass_library"
    put_cutlass_in(package / "source")
    (package / "__init__.py").touch()
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nshift\nPYTHONPATH={package.parent} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert cutlass.folders(source, python) == [
        package / "source" / "include",
        package / "source" / "tools" / "util" / "include",
    ]
    put_cutlass_in(source / cutlass.SUBMODULE)
    assert cutlass.folders(source, python)[0] == source / cutlass.SUBMODULE / "include"


def test_an_archive_that_brings_it_is_unpacked_with_it(source: Path, tmp_path: Path) -> None:
    put_cutlass_in(source / cutlass.SUBMODULE)
    (source / "third_party" / "other").mkdir()
    (source / "third_party" / "other" / "large").touch()
    archive, work = tmp_path / "pytorch.tar.gz", tmp_path / "work"
    with tarfile.open(archive, "w:gz") as made:
        made.add(source, "pytorch")
    work.mkdir()
    opened = torch.open_sources(archive, work)
    assert cutlass.folders(opened, Path("/nowhere/python"))[0] == opened / cutlass.SUBMODULE / "include"
    assert not (opened / "third_party" / "other").exists()


def test_of_a_compilers_error_about_templates_the_beginning_is_shown(tmp_path: Path) -> None:
    (tmp_path / "x.cu").touch()
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(
        "#!/bin/sh\nprintf 'x.cu(7): error: incomplete type \"%s\"\\n' \"$(seq -s ' ' 9999)\" >&2\nexit 1\n"
    )
    nvcc.chmod(0o755)
    library = Library(tmp_path / "libmine.so", "ab" * 20, ())
    recipe = Recipe("mine", {"x.cu": tmp_path / "x.cu"}, ())
    # The version is asked for first.
    nvcc.write_text(nvcc.read_text().replace("printf", '[ "$1" = --version ] && exit 0\nprintf'))
    (outcome,) = build(recipe, library, Store(tmp_path / "packs"), nvcc, ["x.cu"], 1)
    assert "x.cu(7): error: incomplete type" in outcome.problem
    assert len(outcome.problem) < 600
