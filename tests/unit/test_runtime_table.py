"""The table of the runtime API against the headers, and against what packages need."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "src" / "cudart"
sys.path.insert(0, str(FOLDER))

import find_runtime_headers  # noqa: E402
import runtime_emit  # noqa: E402
import runtime_header  # noqa: E402
import runtime_table  # noqa: E402

from tests.conformance import runtime_imports  # noqa: E402

MAJORS = (12, 13)


@pytest.fixture(scope="module")
def tables() -> dict[int, runtime_table.Table]:
    found = {}
    for major in MAJORS:
        try:
            include = find_runtime_headers.find(major)
        except FileNotFoundError as error:
            pytest.skip(str(error))
        header = runtime_header.load(include, FOLDER / "include")
        found[major] = runtime_table.load(FOLDER / "table", header)
    return found


@pytest.mark.parametrize("major", MAJORS)
def test_what_pytorch_imports_is_there(tables: dict[int, runtime_table.Table], major: int) -> None:
    needed = runtime_imports.load()[major]
    assert len(needed) > 80
    kinds = {name: entry.kind for name, entry in tables[major].entries.items()}
    registration = (FOLDER / "registration.cpp").read_text()
    for name, users in needed.items():
        if name.startswith("__"):
            assert f" {name}(" in registration, f"{users[0]} needs {name}"
        else:
            assert kinds[name] != "unsupported", f"{users[0]} needs {name}"


@pytest.mark.parametrize("major", MAJORS)
def test_every_function_of_the_header_stands_on_the_coverage_page(
    tables: dict[int, runtime_table.Table], major: int
) -> None:
    page = runtime_emit.coverage(tables[major])
    assert len(tables[major].entries) > 290
    assert all(f"| `{name}` |" in page for name in tables[major].header.functions)


def test_a_function_that_the_table_forgets_is_an_error(
    tables: dict[int, runtime_table.Table], tmp_path: Path
) -> None:
    for path in (FOLDER / "table").glob("*.toml"):
        if path.name != "event.toml":
            (tmp_path / path.name).write_text(path.read_text())
    with pytest.raises(runtime_table.TableError, match=r"not in the table: cudaEventCreate"):
        runtime_table.load(tmp_path, tables[13].header)


def test_a_call_with_too_few_arguments_is_an_error(
    tables: dict[int, runtime_table.Table], tmp_path: Path
) -> None:
    (tmp_path / "one.toml").write_text('[direct]\ncudaEventCreate = "cuEventCreate(event)"\n')
    with pytest.raises(runtime_table.TableError, match="cuEventCreate takes 2 arguments, 1 are given"):
        runtime_table.load(tmp_path, tables[13].header)


def test_the_stream_of_the_per_thread_flavour_is_translated(tables: dict[int, runtime_table.Table]) -> None:
    text = runtime_emit.exports(tables[13])
    assert "as<CUstream>(per_thread(stream))" in text
    assert text.count("cudaError_t cudaStreamSynchronize") == 2
