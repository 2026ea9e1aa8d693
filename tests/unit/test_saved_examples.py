"""What the example notebooks show to who reads them without running them."""

from __future__ import annotations

import re

import nbformat
import pytest

from tests.support import examples


@pytest.mark.parametrize("name", examples.names())
def test_an_example_is_saved_with_what_it_shows_and_without_errors(name: str) -> None:
    notebook = nbformat.read(examples.EXAMPLES / f"{name}.ipynb", 4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert any(cell.outputs for cell in cells)
    assert examples.errors(notebook) == []


@pytest.mark.parametrize("name", examples.names())
def test_a_cell_on_a_share_is_saved_with_what_it_used(name: str) -> None:
    notebook = nbformat.read(examples.EXAMPLES / f"{name}.ipynb", 4)
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.source.startswith("%%gpu"):
            figures = [
                output.data
                for output in cell.outputs
                if "application/vnd.gpupool.cell+json" in output.get("data", {})
            ]
            assert len(figures) == 1, cell.source
            assert "text/plain" in figures[0] and "text/html" in figures[0]


@pytest.mark.parametrize("name", examples.names())
def test_an_example_does_not_deny_the_math_libraries(name: str) -> None:
    """A software GPU computes operations of cuBLAS and cuDNN."""
    notebook = nbformat.read(examples.EXAMPLES / f"{name}.ipynb", 4)
    for cell in notebook.cells:
        assert not re.search(r"cuBLAS.*real GPUs only", cell.source, re.DOTALL), cell.source


@pytest.mark.parametrize("name", examples.names())
def test_an_example_names_no_place_of_the_machine_that_made_it(name: str) -> None:
    text = (examples.EXAMPLES / f"{name}.ipynb").read_text()
    assert not [folder for folder in ("/tmp/", "/home/", "/root/", "/opt/", "/usr/") if folder in text]
