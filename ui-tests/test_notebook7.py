"""The same extension in Jupyter Notebook 7, which has no status bar and other side panels."""

from __future__ import annotations

from collections.abc import Callable

import programs
from lab_page import KERNEL_MS, LabPage
from playwright.sync_api import expect
from stack import LabStack, write_notebook

Open = Callable[..., LabPage]


def test_attach_from_toolbar_and_sidebar(lab: LabStack, open_page: Open) -> None:
    write_notebook(lab.folder / "seven.ipynb", programs.ADD)
    page = open_page(lab)
    page.page.goto(lab.url("notebooks/seven.ipynb"))
    expect(page.toolbar_button).to_be_visible(timeout=KERNEL_MS)
    expect(page.page.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']")).to_be_visible(
        timeout=KERNEL_MS
    )

    page.toolbar_button.click()
    page.page.get_by_role("menuitem", name="Show GPU Pool").click()
    expect(page.sidebar).to_be_visible()
    expect(page.kernel("seven.ipynb")).to_be_visible()
    page.attach("seven.ipynb", "0.2")
    expect(page.toolbar_button).to_have_text("0.2")
    page.run_and_wait(0, "sum 768.0")
