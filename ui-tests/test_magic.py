"""`%%gpu` in a notebook: the share shows while the cell runs and is gone when it ends."""

from __future__ import annotations

import re
from collections.abc import Callable

import programs
from lab_page import LabPage
from playwright.sync_api import expect
from stack import LabStack, write_notebook

Open = Callable[..., LabPage]


def test_the_share_is_held_while_the_cell_runs(lab: LabStack, open_page: Open) -> None:
    write_notebook(
        lab.folder / "magic.ipynb",
        f"%%gpu 0.2\n{programs.ADD}",
        f"%%gpu 0.4\n{programs.USE_FOR.format(seconds=12)}",
        "print('kept', kept.size)",
    )
    page = open_page(lab)
    page.open("magic.ipynb")
    page.open_sidebar()

    page.run_and_wait(0, "sum 768.0")
    expect(page.state("magic.ipynb")).to_have_text("no GPU, memory kept")

    output = page.run_cell(1)
    expect(page.state("magic.ipynb")).to_have_text("attached")
    expect(page.kernel("magic.ipynb")).to_contain_text("0.4 of GPU")
    expect(page.kernel("magic.ipynb")).to_contain_text("for a cell (%%gpu)")
    mine = page.sidebar.get_by_role("list", name=re.compile("^Shares of ")).get_by_role("listitem")
    expect(mine).to_contain_text("magic.ipynb (you)")
    expect(mine).to_contain_text("in use")
    expect(page.toolbar_button).to_have_text("0.4")
    expect(output).to_contain_text("used", timeout=30_000)

    expect(page.state("magic.ipynb")).to_have_text("no GPU, memory kept")
    expect(page.sidebar.get_by_role("button", name="Pool 2 of 2 GPUs free")).to_be_visible()
    page.run_and_wait(2, "kept 256")


def test_detaching_a_running_cell_asks_first(lab: LabStack, open_page: Open) -> None:
    write_notebook(
        lab.folder / "running.ipynb",
        f"%%gpu 0.2\n{programs.ADD}",
        f"%%gpu 0.2\n{programs.USE_FOR.format(seconds=40)}",
    )
    page = open_page(lab)
    page.open("running.ipynb")
    page.open_sidebar()
    page.run_and_wait(0, "sum 768.0")
    output = page.run_cell(1)
    expect(page.state("running.ipynb")).to_have_text("attached")
    expect(page.kernel("running.ipynb").get_by_role("img", name="running a cell")).to_be_visible()

    page.press("running.ipynb", "Detach")
    dialog = page.page.get_by_role("dialog")
    expect(dialog).to_contain_text("A cell is running")
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.state("running.ipynb")).to_have_text("attached")

    page.press("running.ipynb", "Detach")
    page.page.get_by_role("dialog").get_by_role("button", name="Detach").click()
    expect(page.sidebar.get_by_role("button", name="Pool 2 of 2 GPUs free")).to_be_visible()
    expect(output).to_contain_text(re.compile("Error"), timeout=30_000)


def test_a_bad_share_is_one_clear_message_in_the_notebook(lab: LabStack, open_page: Open) -> None:
    write_notebook(lab.folder / "bad.ipynb", "%%gpu banana\nprint('not run')", "%%gpu 1.7\nprint('not run')")
    page = open_page(lab)
    page.open("bad.ipynb")
    page.run_and_wait(0, "banana")
    expect(page.cell(0).locator(".jp-OutputArea")).not_to_contain_text("not run")
    page.run_and_wait(1, re.compile("more than one whole GPU"))
    assert lab.free_milli() == 2000
