"""The examples that train, in a browser as a person runs them: with each framework they lose on the share what the CPU loses."""

from __future__ import annotations

import re
from collections.abc import Callable

import nbformat
import pytest
from lab_page import LabPage
from playwright.sync_api import expect
from stack import ROOT, LabStack

from tests.support import examples

Open = Callable[..., LabPage]

#: How far a loss may be from the CPU's.
TOLERANCE = 1e-4
#: What each says at its end, when everything has run.
LAST_WORDS = {
    "quickstart": r"accuracy on the CPU: 0\.\d+\n.*losses: [\d.e-]+",
    "torch-eager": r"\d+% of \d+ images that it has not seen",
    "tensorflow": r"largest difference [\d.e-]+",
    "jax": r"largest difference [\d.e-]+",
}
#: What it says of its losses: how far they are apart, or both.
LOSSES = re.compile(
    r"largest difference of \d+ losses: ([\d.e-]+)|loss ([\d.]+) on the GPU, ([\d.]+) on the CPU"
)
MILLISECONDS = 400_000


def differences(text: str) -> list[float]:
    """Between the losses on the share and those on the CPU, as a notebook tells them."""
    found = LOSSES.findall(text)
    return [float(apart) if apart else abs(float(on_gpu) - float(on_cpu)) for apart, on_gpu, on_cpu in found]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", list(LAST_WORDS))
def test_a_framework_trains_on_a_share_as_on_the_cpu(lab: LabStack, open_page: Open, name: str) -> None:
    python = examples.needed_python(name)
    if python is None:
        pytest.skip(examples.what_is_missing(name))
    notebook = nbformat.read(ROOT / "examples" / f"{name}.ipynb", 4)  # type: ignore[no-untyped-call, unused-ignore]
    kernel = examples.kernel_for(lab.stack, name, python)
    notebook.metadata.kernelspec = {"name": kernel, "display_name": kernel, "language": "python"}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nbformat.write(notebook, lab.folder / f"{name}.ipynb")  # type: ignore[no-untyped-call, unused-ignore]

    page = open_page(lab)
    page.open(f"{name}.ipynb")
    page.open_sidebar()
    expect(page.kernel(f"{name}.ipynb")).to_be_visible(timeout=60_000)
    page.run_all()
    cells = page.page.get_by_role("feed", name="Cells")
    ended = cells.get_by_text(re.compile(LAST_WORDS[name])).or_(page.cell_errors).first
    expect(ended).to_be_attached(timeout=MILLISECONDS)
    assert page.cell_errors.all_inner_texts() == []

    apart = differences(cells.inner_text())
    assert apart, cells.inner_text()
    assert max(apart) <= TOLERANCE
