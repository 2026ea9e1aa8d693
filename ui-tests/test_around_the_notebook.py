"""Around the notebook: what a restart asks for, and that cells do not run without it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import programs
from lab_page import KERNEL_MS, LabPage
from playwright.sync_api import Locator, expect
from stack import LabStack, read_notebook, wait_until, write_notebook

Open = Callable[..., LabPage]


def item(page: LabPage, name: str | re.Pattern[str]) -> Locator:
    return page.page.get_by_role("menuitem", name=name)


def open_menu(page: LabPage) -> None:
    """By keyboard; again while the kernel is not connected yet, as nothing can be done to it then."""
    attach = item(page, "Attach 0.2 GPU").and_(page.page.locator(":not([aria-disabled])"))
    for _ in range(40):
        page.toolbar_button.focus()
        page.page.keyboard.press("Enter")
        if attach.is_visible():
            return
        page.page.keyboard.press("Escape")
        page.page.wait_for_timeout(250)
    expect(attach).to_be_visible()


def metadata(path: Path) -> Any:
    return read_notebook(path)["metadata"].get("gpupool")


def restart_and_run_all(page: LabPage) -> None:
    page.page.get_by_role("button", name="Restart the kernel and run all cells").click()
    page.page.get_by_role("dialog").get_by_role("button", name="Confirm Kernel Restart").click()


def test_restart_and_run_all_asks_for_what_the_notebook_had(lab: LabStack, open_page: Open) -> None:
    path = lab.folder / "again.ipynb"
    write_notebook(path, programs.ADD)
    page = open_page(lab)
    page.open("again.ipynb")
    page.toolbar_button.click()
    item(page, "Attach 0.5 GPU").click()
    expect(page.toolbar_button).to_have_text("0.5")
    page.page.keyboard.press("Control+s")
    restart_and_run_all(page)
    output = page.cell(0).locator(".jp-OutputArea")
    expect(output).to_contain_text("sum 768.0", timeout=KERNEL_MS)
    expect(page.toolbar_button).to_have_text("0.5")
    assert metadata(path) == {"share": "0.5"}


def test_cells_are_not_run_without_the_gpu_that_is_asked_for(lab: LabStack, open_page: Open) -> None:
    path = lab.folder / "full.ipynb"
    write_notebook(path, "print('ran')")
    page = open_page(lab)
    page.open("full.ipynb")
    # Both devices are somebody else's.
    for _ in range(2):
        other = lab.stack.api("POST", "api/kernels", {"name": "python3"})
        lab.stack.api("POST", f"gpupool/api/kernels/{other['id']}/attach", {"share": "1"})
    wait_until(lambda: lab.free_milli() == 0, 20, "both devices to be taken")
    written = read_notebook(path)
    written["metadata"]["gpupool"] = {"share": "0.5"}
    path.write_text(json.dumps(written))
    page.page.reload()
    page.wait_kernel()

    restart_and_run_all(page)
    waits = page.notification("full.ipynb waits for 0.5 GPU before its cells run.")
    expect(waits).to_be_visible(timeout=KERNEL_MS)
    expect(page.toolbar_button).to_have_text(re.compile("queued"))
    waits.get_by_role("button", name="Cancel").click()
    expect(page.notification(re.compile("no cell was run, without 0.5 GPU"))).to_be_visible()
    expect(page.cell(0).locator(".jp-OutputArea")).not_to_contain_text("ran")


def test_the_menu_in_notebook_7(lab: LabStack, open_page: Open) -> None:
    write_notebook(lab.folder / "menu7.ipynb", programs.ADD)
    page = open_page(lab)
    page.page.goto(lab.url("notebooks/menu7.ipynb"))
    expect(page.page.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']")).to_be_visible(
        timeout=KERNEL_MS
    )
    open_menu(page)
    page.page.keyboard.press("Enter")
    expect(page.toolbar_button).to_have_text("0.2")
    # A kernel that is restarted while the server still greets this page's connection is not heard for a minute.
    page.run_and_wait(0, "sum 768.0", milliseconds=KERNEL_MS)
    page.menu("Edit", "Clear Outputs of All Cells")
    expect(page.cell(0).locator(".jp-OutputArea")).not_to_contain_text("sum 768.0")
    page.menu("Kernel", "Restart Kernel and Run All Cells…")
    page.page.get_by_role("dialog").get_by_role("button", name="Confirm Kernel Restart").click()
    expect(page.cell(0).locator(".jp-OutputArea")).to_contain_text("sum 768.0", timeout=KERNEL_MS)
    expect(page.toolbar_button).to_have_text("0.2")
