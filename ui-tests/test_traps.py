"""Two tabs on one kernel, and Run all with a cell that fails under `%%gpu`."""

from __future__ import annotations

from collections.abc import Callable

import programs
from lab_page import LabPage
from playwright.sync_api import expect
from stack import LabStack, write_notebook

Open = Callable[..., LabPage]


def test_two_tabs_on_one_kernel_see_and_do_the_same(page: LabPage, lab: LabStack, open_page: Open) -> None:
    other = open_page(lab)
    other.open("work.ipynb")
    other.open_sidebar()
    page.attach("work.ipynb", "0.2")
    expect(other.state("work.ipynb")).to_have_text("attached")
    expect(other.kernel("work.ipynb")).to_contain_text("0.2 of GPU")
    expect(other.toolbar_button).to_have_text("0.2")
    assert lab.free_milli() == 1800

    other.press("work.ipynb", "Detach")
    expect(page.state("work.ipynb")).to_have_text("no GPU, memory kept")
    expect(page.toolbar_button).to_have_text("GPU")
    assert lab.free_milli() == 2000


def test_run_all_stops_at_a_cell_that_fails_under_gpu(lab: LabStack, open_page: Open) -> None:
    write_notebook(
        lab.folder / "fails.ipynb",
        f"%%gpu 0.2\n{programs.ADD}",
        "%%gpu 0.2\n1 / 0",
        "print('not run')",
    )
    page = open_page(lab)
    page.open("fails.ipynb")
    page.open_sidebar()
    page.run_all()
    expect(page.cell(1).locator(".jp-OutputArea")).to_contain_text("ZeroDivisionError", timeout=60_000)
    expect(page.state("fails.ipynb")).to_have_text("no GPU, memory kept")
    page.wait_kernel()
    expect(page.cell(0).locator(".jp-OutputArea")).to_contain_text("sum 768.0")
    expect(page.cell(2).locator(".jp-OutputArea")).not_to_contain_text("not run")
    assert lab.free_milli() == 2000
