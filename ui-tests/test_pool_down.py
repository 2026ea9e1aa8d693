"""A pool that dies under an open page: one message, polls go on, everything comes back."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from lab_page import LabPage
from playwright.sync_api import expect
from stack import ROOT, LabStack, write_notebook

Open = Callable[..., LabPage]


@pytest.fixture
def fragile() -> Iterator[LabStack]:
    """Nothing that died is started again, so that what a page shows meanwhile can be seen."""
    with LabStack("--no-restart") as lab:
        yield lab


def test_the_page_says_that_the_pool_is_down_and_recovers(fragile: LabStack, open_page: Open) -> None:
    write_notebook(fragile.folder / "work.ipynb", "%%gpu 0.2\nprint('the cell', 'ran')")
    page = open_page(fragile)
    page.open("work.ipynb")
    page.open_sidebar()
    expect(page.device(1)).to_be_visible()

    fragile.stack.kill("the pool")
    problem = page.sidebar.get_by_role("group", name="What does not answer")
    expect(problem.get_by_role("alert")).to_contain_text("The GPU pool does not answer")
    expect(problem).to_contain_text(re.compile(r"Since \d+:\d+.*as they were at \d+:\d+.*Notebooks run on"))
    expect(problem.get_by_role("button", name="Retry now")).to_be_visible()
    expect(problem).to_be_visible()
    expect(problem).to_have_count(1)
    expect(page.kernel("work.ipynb")).to_be_visible()
    # What was known stays, and is not passed off as what is.
    expect(page.sidebar.get_by_role("button", name="Pool as it was")).to_be_visible()
    expect(page.device(1)).to_be_visible()

    # A cell that may wait asks again, and says why it waits.
    page.run_cell(0)
    expect(page.state("work.ipynb")).to_have_text("queued")
    expect(page.kernel("work.ipynb")).to_contain_text("The GPU pool does not answer")
    output = page.cell(0).locator(".jp-OutputArea")
    expect(output).to_contain_text("Waiting for a GPU. The GPU pool does not answer")
    # After half a minute it fails.
    expect(output).to_contain_text("GpuError", timeout=60_000)
    expect(output).not_to_contain_text("the cell ran")
    expect(page.state("work.ipynb")).to_have_text("no GPU")
    # So does the button.
    page.press("work.ipynb", "Attach")
    expect(page.state("work.ipynb")).to_have_text("queued")
    refused = page.kernel("work.ipynb").get_by_role("alert")
    expect(refused).to_contain_text("pool", timeout=60_000)
    expect(page.state("work.ipynb")).to_have_text("no GPU")

    with (fragile.stack.home / "pool-again.log").open("w") as log:
        again = subprocess.Popen(
            [sys.executable, "-m", "gpupool.cli.main", "pool", "serve"],
            env=fragile.stack.environment,
            stdout=log,
            stderr=log,
            cwd=ROOT,
        )
    try:
        expect(problem).to_have_count(0, timeout=60_000)
        expect(page.device(1)).to_contain_text("1 free", timeout=60_000)
        page.run_and_wait(0, "the cell ran")
        page.attach("work.ipynb", "0.2")
    finally:
        again.terminate()
        again.wait(30)
